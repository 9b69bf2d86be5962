"""What holds for every page, whatever it shows."""

import json
import subprocess
import sys
from contextlib import contextmanager
from functools import lru_cache
from os.path import commonprefix
from pathlib import Path

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from pages.common import first, query
from pages.common.links import TITLES

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.stem for path in (ROOT / "pages").glob("*.py"))
MAX_MARKS = 5_000
MAX_BYTES = 500_000
WIDGETS = (
    "slider",
    "select_slider",
    "number_input",
    "selectbox",
    "text_area",
    "text_input",
    "checkbox",
    "toggle",
    "multiselect",
    "segmented_control",
    "pills",
    "radio",
)


@lru_cache
def first_visit(name):
    """One run of each page serves all the tests that only look."""
    return (
        AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
        .run()
        .switch_page(f"pages/{name}.py")
        .run()
    )


def charts(app):
    return [element.proto for element in app.get("vega_lite_chart")]


def widgets(app):
    return [widget for kind in WIDGETS for widget in app.get(kind)]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_entered_through_app_py(name):
    text = (ROOT / "pages" / f"{name}.py").read_text()
    lines = [line for line in text.split('"""')[2].splitlines() if line]
    assert lines[:2] == ["from pages.common.entry import through_app", "through_app()"]


def test_every_visit_of_a_page_is_led_by_app_py(monkeypatch):
    """AppTest begins each run as a server does before `st.navigation` has run."""
    led = []

    @contextmanager
    def noted(page):
        led.append(page)
        yield

    visit = first_visit.__wrapped__
    visit("whiteboard")
    monkeypatch.setattr(first, "alone_at_first", noted)
    visit("gqa")
    visit("paging")
    assert [page for page in led if page] == ["gqa", "paging"]


def test_every_page_has_its_title_in_the_menu():
    menu = (ROOT / "app.py").read_text()
    for name in set(PAGES) - {"tour"}:
        assert f'("{name}", "{TITLES[name]}")' in menu
    assert f'"pages/tour.py", title="{TITLES["tour"]}"' in menu


@pytest.mark.parametrize("name", PAGES)
def test_a_first_visit_shows_something_true(name):
    app = first_visit(name)
    assert not app.exception
    assert not app.error
    assert not app.warning
    assert len(app.title) == 1
    assert app.metric or charts(app), "a first visit shows a number or a picture"


@pytest.mark.parametrize("name", PAGES)
def test_charts_are_small_and_say_what_they_show(name):
    for proto in charts(first_visit(name)):
        assert proto.alt.strip().endswith("."), "alt states the takeaway in a sentence"
        size = len(proto.data.data) + len(proto.spec)
        assert size < MAX_BYTES
        if proto.data.data:
            assert pa.ipc.open_stream(proto.data.data).read_all().num_rows <= MAX_MARKS
        drawn = json.loads(proto.spec)
        drawn.pop("config", None)
        assert "#" not in json.dumps(drawn), "colours come from the theme"


@pytest.mark.parametrize("name", PAGES)
def test_every_widget_has_a_label_and_an_explanation(name):
    for widget in widgets(first_visit(name)):
        assert widget.label.strip(), widget
        assert widget.help or len(widget.label) > 20, widget.label


def test_keys_of_a_page_begin_alike_and_unlike_those_of_others():
    """Parameters belong to the app, so a key used on two pages would share its value."""
    prefixes = {}
    for name in PAGES:
        keys = [widget.key for widget in widgets(first_visit(name)) if widget.key]
        prefixes[name] = commonprefix(keys) if keys else f"{name}_"
        assert "_" in prefixes[name], keys
    starts = [prefix.split("_")[0] + "_" + prefix.split("_")[1][:3] for prefix in prefixes.values()]
    assert len(set(starts)) == len(starts), prefixes


@pytest.mark.parametrize("value", ["inf", "", ["no", "such"]], ids=str)
@pytest.mark.parametrize("name", PAGES)
def test_a_link_of_odd_values_breaks_nothing_and_each_is_refused(name, value):
    """Streamlit trips over some of them, drops others without a word and reads lists in part."""
    bound = [widget for widget in widgets(first_visit(name)) if widget.proto.query_param_key]
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120).run()
    app.switch_page(f"pages/{name}.py")
    app.query_params.update({widget.key: value for widget in bound})
    app.run()
    assert not app.exception
    if value == "":
        return
    said = " ".join(warning.value for warning in app.warning)
    for widget in bound:
        if not takes_any_text(widget):
            assert f"sets {query.name_of(widget.key)} to" in said, widget.key


def takes_any_text(widget):
    return widget.type.startswith("text_") or getattr(widget.proto, "accept_new_options", False)


def test_no_page_loads_torch_before_a_model_is_asked_for():
    code = (
        "import sys\n"
        "from streamlit.testing.v1 import AppTest\n"
        "app = AppTest.from_file('app.py', default_timeout=120).run()\n"
        f"for name in {PAGES!r}:\n"
        "    app.switch_page(f'pages/{name}.py').run()\n"
        "    assert not app.exception, (name, app.exception)\n"
        "    assert 'torch' not in sys.modules, name\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
