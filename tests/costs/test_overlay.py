"""What the overlay's rows rest on, in words."""

from __future__ import annotations

from kvcore.costs import overlay


def test_sources_are_words():
    litellm, guide = overlay.cited("LL, LD")
    assert litellm.startswith("litellm ")
    assert guide.startswith("LiteLLM docs")
    assert overlay.cited("somewhere else") == ("somewhere else",)


def test_every_row_names_known_sources():
    kinds = ("rules", "minimums", "long_writes", "storage", "uplifts")
    for kind in kinds:
        for row in overlay.overlay()[kind]:
            for words in overlay.cited(row["source"]):
                assert words in overlay.sources().values(), (kind, row["source"])
