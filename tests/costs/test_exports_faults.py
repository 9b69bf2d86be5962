"""Whatever is wrong with a file costs the lines that are wrong, and is said in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.costs import exports, read_usage
from kvcore.costs.exports import Format, columns

SAMPLES = Path(__file__).parents[1] / "data" / "usage"
FILES = sorted(path.name for path in SAMPLES.iterdir())
DATA = {name: (SAMPLES / name).read_bytes() for name in FILES}
CLEAN = {name: read_usage(DATA[name], name) for name in FILES}
TABLES = [name for name in FILES if name.endswith(".csv")]
LINES = [name for name in FILES if name.endswith(".jsonl")]


def check_sound(usage) -> None:
    """Line numbers and sentences for what was refused, finite sums for what was not."""
    for line, reason in usage.rejected:
        assert isinstance(line, int)
        assert line >= 1
        assert reason.strip()
        assert reason[0].isupper() or reason[0].isdigit()
        assert reason.endswith(".")
    assert usage.rejected == sorted(usage.rejected, key=lambda entry: entry[0])
    assert usage.total.paid.is_finite()
    assert usage.total.paid >= 0
    if not usage.is_cost and len(usage.frame):
        counts = usage.frame[["fresh", "cache_read", "write_short", "write_long", "output"]]
        assert (counts >= 0).all(axis=None)
    if usage.format == Format.UNKNOWN:
        assert usage.frame.empty
        assert len(usage.rejected) == 1


@settings(max_examples=80)
@given(name=st.sampled_from(FILES), data=st.data())
def test_a_file_cut_anywhere_keeps_its_whole_rows(name, data):
    cut = data.draw(st.integers(0, len(DATA[name])))
    usage = read_usage(DATA[name][:cut], name)
    check_sound(usage)
    assert len(usage.frame) + usage.duplicates <= (len(CLEAN[name].frame) + CLEAN[name].duplicates)


@pytest.mark.parametrize("name", TABLES + LINES)
def test_rows_before_the_cut_are_all_counted(name):
    """Half of the last line is missing: only that line is lost."""
    data = DATA[name].rstrip(b"\n")
    last = data.rfind(b"\n")
    usage = read_usage(data[: last + (len(data) - last) // 2], name)
    clean = CLEAN[name]
    read = len(usage.frame) + usage.duplicates
    assert read >= len(clean.frame) + clean.duplicates - 1
    if read < len(clean.frame) + clean.duplicates:
        lines = data.count(b"\n") + 1
        assert [line for line, _ in usage.rejected] == [lines]


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".json")])
def test_a_json_document_cut_in_its_last_row_keeps_the_others(name):
    data = DATA[name]
    usage = read_usage(data[: int(len(data) * 0.8)], name)
    assert usage.format == CLEAN[name].format
    assert len(usage.frame) >= 1
    assert len(usage.rejected) == 1
    assert "cut off" in usage.rejected[0][1]
    assert usage.rejected[0][0] > 1


@settings(max_examples=80)
@given(
    name=st.sampled_from(FILES),
    place=st.floats(0, 1),
    noise=st.binary(min_size=1, max_size=30),
    replaced=st.integers(0, 30),
)
def test_noise_anywhere_is_survived(name, place, noise, replaced):
    at = int(place * len(DATA[name]))
    usage = read_usage(DATA[name][:at] + noise + DATA[name][at + replaced :], name)
    check_sound(usage)


@settings(max_examples=60)
@given(st.one_of(st.binary(max_size=400), st.text(max_size=200).map(str.encode)))
def test_anything_at_all_is_answered(data):
    check_sound(read_usage(data, "upload"))


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["-5", "1e400", "1,234", "12.5", "NaN", "=1+1", "", "null", "١٢", "9" * 30]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


def _replace_all(node, path, value):
    """The same JSON with the leaf at `path` (indices into the list of leaves) changed."""
    leaves = []

    def walk(part, parent, key):
        if isinstance(part, dict):
            for name, child in part.items():
                walk(child, part, name)
        elif isinstance(part, list):
            for index, child in enumerate(part):
                walk(child, part, index)
        elif parent is not None:
            leaves.append((parent, key))

    walk(node, None, None)
    parent, key = leaves[int(path * len(leaves)) % len(leaves)]
    parent[key] = value
    return node


@settings(max_examples=80)
@given(name=st.sampled_from(LINES), line=st.floats(0, 1), leaf=st.floats(0, 1), value=values)
def test_any_value_in_any_place_of_a_json_line(name, line, leaf, value):
    lines = DATA[name].splitlines()
    index = int(line * len(lines)) % len(lines)
    lines[index] = json.dumps(_replace_all(json.loads(lines[index]), leaf, value)).encode()
    usage = read_usage(b"\n".join(lines), name)
    check_sound(usage)
    if usage.format == CLEAN[name].format:
        untouched = len(lines) - 1
        skipped = sum("passed over" in note for note in usage.notes) * len(lines)
        assert len(usage.frame) + usage.duplicates + skipped >= min(
            untouched, len(CLEAN[name].frame) + CLEAN[name].duplicates - 1
        ) - (2 if name == "codex_rollout.jsonl" else 0)


@settings(max_examples=80)
@given(name=st.sampled_from(TABLES), row=st.floats(0, 1), column=st.floats(0, 1), value=values)
def test_any_value_in_any_cell_of_a_table(name, row, column, value):
    if name == "langfuse_observations.csv":
        return  # its records run over lines; cut and noise tests cover it
    separator = ";" if name == "own_log.csv" else ","
    text = DATA[name].decode()
    lines = text.rstrip("\n").split("\n")
    index = 1 + int(row * (len(lines) - 1)) % (len(lines) - 1)
    fields = lines[index].split(separator)
    cell = str(value).replace(separator, "").replace("\n", "").replace("\r", "").replace('"', "")
    fields[int(column * len(fields)) % len(fields)] = cell
    lines[index] = separator.join(fields)
    usage = read_usage("\n".join(lines).encode(), name)
    check_sound(usage)
    assert usage.format == CLEAN[name].format
    good = len(usage.frame) + usage.duplicates + len(usage.rejected)
    assert good >= len(CLEAN[name].frame) + CLEAN[name].duplicates - 1
    assert all(line == index + 1 for line, _ in usage.rejected)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: b"\xef\xbb\xbf" + data, id="byte-order mark"),
        pytest.param(lambda data: data.replace(b"\n", b"\r\n"), id="Windows line ends"),
        pytest.param(lambda data: data.decode().encode("utf-16"), id="UTF-16"),
        pytest.param(lambda data: data.decode().encode("utf-16-le"), id="UTF-16 without a mark"),
        pytest.param(lambda data: data + b"\n\n\n", id="blank lines"),
        pytest.param(
            lambda data: data.decode().encode("cp1252", errors="replace"), id="Windows-1252"
        ),
    ],
)
def test_the_same_file_in_another_dress(name, change):
    usage = read_usage(change(DATA[name]), name)
    clean = CLEAN[name]
    assert usage.format == clean.format
    assert usage.rejected == []
    assert usage.duplicates == clean.duplicates
    assert usage.total.input_tokens == clean.total.input_tokens
    if b"\xe2\x89\xa4" not in DATA[name]:
        assert usage.total.paid == clean.total.paid


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("name", ["claude_api_tokens_2026_11.csv", "litellm_daily_user_spend.csv"])
def test_separators(name, separator):
    data = DATA[name].replace(b",", separator.encode())
    usage = read_usage(data, name)
    assert usage.total == CLEAN[name].total
    with_hint = read_usage(b"sep=" + separator.encode() + b"\n" + data, name)
    assert with_hint.total == CLEAN[name].total
    assert with_hint.frame["line"].iloc[0] == 3


HEADER = "created_at,model,prompt_tokens,completion_tokens,cached_tokens\n"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2026-11-02,gpt-4o,-5,1,0", "negative"),
        ("2026-11-02,gpt-4o,100,1,101", "said to come from the cache"),
        ("2026-11-02,gpt-4o,1.5,1,0", "whole number"),
        ("2026-11-02,gpt-4o,99999999999999999999999,1,0", "more than"),
        ("2026-11-02,gpt-4o,1e400,1,0", "whole number"),
        ("yesterday,gpt-4o,1,1,0", "date"),
        ("-1,gpt-4o,1,1,0", "date"),
        ("0001-01-01,gpt-4o,1,1,0", "date"),
        ("9999-12-31,gpt-4o,1,1,0", "date"),
        ("99999999999999999,gpt-4o,1,1,0", "date"),
        ("2026-11-02,gpt-4o,1", "fields"),
        ('2026-11-02,"gpt-4o,1,1,0', "quotation mark"),
    ],
)
def test_an_impossible_row_is_refused_with_its_line_and_the_rest_counted(row, reason):
    good = "2026-11-02,gpt-4o,2006,300,1920\n"
    usage = read_usage((HEADER + good + row + "\n" + good).encode(), "log.csv")
    assert len(usage.frame) == 2
    ((line, said),) = usage.rejected
    assert line == 3
    assert reason in said


def test_openrouter_cached_over_prompt_is_refused():
    name = "openrouter_activity_2026-11-02.csv"
    text = DATA[name].decode().replace(",11900,", ",99999,", 1)
    usage = read_usage(text.encode(), name)
    assert usage.rejected == [
        (
            3,
            "The cached tokens (99,999) exceed the input (12,150): one of the two is wrong, or the "
            "input leaves cached tokens out.",
        )
    ]
    assert len(usage.frame) == 4


def test_a_missing_column_is_named():
    name = "claude_api_tokens_2026_11.csv"
    data = DATA[name].replace(b"usage_output_tokens", b"something_else")
    usage = read_usage(data, name)
    assert usage.frame.empty
    ((line, reason),) = usage.rejected
    assert line == 1
    assert "usage_output_tokens is missing" in reason


def test_older_console_files_lack_the_last_two_columns():
    name = "claude_api_tokens_2026_11.csv"
    lines = [line.rsplit(",", 2)[0] for line in DATA[name].decode().splitlines()]
    usage = read_usage("\n".join(lines).encode(), name)
    assert usage.rejected == []
    assert len(usage.frame) == 5


def test_line_numbers_count_through_quoted_lines():
    name = "langfuse_observations.csv"
    text = DATA[name].decode().replace('""output"":100', '""output"":-100')
    usage = read_usage(text.encode(), name)
    assert [line for line, _ in usage.rejected] == [4]
    assert list(usage.frame["line"]) == [2]


def test_line_numbers_inside_a_json_document():
    name = "anthropic_usage_report.json"
    text = DATA[name].decode().replace('"output_tokens": 9000', '"output_tokens": -9000')
    usage = read_usage(text.encode(), name)
    ((line, reason),) = usage.rejected
    opening = text[: text.index('"uncached_input_tokens": 120000')].count("\n")
    assert line == opening  # the brace that opens the row, one line above its first field
    assert "negative" in reason
    assert len(usage.frame) == 2


def test_a_file_over_the_limit_is_refused_with_a_sentence(monkeypatch):
    monkeypatch.setattr(exports, "LARGEST_FILE", 10**6)
    usage = read_usage(DATA["own_log.csv"] + b" " * 10**6, "big.csv")
    assert usage.rejected == [
        (1, "The file has 1 MB and the limit is 1 MB: export a shorter period or fewer columns.")
    ]


def test_the_real_limit_is_two_hundred_megabytes():
    assert (
        read_usage(bytes(200 * 10**6 + 1), "big.csv")
        .rejected[0][1]
        .startswith("The file has 200 MB")
    )


def test_reading_stops_at_the_row_limit_and_says_so(monkeypatch):
    monkeypatch.setattr(exports, "MOST_ROWS", 100)
    monkeypatch.setattr(exports.reading, "ROWS_AT_ONCE", 50)
    data = HEADER.encode() + b"2026-11-02,gpt-4o,2006,300,1920\n" * 500
    usage = read_usage(data, "log.csv")
    assert len(usage.frame) == 100
    assert any("Reading stopped after 100 rows" in note for note in usage.notes)


def test_a_huge_count_is_refused_and_sums_stay_exact():
    many = columns.LARGEST_ROW
    rows = "".join(f"2026-11-02,{i},1,claude-sonnet-4-5,{many},0,0,{many},0\n" for i in range(1000))
    header = (
        "usage_date_utc,api_key,x,model_version,usage_input_tokens_no_cache,"
        "usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,"
        "usage_input_tokens_cache_read,usage_output_tokens\n"
    )
    usage = read_usage((header + rows).encode(), "c.csv")
    assert usage.total.input_tokens == 2 * many * 1000
    assert usage.total.paid == (3 * many * 1000 + many * 1000 * 3 // 10) / 1_000_000


def test_a_response_without_usage_is_named_and_failed_calls_are_passed_over():
    lines = DATA["api_responses.jsonl"].splitlines()
    lines.insert(1, b'{"id": "chatcmpl-x", "model": "gpt-4o", "choices": []}')
    lines.insert(3, b'{"error": {"message": "overloaded"}}')
    usage = read_usage(b"\n".join(lines), "log.jsonl")
    assert usage.rejected == [(2, "There is no usage in this response.")]
    assert any("a call that failed" in note for note in usage.notes)
    assert len(usage.frame) == 5


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"PK\x03\x04rest", "Excel"), (b"\x1f\x8brest", "gzip"), (b"%PDF-1.7", "PDF"), (b"", "empty")],
)
def test_files_of_another_kind(data, what):
    usage = read_usage(data, "file")
    assert what in usage.rejected[0][1]


@pytest.mark.parametrize("name", TABLES)
def test_a_column_that_is_read_stands_in_the_header_once(name):
    """Which of two holds would be a guess; what is not read may stand there twice."""
    lines = DATA[name].decode("utf-8-sig").splitlines()
    separator = ";" if ";" in lines[0] else ","
    refused = 0
    for column in lines[0].split(separator):
        header = f"{lines[0]}{separator}{column}"
        rows = [f"{line}{separator}7" for line in lines[1:]]
        usage = read_usage("\n".join([header, *rows]).encode(), name)
        if usage.format == Format.UNKNOWN:
            refused += 1
            assert "2 times" in usage.rejected[0][1]
        else:
            assert usage.total.paid == CLEAN[name].total.paid
            assert usage.total.input_tokens == CLEAN[name].total.input_tokens
    assert refused
