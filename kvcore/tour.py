"""The frames behind the guided tour's pictures: counting and sizing, no measuring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

import pandas as pd
import pyarrow as pa

from kvcore import units
from kvcore.capacity import Deployment, Users, users_at, weight_bytes
from kvcore.catalog import GPUS, MODELS
from kvcore.costs.estimate import ModelEstimate, estimate
from kvcore.costs.workload import Workload, conversation
from kvcore.decoding import run_frames
from kvcore.decoding.run import recorded

STEPS = 24

WITHOUT, WITH = "Without notes", "With notes"
RUN, READ = "run through the model", "card read"
KEY, VALUE, QUERY = "Key", "Value", "Query"
FILED, USED_ONCE, GONE = "filed, kept", "asked now", "asked once, thrown away"


@lru_cache
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

    A key and its value are the card of the piece.

    Columns: piece, word, part, state.
    """
    rows = []
    for piece in range(1, step + 1):
        word = _shown(words[piece - 1])
        rows.append((piece, word, KEY, FILED))
        rows.append((piece, word, VALUE, FILED))
        rows.append((piece, word, QUERY, USED_ONCE if piece == step else GONE))
    return pd.DataFrame(rows, columns=["piece", "word", "part", "state"])


DRAWERS = (
    "OPT-13B",
    "Llama-2-7B",
    "Llama-3.1-70B",
    "Gemma-2-9B",
    "Llama-3.1-8B",
    "DeepSeek-V3",
    "Qwen2.5-7B-Instruct",
    "GPT-2",
    "gpt-oss-20b",
)
"""Models named in the tour, from the largest drawer to the smallest."""

GPU = "H100 80 GB SXM"


HOSTED = "claude-sonnet-5"


@lru_cache(maxsize=4)
def hosted(day: date) -> ModelEstimate:
    """What caching saves with one hosted model and everyday traffic, at the prices of `day`."""
    return estimate([HOSTED], at=day).models[0]


@lru_cache
def recorded_times() -> pa.Table:
    """Time for each new token of the recorded run, both ways."""
    return run_frames.step_times(recorded())


@lru_cache
def bytes_per_token(names: tuple[str, ...] = DRAWERS) -> pd.DataFrame:
    """What each token adds for ever, in 16 bits. Columns: model, kib, shown."""
    growth = [MODELS[name].architecture.growth_bytes() for name in names]
    return pd.DataFrame(
        {
            "model": list(names),
            "kib": [num_bytes / units.KIB for num_bytes in growth],
            "shown": [f"{num_bytes / units.KIB:,.1f} KiB" for num_bytes in growth],
        }
    )


def users_beside(name: str, tokens: int) -> Users:
    """Users of a model who each hold `tokens` on one `GPU`, weights in 16 bits, no overhead."""
    model = MODELS[name]
    deployment = Deployment(
        model.architecture, GPUS[GPU].memory_bytes, weight_bytes(model.parameters)
    )
    return users_at(deployment, tokens)


@dataclass(frozen=True)
class Fix:
    """A way to hold less, and the share of the bytes it leaves."""

    name: str
    keeps: float
    why: str


WINDOW_NAME = "Keep fewer cards (window and sinks)"
PREFIX_NAME = "Share the first cards (prefix)"
FIXED_MODEL = "Llama-3.1-8B"
FIXED_TOKENS = 32_768
QUERY_HEADS = 32
WINDOW, SINKS = 4_092, 4
SHARED_PREFIX, SHARERS = 16_384, 8
USED_BEFORE, USED_WITH_PAGING = 0.204, 0.963


def fixes() -> tuple[Fix, ...]:
    """The five ways of the tour, for `FIXED_MODEL` with `FIXED_TOKENS` of context.

    Kwon et al. 2023, figure 2: a pool that reserves the longest reply holds 20.4 % tokens, a paged
    one 96.3 %.
    """
    kv_heads = MODELS[FIXED_MODEL].architecture.layers[0].num_kv_heads
    kept = WINDOW + SINKS
    own = FIXED_TOKENS - SHARED_PREFIX + SHARED_PREFIX / SHARERS
    return (
        Fix(
            "Share the drawers (GQA)",
            kv_heads / QUERY_HEADS,
            f"{kv_heads} KV heads for {QUERY_HEADS} query heads",
        ),
        Fix(
            WINDOW_NAME,
            kept / FIXED_TOKENS,
            f"the first {SINKS} and the last {WINDOW:,} of {FIXED_TOKENS:,} tokens",
        ),
        Fix("Write smaller (8 bits)", 0.5, "one byte a number instead of two"),
        Fix(
            "Reserve no more than needed (paging)",
            USED_BEFORE / USED_WITH_PAGING,
            "20.4 % of the memory held tokens before, 96.3 % with paging",
        ),
        Fix(
            PREFIX_NAME,
            own / FIXED_TOKENS,
            f"the first {SHARED_PREFIX:,} tokens held once for {SHARERS} users",
        ),
    )


def before_fixes() -> int:
    """Bytes `FIXED_MODEL` would hold with a KV head for every query head, in a reserving pool."""
    architecture = MODELS[FIXED_MODEL].architecture
    unshared = QUERY_HEADS // architecture.layers[0].num_kv_heads
    return round(architecture.cache_bytes(FIXED_TOKENS) * unshared / USED_BEFORE)


def after_fixes(num_bytes: int, fixes: Sequence[Fix]) -> pd.DataFrame:
    """Memory held for one request as each fix is applied on top of those before.

    Columns: order, stage, num_bytes, gib, shown, why. The first row is the request as it was.
    """
    rows = [("As it was", num_bytes, "nothing shared, nothing dropped, 16 bits, all reserved")]
    left = float(num_bytes)
    for fix in fixes:
        left *= fix.keeps
        rows.append((fix.name, round(left), fix.why))
    frame = pd.DataFrame(rows, columns=["stage", "num_bytes", "why"])
    frame["order"] = range(len(frame))
    frame["gib"] = frame.num_bytes / units.GIB
    frame["shown"] = [units.gib(num_bytes) for num_bytes in frame.num_bytes]
    return frame


RESENT, NEW = "sent again", "new in this turn"


def chat(turns: int, system: int = 2_000, question: int = 150, reply: int = 350) -> pd.DataFrame:
    """Prompt tokens of each turn of a chat that sends everything so far again.

    Columns: turn, what, tokens. The first turn is all new.
    """
    talk = conversation(
        Workload(prefix_tokens=system, changing_tokens=question, answer_tokens=reply, turns=turns)
    )
    rows = []
    before = 0
    for turn, prompt in enumerate(talk.prompt.tolist(), start=1):
        rows.append((turn, RESENT, before))
        rows.append((turn, NEW, prompt - before))
        before = prompt
    return pd.DataFrame(rows, columns=["turn", "what", "tokens"])


def _shown(word: str) -> str:
    return word.replace("\n", "⏎").strip() or "␣"
