import pytest
from streamlit.testing.v1 import AppTest

from pages.common.query import Choice, Number, Several, Switch, Text
from pages.common.text import as_text


@pytest.mark.parametrize(
    ("rule", "value", "good"),
    [
        (Number(8, 128), "32", True),
        (Number(8, 128), "32.0", True),
        (Number(8, 128), "7", False),
        (Number(8, 128), "129", False),
        (Number(8, 128), "32.5", False),
        (Number(8, 128), "many", False),
        (Number(8, 128), "nan", False),
        (Number(8, 128), "inf", False),
        (Number(0, 2, whole=False), "0.7", True),
        (Choice(("gpt2", "smollm2")), "gpt2", True),
        (Choice(("gpt2", "smollm2")), "gpt5", False),
        (Text(3), "abc", True),
        (Text(3), "abcd", False),
        (Several(("gpt2", "smollm2")), "gpt2", True),
        (Several(("gpt2", "smollm2")), "", True),
        (Several(("gpt2", "smollm2")), "gpt5", False),
        (Switch(), "True", True),
        (Switch(), "1", False),
    ],
)
def test_rules_tell_good_from_bad(rule, value, good):
    assert (rule.problem(value) is None) is good


@pytest.mark.parametrize(
    "hostile",
    [
        "[click](http://example.org)",
        "![](http://example.org/x.png)",
        "<script>alert(1)</script>",
        "$\\frac{1}{2}$",
        ":red[alarm]",
        "**bold** `code`",
    ],
)
def test_typed_text_keeps_no_markdown(hostile):
    shown = as_text(hostile)
    assert shown.replace("\\", "").replace("\u2060", "") == hostile.replace("\\", "")
    for mark in "[](){}<>!$*`:":
        assert shown.count(mark) == shown.count("\\" + mark)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("num_hidden_layers is 1,024.5 (of 3)", r"num_hidden_layers is 1,024.5 \(of 3\)"),
        ("_this_", r"\_this\_"),
        ("# head", r"\# head"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("https://a.example", "https\\:\u2060//a.example"),
        ("WWW.a.example", "WWW\u2060.a.example"),
        ("me@a.example", "me\\@\u2060a.example"),
    ],
)
def test_only_what_markdown_would_act_on_is_escaped(typed, shown):
    assert as_text(typed) == shown


def test_text_is_escaped_once():
    assert as_text(as_text("*a*")) == r"\*a\*"


def test_typed_text_is_one_short_line():
    assert as_text("a\nb\t c") == "a b c"
    assert len(as_text("a" * 1000)) == 200


def _page_with_a_rule():
    from pages.common.query import Number, check

    check({"demo_layers": Number(8, 128)})


def test_a_bad_parameter_gets_its_sentence():
    app = AppTest.from_function(_page_with_a_rule)
    app.query_params["demo_layers"] = "[x](y)"
    app.run()
    assert len(app.warning) == 1
    assert "whole number from 8 to 128" in app.warning[0].value
    assert "\\[x\\]" in app.warning[0].value


def test_a_good_parameter_gets_none():
    app = AppTest.from_function(_page_with_a_rule)
    app.query_params["demo_layers"] = "64"
    app.run()
    assert not app.warning


def _page_with_a_named_choice():
    import streamlit as st

    from pages.common.query import Named, check

    names = {"a": "The first", 4_000: "4,000"}
    check({"demo_choice": Named(names)})
    st.selectbox(
        "Choice", list(names), format_func=names.get, key="demo_choice", bind="query-params"
    )


@pytest.mark.parametrize(
    ("value", "option", "warnings"),
    [("4000", 4_000, 0), ("4,000", 4_000, 0), ("a", "a", 0), ("The first", "a", 0), ("b", "a", 1)],
)
def test_a_link_may_carry_the_option_or_its_name(value, option, warnings):
    app = AppTest.from_function(_page_with_a_named_choice)
    app.query_params["demo_choice"] = value
    app.run()
    assert app.selectbox(key="demo_choice").value == option
    if option == 4_000:
        assert app.query_params["demo_choice"] == "4,000"
    assert len(app.warning) == warnings


def _page_with_many_widgets():
    import streamlit as st

    from pages.common.query import Choice, Number, Several, Switch, check

    check(
        {
            "prompt_caching_seed_tokens": Number(0, 2**31 - 1),
            "prompt_caching_way": Choice(("a", "b")),
            "prompt_caching_models": Several(("a", "b")),
            "prompt_caching_log": Switch(),
        }
    )
    key, bound = "prompt_caching_", {"bind": "query-params"}
    st.number_input("Seed", 0, 2**31 - 1, 7, key=f"{key}seed_tokens", **bound)
    st.segmented_control("Way", ["a", "b"], default="a", required=True, key=f"{key}way", **bound)
    st.multiselect("Models", ["a", "b"], default="b", key=f"{key}models", **bound)
    st.toggle("Log", key=f"{key}log", **bound)


@pytest.mark.parametrize(
    ("key", "values", "should"),
    [
        ("seed_tokens", ["inf"], "a whole number from 0 to 2,147,483,647"),
        ("seed_tokens", ["1e400"], "a whole number"),
        ("seed_tokens", [""], "a whole number"),
        ("seed_tokens", ["-5", "5"], "a single value"),
        ("way", [""], "one of a, b"),
        ("way", ["c", "b"], "a single value"),
        ("models", ["c", "a"], "one of a, b"),
        ("log", ["perhaps"], "true or false"),
    ],
)
def test_what_streamlit_would_trip_over_or_drop_is_refused(key, values, should):
    app = AppTest.from_function(_page_with_many_widgets)
    app.query_params[f"prompt_caching_{key}"] = values
    app.run()
    assert not app.exception
    (warning,) = app.warning
    assert f"sets {key.replace('_', ' ')} to" in warning.value
    assert f"which is not {should}" in warning.value
    assert app.number_input[0].value == 7
    assert app.multiselect[0].value == (["a"] if key == "models" else ["b"])


def test_a_link_may_empty_a_list():
    app = AppTest.from_function(_page_with_many_widgets)
    app.query_params["prompt_caching_models"] = ""
    app.run()
    assert not app.warning
    assert app.multiselect[0].value == []
