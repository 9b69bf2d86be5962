"""Sections that rerun alone, or are drawn only when somebody wants them."""

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime.scriptrunner import get_script_run_ctx


def runs_alone() -> bool:
    """True while a fragment reruns without the rest of its page, which stays as it was drawn."""
    context = get_script_run_ctx()
    return context is not None and bool(context.fragment_ids_this_run)


def folded(label: str, keys: Sequence[str]) -> tuple[DeltaGenerator, bool]:
    """A section folded away, and whether to fill it with the widgets that have these keys.

    A browser draws what a closed section holds, so it stays empty until it is opened, or where the
    address sets one of its widgets. The caller uses the defaults of an empty one.
    """
    box = st.expander(label, key=f"{keys[0]}_section", on_change="rerun")
    return box, bool(box.open) or any(key in st.query_params for key in keys)
