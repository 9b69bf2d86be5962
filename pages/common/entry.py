"""The way into a page leads through app.py. Every page imports this before anything else.

Until `st.navigation` has run once in a server, Streamlit takes a folder named `pages/` for an
app of its old kind: an address that names a page would run that page alone, without app.py. So
the first such visit is sent round once more, and then app.py answers.
"""

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager

if PagesManager.uses_pages_directory:
    PagesManager.uses_pages_directory = False
    st.rerun()
