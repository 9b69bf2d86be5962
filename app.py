"""KV Cache Workbench: navigation, and nothing that takes time before it."""

import streamlit as st

st.set_page_config(
    page_title="KV Cache Workbench", page_icon="pages/common/icon.svg", layout="wide"
)

page = st.navigation(
    {
        "See it": [
            st.Page("pages/live_timing.py", title="Live timing", url_path="live_timing"),
        ],
    }
)
page.run()
