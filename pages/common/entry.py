"""The way into a page leads through app.py. Every page calls `through_app` before its imports.

Until `st.navigation` has run once in a server, Streamlit takes a folder named `pages/` for an
app of its old kind: an address that names a page runs that page alone, without app.py. Such a
visit is sent round once more, and then app.py answers. Several first visitors can be on such
ways at the same moment, so each run asks for itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import get_script_run_ctx

_led = ContextVar("led by app.py", default=False)


@contextmanager
def led_by_app() -> Iterator[None]:
    """Around the page that app.py runs."""
    token = _led.set(True)
    try:
        yield
    finally:
        _led.reset(token)


def through_app() -> None:
    """Begin again with app.py if this run of a page came past it.

    Beginning again would forget a pressed button. Whoever presses one has been led here before.
    """
    context = get_script_run_ctx()
    if _led.get() or context is None:
        return
    if any(state.trigger_value for state in context.session_state.get_widget_states()):
        return
    if Path(context.pages_manager.main_script_path).name == "app.py":
        PagesManager.uses_pages_directory = False
        st.rerun()
