"""Pages under Streamlit's AppTest, entered through app.py as a visitor would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _fresh_caches() -> Iterator[None]:
    yield
    st.cache_data.clear()
    st.cache_resource.clear()


@pytest.fixture
def open_page() -> Callable[..., AppTest]:
    """`open_page("calculator", calculator_layers="32")` runs that page with those parameters."""

    def run(name: str, *, timeout: float = 60, **query: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=timeout).run()
        app.switch_page(f"pages/{name}.py")
        for key, value in query.items():
            app.query_params[key] = value
        return app.run()

    return run
