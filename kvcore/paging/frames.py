"""Runs as tables: one row per bar segment, per slot run of the map, per point of a curve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd
import pyarrow as pa

from kvcore.paging.outcome import Outcome
from kvcore.paging.paper import ALL_SEGMENTS, FIGURE_2
from kvcore.paging.results import Split
from kvcore.paging.snapshot import Piece, PoolState

SEGMENT_NAMES = {
    "token_states": "Tokens",
    "reservation": "Reserved",
    "internal": "Internal",
    "external": "External",
}
PAPER, HERE = "paper", "here"
NOT_PRINTED = "not printed"
SMALLEST_LABEL = 3.0

MAP_COLUMNS = 512
MAX_MAP_RECTANGLES = 2_600
FILLED, LATER, NEVER, ROUNDED, FREE = (
    "holds a token",
    "reserved for later",
    "never used",
    "added by rounding up",
    "free",
)
# How solid a part of the map is: only what holds a token is drawn in full.
STRENGTH = {FILLED: 1.0, LATER: 0.35, NEVER: 0.12, ROUNDED: 0.12, FREE: 0.0}

# Words that repeat from row to row are sent once.
WORDS = pa.dictionary(pa.int8(), pa.string())
_BARS = pa.schema(
    [
        ("bar", pa.string()),
        ("source", pa.string()),
        ("segment", pa.string()),
        ("start", pa.float64()),
        ("end", pa.float64()),
        ("middle", pa.float64()),
        ("percent", pa.float64()),
        ("shown", pa.string()),
        ("batch", pa.float64()),
        ("batch_shown", pa.string()),
    ]
)
_MAP = pa.schema(
    [
        ("x", pa.float32()),
        ("x2", pa.float32()),
        ("y", pa.float32()),
        ("y2", pa.float32()),
        ("what", WORDS),
        ("request", pa.int32()),
        ("tokens", pa.int32()),
        ("place", pa.string()),
        ("owners", pa.string()),
        ("tag", pa.string()),
        ("followed", pa.bool_()),
    ]
)
_FREE = pa.schema(
    [("step", pa.int32()), ("policy", WORDS), ("what", WORDS), ("slots", pa.float32())]
)
_NOW = pa.schema([*_FREE, ("now", pa.int32())])


def bars_table(
    outcomes: Sequence[Outcome],
    with_paper: bool,
    buddy_slack: str = "external",
    block_slack: str = "strict",
) -> pa.Table:
    """Figure 2: bar, segment, start, end and percent, a label where it fits, requests at once."""
    rows = []
    for outcome in outcomes:
        paper = FIGURE_2.get(outcome.policy) if with_paper else None
        if paper is not None:
            rows += _bar(f"{outcome.system}, {PAPER}", PAPER, paper.split, paper.batch_size)
        split = outcome.split(buddy_slack, block_slack)
        rows += _bar(f"{outcome.system}, {HERE}", HERE, split, outcome.batch_size)
    return _table(_BARS, rows)


def bars(
    outcomes: Sequence[Outcome],
    with_paper: bool,
    buddy_slack: str = "external",
    block_slack: str = "strict",
) -> pd.DataFrame:
    """`bars_table` as a frame."""
    return bars_table(outcomes, with_paper, buddy_slack, block_slack).to_pandas()


def _table(columns: pa.Schema, rows: Sequence[tuple]) -> pa.Table:
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    return pa.table(
        [
            pa.array(column, field.type.value_type).dictionary_encode().cast(field.type)
            if field.type == WORDS
            else pa.array(column, field.type)
            for column, field in zip(values, columns, strict=True)
        ],
        schema=columns,
    )


def _bar(name: str, source: str, split: Split, batch: float) -> list[tuple]:
    rows, start = [], 0.0
    for segment in ALL_SEGMENTS:
        percent = getattr(split, segment)
        shown = f"{percent:.1f}" if percent >= SMALLEST_LABEL else ""
        end = start + percent
        rows.append(
            (
                name,
                source,
                SEGMENT_NAMES[segment],
                start,
                end,
                (start + end) / 2,
                percent,
                shown,
                batch if segment == ALL_SEGMENTS[0] else None,
                f"{batch:.2f}",
            )
        )
        start = end
    return rows


def gaps_table(
    outcomes: Sequence[Outcome], buddy_slack: str = "external", block_slack: str = "strict"
) -> pa.Table:
    """Here minus the paper, in words: points for each labelled segment, percent for the batch."""
    rows = []
    for outcome in outcomes:
        paper = FIGURE_2.get(outcome.policy)
        if paper is None:
            continue
        split = outcome.split(buddy_slack, block_slack)
        row = {"Policy": outcome.system}
        for segment in ALL_SEGMENTS:
            gap = getattr(split, segment) - getattr(paper.split, segment)
            row[SEGMENT_NAMES[segment]] = _signed(gap) if segment in paper.labelled else NOT_PRINTED
        row["At once (%)"] = _signed(100 * (outcome.batch_size / paper.batch_size - 1))
        rows.append(row)
    return pa.Table.from_pylist(rows)


def gaps(
    outcomes: Sequence[Outcome], buddy_slack: str = "external", block_slack: str = "strict"
) -> pd.DataFrame:
    """`gaps_table` as a frame."""
    return gaps_table(outcomes, buddy_slack, block_slack).to_pandas()


def _signed(gap: float) -> str:
    rounded = round(gap, 1)
    return f"{rounded:+.1f}" if rounded else "0.0"


def table(
    outcomes: Sequence[Outcome], buddy_slack: str = "external", block_slack: str = "strict"
) -> pd.DataFrame:
    """Every number of every run, a row a policy."""
    rows = []
    for outcome in outcomes:
        split = outcome.split(buddy_slack, block_slack)
        rows.append(
            {
                "Policy": outcome.label,
                **{SEGMENT_NAMES[s] + " (%)": getattr(split, s) for s in ALL_SEGMENTS},
                "Requests at once": outcome.batch_size,
                "Requests served": outcome.completed,
                "Requests refused": outcome.refused,
                "Steps": outcome.steps,
                "Half wait at most (steps)": outcome.wait_p50,
                "95 % wait at most (steps)": outcome.wait_p95,
                "Preemptions": outcome.preemptions,
                "Most for one request": outcome.most_preempted,
                "Tokens computed again": outcome.recomputed_tokens,
                "Tokens swapped out": outcome.swapped_tokens,
                "Computed again per token generated": outcome.recomputed_per_generated,
                "Prompt tokens found in the pool (%)": 100 * outcome.hit_share,
                "Blocks copied on write": outcome.copied_blocks,
            }
        )
    return pd.DataFrame(rows)


def preemption_log(outcome: Outcome) -> pd.DataFrame:
    """Who was put out when, for whom, and how many tokens it lost."""
    return pd.DataFrame(
        [
            (p.step, p.index, p.wanted_by, p.tokens, p.freed, "swap" if p.swapped else "recompute")
            for p in outcome.preemption_log
        ],
        columns=["Step", "Put out", "For", "Tokens lost", "Slots freed", "Way back"],
    )


def map_table(state: PoolState, followed: int | None = None) -> tuple[pa.Table, float]:
    """The pool as rectangles in rows of `MAP_COLUMNS` slots, and how many slots are shown.

    A large pool is shown from slot 0 as far as `MAX_MAP_RECTANGLES` go.
    """
    width = max(MAP_COLUMNS, 1 << (max(1, state.num_slots // 48) - 1).bit_length())
    rows: list[tuple] = []
    shown = float(state.num_slots)
    for run in _merged(_runs(state, followed)):
        if len(rows) >= MAX_MAP_RECTANGLES:
            shown = run[0]
            break
        rows += _rectangles(*run, width)
    return _table(_MAP, rows), shown


def memory_map(state: PoolState, followed: int | None = None) -> tuple[pd.DataFrame, float]:
    """`map_table` as a frame."""
    table, shown = map_table(state, followed)
    return table.to_pandas(), shown


def _runs(state: PoolState, followed: int | None) -> Iterator[tuple]:
    """(start, end, what, request, tokens, place, owners, followed) in order of address."""
    pieces = [(piece.address, piece) for piece in state.pieces]
    frees = [(address, size) for address, size in state.free_chunks]
    for address, piece in sorted(pieces + frees, key=lambda pair: pair[0]):
        if not isinstance(piece, Piece):
            yield address, address + piece, FREE, -1, 0, "free chunk", "nobody", False
            continue
        owner = followed if followed in piece.owners else piece.owners[0]
        owners = ", ".join(str(index) for index in dict.fromkeys(piece.owners))
        mine = followed in piece.owners
        start = address
        parts = (
            (FILLED, piece.tokens),
            (LATER, piece.future),
            (NEVER, piece.never),
            (ROUNDED, piece.rounding),
        )
        for what, size in parts:
            if size > 0:
                held = state.running[owner]
                yield start, start + size, what, owner, held, piece.label, owners, mine
            start += size


def _merged(runs: Iterable[tuple]) -> Iterator[tuple]:
    """Neighbouring full blocks of one owner as one run, its place named by the first and last."""
    last: tuple | None = None
    for run in runs:
        if last is not None and _continues(last, run):
            first = last[5].split(" to ")[0]
            end = run[5].removeprefix("block ")
            last = (last[0], run[1], *last[2:5], f"{first} to {end}", *last[6:])
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def _continues(last: tuple, run: tuple) -> bool:
    block = last[5].startswith("block ") and run[5].startswith("block ")
    return block and last[1] == run[0] and last[2:5] == run[2:5] and last[6:] == run[6:]


def _rectangles(
    start: float,
    end: float,
    what: str,
    request: int,
    tokens: int,
    place: str,
    owners: str,
    followed: bool,
    width: int,
) -> Iterator[tuple]:
    first = True
    while start < end:
        row = int(start // width)
        stop = min(end, (row + 1) * width)
        y = row * width
        wide = first and what == FILLED and stop - start >= width / 16
        yield (
            start - y,
            stop - y,
            y,
            y + width * 0.9,
            what,
            request,
            int(tokens),
            place,
            owners,
            str(request) if wide else "",
            followed,
        )
        first, start = False, stop


def curve(points: Iterable[tuple[float, Outcome]]) -> pd.DataFrame:
    """A sweep: the value, and what it moves."""
    return pd.DataFrame(
        [
            (
                value,
                outcome.label,
                outcome.split().token_states,
                outcome.split().reservation + outcome.split().internal,
                outcome.batch_size,
                outcome.preemptions_per_request,
                outcome.recomputed_per_generated,
                outcome.wait_p50,
            )
            for value, outcome in points
        ],
        columns=[
            "value", "policy", "tokens", "slack", "batch", "preemptions", "recomputed", "wait",
        ],
    )  # fmt: skip


def free_table(outcome: Outcome, up_to: int) -> pa.Table:
    """All that is free and the largest chunk of it, in slots, at the moments kept."""
    return _table(_FREE, list(_free_rows(outcome, up_to)))


def at_step(free: pa.Table, step: int) -> pa.Table:
    """A `free_table` with a row more, whose `now` is the step that is looked at."""
    return pa.concat_tables(
        [
            free.append_column("now", pa.nulls(free.num_rows, pa.int32())),
            _table(_NOW, [(None, None, None, None, step)]),
        ]
    )


def free_over_time(outcomes: Sequence[Outcome], up_to: int) -> pd.DataFrame:
    """`free_table` of several runs, as a frame."""
    rows = [row for outcome in outcomes for row in _free_rows(outcome, up_to)]
    return pd.DataFrame(rows, columns=_FREE.names)


def _free_rows(outcome: Outcome, up_to: int) -> Iterator[tuple[int, str, str, float]]:
    for moment in outcome.moments:
        if moment.step <= up_to:
            yield moment.step, outcome.label, "all free slots", moment.free
            yield moment.step, outcome.label, "largest usable", moment.largest_free
