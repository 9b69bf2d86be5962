"""KV Cache Workbench: navigation, and nothing that takes time before it."""

import streamlit as st

st.set_page_config(
    page_title="KV Cache Workbench", page_icon="pages/common/icon.svg", layout="wide"
)

# Off in the configuration, so that Streamlit's own menu of the folder never shows.
st.set_option("client.showSidebarNavigation", True)

SECTIONS = {
    "See it run": [("live_timing", "Live timing"), ("cache_lab", "Cache lab")],
    "Size it": [("calculator", "Memory calculator"), ("gqa", "Sharing heads")],
    "Manage it": [("paging", "Paging"), ("cache_quality", "Cache quality")],
    "Pay for it": [("prompt_caching", "Prompt caching bill")],
    "Take it further": [("server", "Your own server"), ("whiteboard", "Whiteboard")],
}

home = st.Page("pages/tour.py", title="Guided tour", url_path="home", default=True)


def tour() -> None:
    """The home page has no address but "/": whoever writes "/tour" is sent there."""
    st.switch_page(home, query_params=st.query_params.to_dict())


page = st.navigation(
    {
        "": [home, st.Page(tour, title="Guided tour", url_path="tour", visibility="hidden")],
        **{
            section: [
                st.Page(f"pages/{name}.py", title=title, url_path=name) for name, title in named
            ]
            for section, named in SECTIONS.items()
        },
    }
)

# Imported only now, and light: the menu is drawn before it.
from kvcore.settings import SettingsError, settings  # noqa: E402
from pages.common.entry import led_by_app  # noqa: E402
from pages.common.first import alone_at_first  # noqa: E402

try:
    settings()
except SettingsError as error:
    st.error(str(error))
    st.stop()
with led_by_app(), alone_at_first(page.url_path):
    page.run()
