"""Pages, entered through app.py as in tests/pages."""

from tests.pages.conftest import _fresh_caches, open_page

__all__ = ["_fresh_caches", "open_page"]
