import pytest

from kvcore.whiteboard import CHECKLIST, GLOSSARY, QUESTIONS, SOURCES


def test_opens(open_page):
    app = open_page("whiteboard")
    assert not app.exception
    assert app.title[0].value == "Whiteboard"
    assert [metric.value for metric in app.metric] == ["0 of 10", "0", f"0 of {len(CHECKLIST)}"]


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        # 2 × 32 × 8 × 128 × 8,000 × 2 B, and (80 − 16) GB ÷ that.
        ("estimate", "1,048,576,000 bytes", "4 GB"),
        ("users", "61", "76"),
        ("steps", "300", "24"),
        ("sharing", "4x", "8"),
    ],
)
def test_typed_numbers_are_judged(open_page, key, right, wrong):
    app = open_page("whiteboard")
    field = app.text_input(key=f"whiteboard_typed_{key}")
    field.set_value(wrong).run()
    assert app.error[0].value.startswith("Not yet")
    assert not app.success
    field.set_value(right).run()
    assert app.success[0].value.startswith("Right")
    assert not app.error
    field.set_value("some").run()
    assert "type something like" in app.warning[0].value


def test_marks_and_ticks_are_counted(open_page):
    app = open_page("whiteboard")
    app.segmented_control(key="whiteboard_mark_stored").set_value("Got it").run()
    app.segmented_control(key="whiteboard_mark_both").set_value("Partly").run()
    app.checkbox(key="whiteboard_tick_size").check().run()
    assert [metric.value for metric in app.metric] == ["1 of 10", "1", f"1 of {len(CHECKLIST)}"]


def test_a_link_brings_marks_back_and_refuses_bad_ones(open_page):
    app = open_page(
        "whiteboard",
        whiteboard_tick_size="true",
        whiteboard_mark_stored="Got it",
        whiteboard_mark_both="Perfect",
    )
    assert app.metric[0].value == "1 of 10"
    assert app.metric[2].value.startswith("1 of")
    assert len(app.warning) == 1
    assert "one of Got it, Partly, Missed" in app.warning[0].value


def test_everything_says_something():
    keys = [each.key for each in (*QUESTIONS, *CHECKLIST)]
    assert len(set(keys)) == len(keys)
    assert all(len(question.points) >= 2 for question in QUESTIONS)
    assert all(term.means.endswith(".") for term in GLOSSARY)
    for author in ("Vaswani", "Ainslie", "Kwon", "Xiao", "Anthropic", "OpenAI"):
        assert any(author in source.who for source in SOURCES)
