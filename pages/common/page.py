"""What every page has: a title with its sentence, an export, a link, sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from kvcore import export
from pages.common.text import as_text


def header(title: str, sentence: str) -> None:
    st.title(title)
    st.markdown(sentence)


def refuse(message: str, typed: object | None = None) -> None:
    """One clear sentence about bad input, shown as text: it may quote what the user gave.

    `typed` is the user's own text, put behind it.
    """
    shown = f" ({as_text(typed)})" if typed is not None else ""
    st.error(f"{as_text(message, 600)}{shown}")


def export_row(
    name: str,
    frame: pd.DataFrame | Callable[[], pd.DataFrame],
    settings: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
) -> None:
    """Buttons for the frame as CSV, and as JSON with the settings that made it.

    What is worked out for the file alone comes as a function, called when a button is pressed.
    """

    def rows() -> pd.DataFrame:
        return frame() if callable(frame) else frame

    def made_with() -> Mapping[str, Any]:
        return settings() if callable(settings) else settings

    row = st.container(horizontal=True)
    row.download_button(
        "Download CSV",
        lambda: export.to_csv(rows()),
        file_name=f"{name}.csv",
        mime="text/csv",
        on_click="ignore",
        key=f"{name}_csv",
    )
    row.download_button(
        "Download JSON",
        lambda: export.to_json(name, rows(), made_with()),
        file_name=f"{name}.json",
        mime="application/json",
        on_click="ignore",
        key=f"{name}_json",
    )


def share_link(prefix: str) -> None:
    """The address that brings this page back as it is: the parameters that begin with `prefix`."""
    mine = {key: st.query_params.get_all(key) for key in st.query_params if key.startswith(prefix)}
    address = (st.context.url or "").split("?")[0]
    query = urlencode(mine, doseq=True)
    st.caption("This address brings the page back as it is now")
    st.code(f"{address}?{query}" if query else address, language=None, wrap_lines=True)


def sources(lines: Sequence[str]) -> None:
    """Where the numbers come from, one line each."""
    st.markdown("\n".join(f"- {line}" for line in lines))
