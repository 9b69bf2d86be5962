"""GPT-2 with and without a cache, timed live."""

import pages.common.entry  # noqa: F401

# isort: split
from pages.common.page import header

header("Live timing", "The same model writes the same reply twice: with a KV cache and without.")
