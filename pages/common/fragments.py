"""Sections that rerun alone."""

from streamlit.runtime.scriptrunner import get_script_run_ctx


def runs_alone() -> bool:
    """True while a fragment reruns without the rest of its page, which stays as it was drawn."""
    context = get_script_run_ctx()
    return context is not None and bool(context.fragment_ids_this_run)
