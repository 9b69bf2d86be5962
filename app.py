"""KV Cache Workbench: navigation, and nothing that takes time before it."""

import streamlit as st

st.set_page_config(
    page_title="KV Cache Workbench", page_icon="pages/common/icon.svg", layout="wide"
)

# Off in the configuration, so that Streamlit's own menu of the folder never shows.
st.set_option("client.showSidebarNavigation", True)

SECTIONS = {
    "": [("tour", "Guided tour")],
    "See it run": [("live_timing", "Live timing"), ("cache_lab", "Cache lab")],
    "Size it": [("calculator", "Memory calculator"), ("gqa", "Sharing heads")],
    "Manage it": [("paging", "Paging"), ("cache_quality", "Cache quality")],
    "Pay for it": [("prompt_caching", "Prompt caching bill")],
    "Take it further": [("server", "Your own server"), ("whiteboard", "Whiteboard")],
}

page = st.navigation(
    {
        section: [
            st.Page(f"pages/{name}.py", title=title, url_path=name, default=name == "tour")
            for name, title in pages
        ]
        for section, pages in SECTIONS.items()
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
