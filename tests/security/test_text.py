"""Whatever a visitor types, uploads or receives in a link is shown as text, on every page.

Each page gets hostile text into every field, and as every parameter of its link; then every
message, label and help text that Streamlit would read as Markdown is searched for what would act.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.stem for path in (ROOT / "pages").glob("*.py"))
HOSTILE = (
    '<img src="http://zq7.invalid/a.png" onerror="zq7()">',
    "![zq7](http://zq7.invalid/b.png)",
    "[zq7](javascript:zq7)",
    "https://zq7.invalid/c",
    "www.zq7.invalid",
    "a@zq7.invalid",
    ":red[zq7]",
    "$zq7$",
    "`zq7`",
    "**zq7**",
    '{"expr": "zq7"}',
    "{{zq7}}",
)
ALL = " ".join(HOSTILE)

# What acts, once everything behind a backslash is taken away.
ACTS = re.compile(
    r"<[^>]*zq7|\]\([^)]*zq7|\[zq7\]|:\w+\[zq7|\$zq7\$|`[^`]*zq7|\*\*zq7|https?:?//[^\s]*zq7"
    r"|www\.zq7|\w@zq7",
    re.IGNORECASE,
)
ESCAPED = re.compile(r"\\(.)")
FIELDS = ("text_input", "text_area")


def acting(markdown: str) -> list[str]:
    return ACTS.findall(ESCAPED.sub(r"\\", markdown))


def strings(message, path: str = "") -> Iterator[tuple[str, str]]:
    """(field, text) of every string inside a protobuf message."""
    for field, value in message.ListFields():
        here = f"{path}.{field.name}"
        values = value if field.is_repeated else [value]
        for each in values:
            if isinstance(each, str):
                yield here, each
            elif hasattr(each, "ListFields"):
                yield from strings(each, here)


def markdown_of(app) -> Iterator[tuple[str, str]]:
    """What the browser reads as Markdown: bodies of messages, labels, options, help, captions."""
    for node in walk(app._tree):
        proto = getattr(node, "proto", None)
        if proto is None or not hasattr(proto, "ListFields"):
            continue
        kind = type(proto).__name__
        if kind in ("Text", "Code", "BidiComponent", "VegaLiteChart", "Dataframe", "Exception"):
            continue
        for field, text in strings(proto):
            if field.endswith((".body", ".label", ".help", ".text", ".caption", ".delta")):
                if kind in ("TextInput", "TextArea") and not field.endswith((".label", ".help")):
                    continue
                yield f"{kind}{field}", text


def walk(node) -> Iterator:
    yield node
    for child in getattr(node, "children", {}).values():
        yield from walk(child)


def places_in_charts(app) -> Iterator[str]:
    """Where typed text stands in the specifications of charts, but for lists of values.

    A scale's domain, a legend's values and an axis' order hold values, which Vega never reads as
    expressions; anywhere else a text might be one, or a field's name, or a format.
    """
    for element in app.get("vega_lite_chart"):
        for path in _places(json.loads(element.proto.spec)):
            if not re.search(r"\.(scale\.domain|sort|legend\.values)\.\d+$", path):
                yield path


def _places(value, path: str = "") -> Iterator[str]:
    if isinstance(value, str):
        if "zq7" in value:
            yield path
        return
    if not isinstance(value, (dict, list)):
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if "zq7" in str(key):
            yield f"{path}.{key}"
        yield from _places(inner, f"{path}.{key}")


def harm(app) -> list[object]:
    """Everything on the page that would act, or that broke."""
    texts = [(place, text[:200]) for place, text in markdown_of(app) if acting(text)]
    return [*app.exception, *texts, *places_in_charts(app)]


@pytest.mark.parametrize("text", [each for each in HOSTILE if not each.startswith("{")])
def test_the_search_finds_what_acts(text):
    assert acting(text)


@pytest.mark.parametrize("name", PAGES)
def test_hostile_text_in_every_field(open_page, name):
    app = open_page(name)
    for kind in FIELDS:
        for field in list(app.get(kind)):
            if not field.proto.disabled:
                field.set_value(ALL)
    assert harm(app.run()) == []


def test_hostile_answers_to_the_whiteboard(open_page):
    """Short ones: its fields refuse long text before they look at it."""
    app = open_page("whiteboard")
    for hostile in HOSTILE:
        for field in list(app.text_input):
            field.set_value(hostile)
        assert harm(app.run()) == []


@pytest.mark.parametrize("name", PAGES)
def test_hostile_text_in_every_parameter_of_a_link(open_page, name):
    text = (ROOT / "pages" / f"{name}.py").read_text()
    app = open_page(name)
    keys = {
        w.key
        for kind in ("slider", "selectbox", "number_input", "segmented_control", "pills")
        for w in app.get(kind)
        if getattr(w, "key", None)
    }
    keys |= set(re.findall(rf'"({name}_\w+)"', text))
    assert keys or name == "tour"
    assert harm(open_page(name, **dict.fromkeys(keys, ALL))) == []


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_configs(open_page, hostile):
    config = {
        "model_type": hostile,
        "_name_or_path": hostile,
        "num_hidden_layers": 2,
        hostile: 1,
    }
    app = open_page("calculator", calculator_source="Your config")
    for change in ({}, {"model_type": "llama", "num_attention_heads": hostile}):
        app.text_area(key="calculator_paste").set_value(json.dumps(config | change))
        assert harm(app.run()) == []
        assert app.error


def test_hostile_names_of_a_config_that_can_be_sized(open_page):
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "vocab_size": 100,
        "intermediate_size": 128,
        "_name_or_path": "![zq7](http://zq7.invalid/b.png)",
    }
    app = open_page("calculator", calculator_source="Your config")
    app.text_area(key="calculator_paste").set_value(json.dumps(config))
    assert harm(app.run()) == []
    assert app.metric


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_usage_exports(open_page, hostile):
    row = {
        "model": hostile,
        "timestamp": "2026-10-01T00:00:00Z",
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
    good = row | {"model": "claude-sonnet-4-5"}
    data = "\n".join(json.dumps(each) for each in (row, good)).encode()
    app = open_page("prompt_caching")
    app.session_state["prompt_caching_tab"] = "Your own usage"
    app.run()
    name = f"{hostile.replace('/', '_')}.jsonl"
    app.file_uploader(key="prompt_caching_upload").set_value((name, data, "text/plain"))
    assert harm(app.run()) == []
