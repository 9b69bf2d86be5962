"""A page with the widgets of another page and nothing else; served by bench_app for comparison.

`?page=<name>` picks the list of widgets, which bench_app has read off the real page and left in
the file that BARE_WIDGETS names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import streamlit as st


def draw(widget: dict[str, Any]) -> None:
    kind, label = widget["kind"], widget["label"] or "x"
    bound = {"key": widget["key"], "help": "One sentence.", "bind": "query-params"}
    if kind == "slider":
        low, high, step = widget["min"], widget["max"], widget["step"]
        st.slider(label, low, high, low, step, **bound)
    elif kind == "number_input":
        st.number_input(label, value=1.0, **bound)
    elif kind in ("selectbox", "radio"):
        st.selectbox(label, widget["options"], **bound)
    elif kind == "multiselect":
        st.multiselect(label, widget["options"], **bound)
    elif kind == "button_group":
        st.segmented_control(label, widget["options"], **bound)
    elif kind == "checkbox":
        st.toggle(label, **bound)
    elif kind == "text_input":
        st.text_input(label, **bound)
    elif kind == "text_area":
        st.text_area(label, **bound)
    elif kind == "file_uploader":
        st.file_uploader(label, key=widget["key"])
    else:
        st.button(label, key=widget["key"])


st.title("Bare")
for each in json.loads(Path(os.environ["BARE_WIDGETS"]).read_text())[st.query_params["page"]]:
    draw(each)
