"""The pages by name, and the links between them."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

TITLES = {
    "tour": "Guided tour",
    "live_timing": "Live timing",
    "cache_lab": "Cache lab",
    "calculator": "Memory calculator",
    "gqa": "Sharing heads",
    "paging": "Paging",
    "cache_quality": "Cache quality",
    "prompt_caching": "Prompt caching bill",
    "server": "Your own server",
    "whiteboard": "Whiteboard",
}


def lab(
    page: str, label: str | None = None, query: Mapping[str, str] | None = None, help: str = ""
) -> None:
    """A link to another page, with the settings it should open with."""
    st.page_link(
        f"pages/{page}.py",
        label=label or TITLES[page],
        icon=":material/arrow_forward:",
        query_params=dict(query or {}),
        help=help or None,
    )
