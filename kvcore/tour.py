"""The frames behind the guided tour's pictures: counting, no measuring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

STEPS = 24

WITHOUT, WITH = "Without notes", "With notes"
RUN, READ = "run through the model", "read from the notes"
KEY, VALUE, QUERY = "Key", "Value", "Query"
FILED, USED_ONCE, GONE = "filed, kept", "asked now", "asked once, thrown away"


def pieces_run(steps: int = STEPS) -> pd.DataFrame:
    """Pieces run through the model after each step, both ways, from an empty start.

    Without notes step n runs n pieces, so the total is n(n + 1) / 2; with notes each step runs one.
    Columns: step, way, this_step, total.
    """
    rows = []
    for step in range(1, steps + 1):
        rows.append((step, WITHOUT, step, step * (step + 1) // 2))
        rows.append((step, WITH, 1, step))
    return pd.DataFrame(rows, columns=["step", "way", "this_step", "total"])


def one_step(step: int, words: Sequence[str]) -> pd.DataFrame:
    """What happens to each piece in step `step` (from 1), both ways.

    Columns: piece (from 1), word, way, what. The piece written in a step is that step's own.
    Raises ValueError for a step that has no word.
    """
    if not 1 <= step <= len(words):
        raise ValueError(f"there are {len(words)} steps, not {step}")
    rows = []
    for piece in range(1, step + 1):
        word = _shown(words[piece - 1])
        rows.append((piece, word, WITHOUT, RUN))
        rows.append((piece, word, WITH, RUN if piece == step else READ))
    return pd.DataFrame(rows, columns=["piece", "word", "way", "what"])


def cards(step: int, words: Sequence[str]) -> pd.DataFrame:
    """The key, value and query of every piece up to `step`: which are kept, which are gone.

    Columns: piece, word, card, state.
    """
    rows = []
    for piece in range(1, step + 1):
        word = _shown(words[piece - 1])
        rows.append((piece, word, KEY, FILED))
        rows.append((piece, word, VALUE, FILED))
        rows.append((piece, word, QUERY, USED_ONCE if piece == step else GONE))
    return pd.DataFrame(rows, columns=["piece", "word", "card", "state"])


@dataclass(frozen=True)
class Fix:
    """A way to make the drawer smaller, and the share of the bytes it leaves."""

    name: str
    keeps: float
    why: str


def after_fixes(num_bytes: int, fixes: Sequence[Fix]) -> pd.DataFrame:
    """One request's cache as each fix is applied on top of those before.

    Columns: stage (in order), num_bytes, why. The first row is the cache as it was.
    """
    rows = [("As it was", num_bytes, "nothing shared, nothing dropped, 16 bits")]
    left = float(num_bytes)
    for fix in fixes:
        left *= fix.keeps
        rows.append((fix.name, round(left), fix.why))
    return pd.DataFrame(rows, columns=["stage", "num_bytes", "why"])


def _shown(word: str) -> str:
    return word.replace("\n", "⏎").strip() or "␣"
