"""What breaks my cache: one pair of prompts for every cause."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.costs.diagnosis import diagnose, worth_a_month
from kvcore.costs.tokens import LARGEST_TEXT, TextTooLong, common_prefix, counter_for
from kvcore.costs.workload import Workload

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
RULES = "Answer every question of the customer briefly and cite the handbook where it helps. " * 90
TOOL_A = {"name": "search", "description": "Looks something up. " * 40}
TOOL_B = {"name": "send", "description": "Sends a letter. " * 40, "strict": True}
ASKED = [{"role": "user", "content": "Where is my parcel?"}]
ANSWERED = [
    *ASKED,
    {"role": "assistant", "content": "On its way."},
    {"role": "user", "content": "Thank you."},
]


def body(messages=None, tools=(TOOL_A, TOOL_B), system=RULES, model="claude-opus-5", **settings):
    parts = {"model": model, "tools": list(tools), "system": system}
    return json.dumps({**parts, "messages": messages or ASKED, **settings})


BROKEN = [
    ("timestamp", f"Now: 2026-11-29T14:00:01Z\n{RULES}", f"Now: 2026-11-29T14:05:09Z\n{RULES}"),
    ("timestamp", f"It is 14:05.\n{RULES}", f"It is 14:06.\n{RULES}"),
    ("timestamp", f"Today is 28 November 2026.\n{RULES}", f"Today is 29 November 2026.\n{RULES}"),
    ("timestamp", f"Today is Monday.\n{RULES}", f"Today is Friday.\n{RULES}"),
    ("timestamp", f"ts=1795960800123\n{RULES}", f"ts=1795960999456\n{RULES}"),
    (
        "random id",
        f"Trace 550e8400-e29b-41d4-a716-446655440000\n{RULES}",
        f"Trace 660e8400-e29b-41d4-a716-446655440000\n{RULES}",
    ),
    ("random id", f"req_8Hq2LmPz\n{RULES}", f"req_Zk49TrWa\n{RULES}"),
    ("random id", f"digest 9f86d081884c7d65\n{RULES}", f"digest 1b4f0e9851971998\n{RULES}"),
    ("user name", f"User: Alice Smith\n{RULES}", f"User: Bob Jones\n{RULES}"),
    ("user name", f"Hello Alice, welcome.\n{RULES}", f"Hello Robert, welcome.\n{RULES}"),
    ("user name", f"For alice@example.org\n{RULES}", f"For bob@example.org\n{RULES}"),
    ("counter", f"Message number 12 of today\n{RULES}", f"Message number 13 of today\n{RULES}"),
    ("white space", f"Rules:\r\n{RULES}", f"Rules:\n{RULES}"),
    (
        "JSON keys reordered",
        'State: {"cart": 1, "page": 2}\n' + RULES,
        'State: {"page": 2, "cart": 1}\n' + RULES,
    ),
    ("text changed", f"Be friendly.\n{RULES}", f"Stay formal.\n{RULES}"),
    ("tools reordered", body(), body(ANSWERED, tools=(TOOL_B, TOOL_A))),
    (
        "JSON keys reordered",
        body(),
        body(ANSWERED, tools=(TOOL_A, dict(reversed(list(TOOL_B.items()))))),
    ),
    (
        "tools reordered",
        body(),
        body(ANSWERED, tools=(dict(reversed(list(TOOL_B.items()))), TOOL_A)),
    ),
    ("tools changed", body(), body(ANSWERED, tools=(TOOL_A,))),
    ("system text changed", body(), body(ANSWERED, system="Be brief. " + RULES)),
    ("model switch", body(), body(ANSWERED, model="claude-sonnet-5")),
    ("setting changed", body(), body(ANSWERED, tool_choice={"type": "any"})),
    (
        "earlier message changed",
        body(ANSWERED),
        body([{"role": "user", "content": "Where is it?"}, *ANSWERED[1:], *ASKED]),
    ),
    (
        "timestamp",
        body(system=f"It is 2026-11-29 14:00. {RULES}"),
        body(ANSWERED, system=f"It is 2026-11-29 14:05. {RULES}"),
    ),
]


@pytest.mark.parametrize(
    ("kind", "first", "second"), BROKEN, ids=[f"{i}-{c[0]}" for i, c in enumerate(BROKEN)]
)
def test_the_likely_cause_is_named(kind, first, second):
    found = diagnose(first, second, model="claude-opus-5", provider="anthropic")
    assert found.breaks
    assert found.cause.kind == kind
    assert found.cause.fix.endswith(".")
    assert kind == "setting changed" or found.shared_tokens < found.second_tokens


def in_one_message(text, system=None):
    parts = {"messages": [{"role": "user", "content": text}]}
    return json.dumps({"system": system, **parts} if system else parts)


@pytest.mark.parametrize("system", [None, "You are a clerk."])
@pytest.mark.parametrize(
    ("kind", "first", "second", "breaks"),
    [
        ("timestamp", f"Now 14:00. {RULES} What is A?", f"Now 14:05. {RULES} Why is B?", True),
        ("text changed", f"Be kind. {RULES}", f"Stay cool. {RULES}", True),
        ("harmless", f"{RULES} What is A?", f"{RULES} Why is B?", False),
    ],
)
def test_a_prompt_kept_in_one_long_message_is_looked_into(kind, first, second, breaks, system):
    found = diagnose(in_one_message(first, system), in_one_message(second, system))
    assert found.breaks is breaks
    assert found.cause.kind == kind or not breaks
    assert not breaks or found.fixed_tokens > 1300


UNBROKEN = [
    ("identical", RULES, RULES),
    ("continues", RULES, RULES + "And?"),
    ("ending differs", RULES + "What is A?", RULES + "Why is B?"),
    ("continues", body(), body(ANSWERED)),
    ("continues", body(), body([{"role": "user", "content": "Another question"}])),
]


@pytest.mark.parametrize(("kind", "first", "second"), UNBROKEN)
def test_what_is_as_it_should_be_is_no_fault(kind, first, second):
    found = diagnose(first, second, model="claude-opus-5", provider="anthropic")
    assert (found.breaks, found.cause.kind) == (False, kind)
    assert found.fixed_tokens is None
    assert worth_a_month(found, "claude-opus-5", Workload(), at=NOW) == 0


def test_the_shared_prefix_is_counted_in_the_models_own_tokens():
    first, second = "alpha beta gamma " + RULES, "alpha beta delta " + RULES
    found = diagnose(first, second, model="gpt-4o", provider="openai")
    counter = counter_for("gpt-4o")
    assert counter.exact
    expected = common_prefix(counter.encode(first), counter.encode(second))
    assert found.shared_tokens == expected == 2
    assert found.first_tokens == counter.count(first)


def test_the_providers_minimum_is_applied_before_and_after_the_fix():
    first, second = f"Now: 14:00\n{RULES}", f"Now: 14:05\n{RULES}"
    opus = diagnose(first, second, model="claude-opus-5", provider="anthropic")
    assert opus.over_minimum is False
    assert opus.minimum_tokens == 512
    assert opus.fixed_cacheable_tokens == opus.fixed_tokens > 1300
    haiku = diagnose(first, second, model="claude-haiku-4-5", provider="anthropic")
    assert haiku.minimum_tokens == 4096
    assert haiku.fixed_cacheable_tokens == 0


def test_a_fix_is_worth_what_the_bill_falls_by():
    first, second = f"Now: 14:00\n{RULES}", f"Now: 14:05\n{RULES}"
    found = diagnose(first, second, model="claude-opus-5", provider="anthropic")
    worth = worth_a_month(found, "claude-opus-5", Workload(requests_per_hour=3600), at=NOW)
    requests = 3600 * 10 * 22
    most = requests * found.fixed_tokens * (5 - 0.5) / 1e6
    assert 0.99 * most < float(worth) <= most
    haiku = diagnose(first, second, model="claude-haiku-4-5", provider="anthropic")
    assert worth_a_month(haiku, "claude-haiku-4-5", Workload(), at=NOW) == 0


def test_several_causes_are_named_in_turn():
    first = f"Trace 550e8400-e29b-41d4-a716-446655440000 at 12:01\nUser: Alice\n{RULES}"
    second = f"Trace 660e8400-e29b-41d4-a716-446655440000 at 13:02\nUser: Bob\n{RULES}"
    found = diagnose(first, second, model="claude-opus-5", provider="anthropic")
    assert [cause.kind for cause in found.causes] == ["random id", "timestamp", "user name"]
    assert found.fixed_tokens > 1300


def test_the_first_difference_is_pointed_at():
    found = diagnose(f"a\nNow: 14:00\n{RULES}", f"a\nNow: 14:05\n{RULES}")
    assert found.where == "the prompt, line 2, character 10,"
    assert "14:05" in found.second_excerpt
    assert found.cacheable_tokens is None
    in_body = diagnose(body(), body(ANSWERED, system="Be brief. " + RULES))
    assert in_body.where.startswith("system, line 1, character 1")


def test_marks_that_place_a_breakpoint_are_no_difference():
    marked = [{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}]
    plain = [{"type": "text", "text": RULES}]
    assert not diagnose(body(system=marked), body(ANSWERED, system=plain)).breaks


def test_files_are_compared_but_not_counted():
    def asked(fill):
        image = {"type": "image", "source": {"type": "base64", "data": fill * 20_000}}
        text = {"type": "text", "text": "What is this?"}
        return body([{"role": "user", "content": [image, text]}, *ANSWERED[1:]])

    same = diagnose(asked("iVBORw0K"), asked("iVBORw0K"))
    assert same.shared_tokens < 3000
    assert "not counted" in same.counter.sentence
    other = diagnose(asked("iVBORw0K"), asked("R0lGODlh"))
    assert other.breaks
    assert other.where.startswith("messages[0].content[0]")


def test_other_providers_bodies_are_laid_out_too():
    def openai(text):
        return json.dumps({"model": "gpt-4o", "messages": [{"role": "system", "content": text}]})

    def gemini(text):
        return json.dumps(
            {
                "systemInstruction": {"parts": [{"text": text}]},
                "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            }
        )

    for layout in (gemini, openai):
        found = diagnose(layout(f"At 14:00 {RULES}"), layout(f"At 14:05 {RULES}"))
        assert found.shared_tokens < 20


@pytest.mark.parametrize(
    ("model", "vocabulary", "exact"),
    [
        ("gpt-4o", "o200k_base", True),
        ("gpt-5.5", "o200k_base", True),
        ("gpt-4-turbo", "cl100k_base", True),
        ("gpt-3.5-turbo", "cl100k_base", True),
        ("openai/gpt-oss-120b", "o200k_harmony", True),
        ("gpt-6.1-sol", "o200k_base", False),
        ("claude-opus-5", "o200k_base", False),
        ("gemini-3.8-flash", "o200k_base", False),
        (None, "o200k_base", False),
    ],
)
def test_every_count_says_how_exact_it_is(model, vocabulary, exact):
    counter = counter_for(model)
    assert (counter.vocabulary, counter.exact) == (vocabulary, exact)
    assert ("estimate" in counter.sentence) is not exact


def test_known_counts():
    """Ids published with OpenAI's tiktoken for its two vocabularies."""
    assert counter_for("gpt-4").encode("hello world") == [15339, 1917]
    assert counter_for("gpt-4o").encode("hello world") == [24912, 2375]
    assert counter_for("gpt-4o").count("<|endoftext|>") > 1


def test_a_text_too_long_is_refused():
    with pytest.raises(TextTooLong, match="characters"):
        diagnose("x" * (LARGEST_TEXT + 1), "y")


@given(st.text(max_size=300), st.text(max_size=300))
@settings(max_examples=60)
def test_any_two_texts_can_be_compared(first, second):
    found = diagnose(first, second)
    assert 0 <= found.shared_tokens <= min(found.first_tokens, found.second_tokens)
    assert found.sentence


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_common_prefix(first, second):
    length = common_prefix(first, second)
    assert first[:length] == second[:length]
    assert length == min(len(first), len(second)) or first[length] != second[length]
