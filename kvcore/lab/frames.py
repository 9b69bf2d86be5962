"""Steps of a trace as tables: what the charts draw and the exports hold."""

from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
import pyarrow as pa

from kvcore.lab.experiment import Asked
from kvcore.lab.rack import column_label, grid_for, joined
from kvcore.lab.trace import Frame, TokenState, Trace, ranges
from kvcore.prefix.scenarios import Outcome

MAX_CELLS = 1_000
SIGNS = {
    TokenState.REUSED: "R",
    TokenState.FINDABLE: "F",
    TokenState.HELD: "H",
    TokenState.EVICTED: "×",
}
FREE_PER_ROW = 32
SLOTS_PER_LINE = 16
LONGEST_LIST = 12

_SHARED_WORDS = pa.dictionary(pa.int32(), pa.string())
SLOTS_COLUMNS = pa.schema(
    [
        ("line", pa.int32()),
        ("blocks", _SHARED_WORDS),
        ("block", _SHARED_WORDS),
        ("column", pa.int32()),
        ("state", _SHARED_WORDS),
        ("sign", _SHARED_WORDS),
        ("token", pa.string()),
        ("index", pa.int32()),
        ("requests", pa.int32()),
    ]
)
FREE_COLUMNS = pa.schema(
    [
        ("order", pa.int32()),
        ("line", pa.int32()),
        ("column", pa.int32()),
        ("block", pa.string()),
        ("holds", pa.string()),
        ("just_freed", pa.bool_()),
    ]
)
CHECKS_COLUMNS = pa.schema(
    [(name, pa.string()) for name in ("what", "expected", "computed", "agrees")]
)
STEPS_COLUMNS = pa.schema(
    [
        ("step", pa.int32()),
        ("kind", pa.string()),
        ("token", pa.string()),
        ("ms", pa.float64()),
        ("tokens_processed", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("kv_bytes", pa.int64()),
        ("block_bytes", pa.int64()),
        ("evicted", pa.int64()),
        ("blocks_freed", pa.int64()),
        ("hit_rate", pa.float64()),
        ("naive_hit_rate", pa.float64()),
    ]
)
EXPERIMENT_COLUMNS = pa.schema(
    [
        ("order", pa.int32()),
        ("how", pa.string()),
        ("part", pa.string()),
        ("tokens", pa.int64()),
        ("ms", pa.float64()),
        ("hit_rate", pa.float64()),
    ]
)


@lru_cache(maxsize=64)
def heat_map(trace: Trace, frame: Frame) -> pa.Table:
    """The rack, flat: a row for each shelf of layers and column of positions.

    A column shows the state most of its tokens are in; of equal numbers the less useful one. Words
    that many rows share are sent once (Arrow dictionaries).
    """
    about = trace.about
    grid = grid_for(about.num_layers, frame.num_tokens, about.block_size, 2 * MAX_CELLS)
    firsts = range(0, frame.num_tokens, grid.tokens)
    ends = [min(first + grid.tokens, frame.num_tokens) for first in firsts]
    bottoms = range(0, about.num_layers, grid.layers)
    tops = [min(bottom + grid.layers, about.num_layers) for bottom in bottoms]
    states = trace.states(frame)
    shown = [_commonest(states[first:end]) for first, end in zip(firsts, ends, strict=True)]
    texts = [column_label(trace, first, end - 1) for first, end in zip(firsts, ends, strict=True)]
    blocks = [str(frame.block_ids[first // about.block_size] or "given back") for first in firsts]
    layers = [
        f"{bottom + 1}" if top == bottom + 1 else f"{bottom + 1}–{top}"
        for bottom, top in zip(bottoms, tops, strict=True)
    ]
    column = np.tile(np.arange(len(ends), dtype=np.int16), len(tops))
    shelf = np.repeat(np.arange(len(tops), dtype=np.int16), len(ends))
    keys, values = (joined(norms, grid) for norms in trace.norms(frame))
    return pa.table(
        {
            "first": np.asarray(firsts, dtype=np.int32)[column],
            "end": np.asarray(ends, dtype=np.int32)[column],
            "state": _shared([str(state) for state in shown], column),
            "sign": _shared([SIGNS[state] for state in shown], column),
            "tokens": _shared(texts, column),
            "block": _shared(blocks, column),
            "bottom": np.asarray(bottoms, dtype=np.float32)[shelf] + np.float32(0.5),
            "top": np.asarray(tops, dtype=np.float32)[shelf] + np.float32(0.5),
            "layers": _shared(layers, shelf),
            "key_norm": keys.astype(np.float32).ravel(),
            "value_norm": values.astype(np.float32).ravel(),
        }
    )


def _shared(words: Sequence[str], which: np.ndarray) -> pa.DictionaryArray:
    """The word of each row, `words[which]`, each word stored once."""
    coded = pa.array(words, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices.to_numpy()[which], coded.dictionary)


def tokens(trace: Trace, frame: Frame) -> pd.DataFrame:
    """A row a token: its text, state, block and mean norms over all layers."""
    keys, values = trace.norms(frame)
    position_of = dict(zip(frame.kept, frame.positions, strict=True))
    return pd.DataFrame(
        {
            "token": trace.texts[: frame.num_tokens],
            "index": range(frame.num_tokens),
            "position": pd.array(
                [position_of.get(index) for index in range(frame.num_tokens)], dtype="Int64"
            ),
            "state": [str(state) for state in trace.states(frame)],
            "block": [
                frame.block_ids[index // trace.about.block_size] or None
                for index in range(frame.num_tokens)
            ],
            "key norm": keys.mean(axis=0).round(2),
            "value norm": values.mean(axis=0).round(2),
        }
    ).astype({"block": "Int64"})


@lru_cache(maxsize=64)
def block_slots(trace: Trace, frame: Frame) -> pa.Table:
    """A row for each place in a block of the request: which token lies there and its state.

    Blocks of fewer than 16 tokens stand side by side, as many as make a line of 16.
    """
    size = trace.about.block_size
    per_line = max(1, SLOTS_PER_LINE // size)
    states = trace.states(frame)
    held = [(order, block_id) for order, block_id in enumerate(frame.block_ids) if block_id]
    rows = []
    for place, (order, block_id) in enumerate(held):
        line = held[place // per_line * per_line :][:per_line]
        blocks = " ".join(str(other) for _, other in line)
        for slot in range(size):
            index = order * size + slot
            filled = index < frame.num_tokens
            rows.append(
                (
                    place // per_line,
                    blocks,
                    str(block_id),
                    place % per_line * size + slot,
                    str(states[index]) if filled else "empty",
                    SIGNS[states[index]] if filled else "",
                    trace.texts[index] if filled else "",
                    index,
                    frame.ref_counts[order],
                )
            )
    return _table(SLOTS_COLUMNS, rows)


def block_table(trace: Trace, frame: Frame) -> pd.DataFrame:
    """A row a block of the request, dropped ones too: what it holds and who else does."""
    size = trace.about.block_size
    states = trace.states(frame)
    rows = []
    for order, block_id in enumerate(frame.block_ids):
        first, end = order * size, min((order + 1) * size, frame.num_tokens)
        held = sum(state is not TokenState.EVICTED for state in states[first:end])
        sharers = [name for name, ids in frame.others if block_id and block_id in ids]
        rows.append(
            {
                "place": order,
                "block": block_id or None,
                "tokens": f"{first} to {end - 1}",
                "still held": f"{held} of {end - first}",
                "requests": frame.ref_counts[order],
                "shared with": ", ".join(sharers),
                "can be found": frame.findable[order],
                "text": "".join(trace.texts[first:end]),
            }
        )
    return pd.DataFrame(rows).astype({"block": "Int64"})


def free_list(
    free: Sequence[int], findable: Collection[int], just_freed: Collection[int] = ()
) -> pa.Table:
    """The row of free blocks, next to be taken first, broken into lines of 32."""
    rows = [
        (
            order,
            order // FREE_PER_ROW,
            order % FREE_PER_ROW,
            str(block_id),
            "can still be found" if block_id in findable else "empty",
            block_id in just_freed,
        )
        for order, block_id in enumerate(free)
    ]
    return _table(FREE_COLUMNS, rows)


def checks(outcome: Outcome) -> pa.Table:
    """A row for each statement of a scenario: the known answer beside the computed one."""
    rows = [
        (
            check.what,
            _plain(check.expected),
            _plain(check.computed),
            "yes" if check.holds else "NO",
        )
        for check in outcome.checks
    ]
    return _table(CHECKS_COLUMNS, rows)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if not isinstance(value, list):
        return str(value)
    if value and isinstance(value[0], list):
        return " | ".join(" ".join(map(_plain, part)) for part in value)
    if len(value) > LONGEST_LIST:
        runs = ranges(value)
        return ", ".join(f"{low} to {high}" if high > low else str(low) for low, high in runs)
    return ", ".join(map(_plain, value))


def steps(trace: Trace, upto: int | None = None) -> pa.Table:
    """A row a step: what was measured and held; `upto` limits it to that many steps."""
    rows = [
        (
            step,
            frame.kind,
            trace.texts[frame.num_tokens],
            frame.seconds * 1000,
            frame.tokens_processed,
            frame.cached_tokens,
            trace.kv_bytes(frame),
            trace.block_bytes(frame),
            len(frame.evicted),
            len(frame.freed),
            frame.hit_rate,
            frame.naive_hit_rate,
        )
        for step, frame in enumerate(trace.frames[:upto])
    ]
    return _table(STEPS_COLUMNS, rows)


def experiment(asked: Sequence[Asked]) -> pa.Table:
    """Two rows for each way of asking: tokens found in the pool, and tokens computed."""
    rows = [
        (order, each.how, part, count, each.prefill.seconds * 1000, each.prefill.hit_rate)
        for order, each in enumerate(asked)
        for part, count in (
            ("found in the pool", each.prefill.cached_tokens),
            ("computed", each.prefill.computed_tokens),
        )
    ]
    return _table(EXPERIMENT_COLUMNS, rows)


def _table(columns: pa.Schema, rows: Sequence[tuple]) -> pa.Table:
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    return pa.table(
        [_array(column, field.type) for column, field in zip(values, columns, strict=True)],
        schema=columns,
    )


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def _commonest(states: list[TokenState]) -> TokenState:
    order = list(TokenState)
    return max(set(states), key=lambda state: (states.count(state), order.index(state)))
