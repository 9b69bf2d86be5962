"""Azure's and Mooncake's traces, and one sentence for everything that is neither."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from kvcore.paging import simulate
from kvcore.paging.traces import TraceError, at_load, read_trace
from tests.shared_data import shared_data

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9951690,396,109\n"
)
MOONCAKE = (
    '{"timestamp": 500, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
    '{"timestamp": 2000, "input_length": 700, "output_length": 9, "hash_ids": [0, 2]}\n'
)


def test_azures_form():
    trace = read_trace(AZURE.encode())
    assert trace.format == "Azure"
    assert [(row.prompt, row.output) for row in trace.rows] == [(374, 44), (396, 109)]
    assert [row.seconds for row in trace.rows] == [0, pytest.approx(4.314579, abs=1e-6)]
    assert trace.longest == 505


def test_mooncakes_form():
    trace = read_trace(MOONCAKE.encode())
    assert trace.format == "Mooncake"
    assert [row.seconds for row in trace.rows] == [0, 1.5]
    assert [request.hash_ids for request in trace.requests(10)] == [(0, 1), (0, 2)]
    assert [request.arrival for request in trace.requests(10)] == [0, 15]
    assert [request.arrival for request in trace.requests()] == [0, 0]


@pytest.mark.parametrize("text", [AZURE, MOONCAKE])
def test_gzip_windows_line_ends_and_a_byte_order_mark_change_nothing(text):
    plain = read_trace(text.encode())
    assert read_trace(gzip.compress(text.encode())) == plain
    assert read_trace(text.replace("\n", "\r\n").encode()) == plain
    assert read_trace(("\ufeff" + text).encode()) == plain
    assert read_trace(("\n" + text + "\n\n").encode()) == plain


def test_columns_may_stand_in_any_order_among_others():
    text = "id,GeneratedTokens,ContextTokens,TIMESTAMP\n1,44,374,2024-05-10 00:00:00.009930+00:00\n"
    (row,) = read_trace(text.encode()).rows
    assert (row.prompt, row.output) == (374, 44)


def test_the_real_azure_trace():
    """Facts of the reference: 19,366 requests over 3,502 s, means 1,155 and 211, 85.3 % fit."""
    trace = read_trace(shared_data("azure_llm_2023_conv.csv.gz").read_bytes())
    rows = trace.rows
    assert len(rows) == 19_366
    assert trace.num_empty == 0
    assert trace.seconds == pytest.approx(3_502, abs=1)
    assert sum(row.prompt for row in rows) / len(rows) == pytest.approx(1_155, abs=1)
    assert sum(row.output for row in rows) / len(rows) == pytest.approx(211, abs=1)
    assert max(row.prompt for row in rows) == 14_050
    short = sum(row.prompt + row.output <= 2_048 for row in rows)
    assert short / len(rows) == pytest.approx(0.853, abs=0.001)
    result = simulate(trace.requests()[:3_000])
    assert result.completed + len(result.refused) == 3_000
    assert result.token_states > 90


def test_the_real_mooncake_trace():
    trace = read_trace(shared_data("mooncake_fast25_conversation.jsonl.gz").read_bytes())
    rows = trace.rows
    assert len(rows) == 12_031
    assert sum(row.prompt for row in rows) / len(rows) == pytest.approx(12_035, abs=1)
    assert sum(row.output for row in rows) / len(rows) == pytest.approx(343, abs=1)
    assert len(rows) / trace.seconds == pytest.approx(3.40, abs=0.01)


BROKEN = {
    "empty": (b"", "The file is empty"),
    "blank": (b" \n\n", "The file is empty"),
    "missing column": (
        AZURE.replace("ContextTokens", "Tokens").encode(),
        "The column ContextTokens is missing; a trace needs TIMESTAMP, ContextTokens and "
        "GeneratedTokens.",
    ),
    "a column twice": (
        b"TIMESTAMP,ContextTokens,GeneratedTokens,ContextTokens\n2023-11-16 18:17:03,10,20,30\n",
        "The column ContextTokens is there more than once",
    ),
    "two missing columns": (
        b"TIMESTAMP,a\n1,2\n",
        "The columns ContextTokens and GeneratedTokens are missing",
    ),
    "another CSV": (b"city,people\nBern,134000\n", "This is not a trace"),
    "negative length": (
        AZURE.replace(",44", ",-44").encode(),
        "Line 2: GeneratedTokens is -44; a length cannot be negative.",
    ),
    "wrong order": (
        AZURE.replace("18:15:50", "18:15:40").encode(),
        "Line 3 is earlier than the line before it; sort the trace by time.",
    ),
    "fraction of a token": (AZURE.replace("374", "3.5").encode(), "not a whole number of tokens"),
    "a word": (AZURE.replace("374", "many").encode(), "ContextTokens “many” is not a whole"),
    "too many tokens": (AZURE.replace("374", "9" * 30).encode(), "no request has more than"),
    "no date": (AZURE.replace("2023-11-16 18:15:46.6805900", "soon").encode(), "not a date"),
    "short row": (AZURE.encode() + b"2023-11-16 18:16:00\n", "Line 4 has 1 fields where"),
    "only the header": (AZURE.splitlines()[0].encode(), "no request with tokens in and out"),
    "a picture": (b"\x89PNG\r\n\x1a\n\x00\xff", "not text in UTF-8"),
    "damaged gzip": (b"\x1f\x8b" + b"x" * 30, "gzip file is damaged"),
    "cut gzip": (gzip.compress(AZURE.encode())[:-12], "gzip file ends early"),
    "other JSON": (b'{"a": 1}\n', "Line 1 has no timestamp"),
    "broken JSON": (MOONCAKE.encode() + b'{"timestamp"', "Line 3 is not a JSON object"),
    "JSON list": (MOONCAKE.encode() + b"[1]", "Line 3 is not a JSON object"),
    "negative input": (MOONCAKE.replace("600", "-6").encode(), "input_length is -6"),
    "no number": (MOONCAKE.replace("500", '"x"').encode(), "timestamp “x” is not a number"),
    "not a time": (MOONCAKE.replace("500", "NaN").encode(), "not a time in ms"),
    "true": (MOONCAKE.replace("600", "true").encode(), "not a whole number"),
    "bad ids": (MOONCAKE.replace("[0, 1]", "[0, null]").encode(), "hash_ids is not a list"),
    "few ids": (MOONCAKE.replace("[0, 1]", "[]").encode(), "0 hash_ids for 600 tokens"),
    "back in time": (MOONCAKE.replace("2000", "20").encode(), "Line 2 is earlier"),
}


@pytest.mark.parametrize(("data", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_trace_gets_one_sentence(data, message):
    with pytest.raises(TraceError) as refusal:
        read_trace(data)
    sentence = str(refusal.value)
    assert message in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert len(sentence) < 250


def test_a_huge_file_is_refused_before_it_is_read():
    with pytest.raises(TraceError, match="traces of up to 64 MiB are read"):
        read_trace(bytes(300 * 10**6))


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused():
    with pytest.raises(TraceError, match="unpacks to more than 64 MiB"):
        read_trace(gzip.compress(bytes(66 * 2**20), compresslevel=1))


def test_only_the_first_rows_of_a_long_trace_are_kept():
    assert len(read_trace(AZURE.encode(), max_rows=1).rows) == 1


def test_rows_without_tokens_are_left_out_and_counted():
    trace = read_trace(AZURE.replace(",44", ",0").encode())
    assert (len(trace.rows), trace.num_empty) == (1, 1)


def test_arrivals_are_stretched_to_a_load():
    requests = read_trace(MOONCAKE.encode()).requests(1)
    busy = at_load(requests, load=0.5, requests_per_step=0.04)
    assert [request.arrival for request in busy] == [0, 100]
    with pytest.raises(ValueError, match="must be positive"):
        at_load(requests, 0, 1)


@effort(max_examples=200)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    check_read_or_refused(data)


@effort(max_examples=200)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "timestamp": st.one_of(st.integers(), st.floats(), st.text(max_size=5)),
                "input_length": st.one_of(st.integers(-5, 10**8), st.none(), st.booleans()),
                "output_length": st.one_of(st.integers(0, 2_000), st.floats()),
                "hash_ids": st.one_of(st.none(), st.lists(st.integers(), max_size=4)),
            },
        ),
        max_size=4,
    )
)
def test_any_json_lines_are_read_or_refused(entries):
    check_read_or_refused("\n".join(json.dumps(entry) for entry in entries).encode())


@effort(max_examples=200)
@given(st.lists(st.lists(st.text(max_size=12), min_size=3, max_size=3), max_size=4))
def test_any_rows_under_azures_header_are_read_or_refused(rows):
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens", *(",".join(row) for row in rows)]
    check_read_or_refused("\n".join(lines).encode("utf-8", "surrogatepass"))


def check_read_or_refused(data: bytes) -> None:
    try:
        trace = read_trace(data)
    except TraceError as refusal:
        assert "\n" not in str(refusal)
        return
    assert all(row.prompt > 0 and row.output > 0 for row in trace.rows)
    assert trace.rows[0].seconds == 0
