"""Steps of a trace as data frames: what the charts draw and the exports hold."""

from collections.abc import Collection, Sequence

import pandas as pd

from kvcore.lab.experiment import Asked
from kvcore.lab.rack import column_label, grid_for
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


def heat_map(trace: Trace, frame: Frame) -> pd.DataFrame:
    """The rack, flat: a row for each shelf of layers and column of positions.

    A column shows the state most of its tokens are in; of equal numbers the less useful one.
    """
    about = trace.about
    grid = grid_for(about.num_layers, frame.num_tokens, about.block_size, 2 * MAX_CELLS)
    states = trace.states(frame)
    keys, values = trace.norms(frame)
    columns = []
    for first in range(0, frame.num_tokens, grid.tokens):
        end = min(first + grid.tokens, frame.num_tokens)
        state = _commonest(states[first:end])
        columns.append(
            {
                "first": first,
                "end": end,
                "state": str(state),
                "sign": SIGNS[state],
                "tokens": column_label(trace, first, end - 1),
                "block": str(frame.block_ids[first // about.block_size] or "given back"),
            }
        )
    rows = []
    for bottom in range(0, about.num_layers, grid.layers):
        top = min(bottom + grid.layers, about.num_layers)
        for column in columns:
            cell = slice(bottom, top), slice(column["first"], column["end"])
            rows.append(
                {
                    **column,
                    "bottom": bottom + 0.5,
                    "top": top + 0.5,
                    "layers": f"{bottom + 1}" if top == bottom + 1 else f"{bottom + 1}–{top}",
                    "key_norm": float(keys[cell].mean()),
                    "value_norm": float(values[cell].mean()),
                }
            )
    return pd.DataFrame(rows)


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


def block_slots(trace: Trace, frame: Frame) -> pd.DataFrame:
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
        for slot in range(size):
            index = order * size + slot
            filled = index < frame.num_tokens
            rows.append(
                {
                    "line": place // per_line,
                    "blocks": " ".join(str(other) for _, other in line),
                    "block": str(block_id),
                    "column": place % per_line * size + slot,
                    "state": str(states[index]) if filled else "empty",
                    "sign": SIGNS[states[index]] if filled else "",
                    "token": trace.texts[index] if filled else "",
                    "index": index,
                    "requests": frame.ref_counts[order],
                }
            )
    return pd.DataFrame(rows)


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
) -> pd.DataFrame:
    """The row of free blocks, next to be taken first, broken into lines of 32."""
    return pd.DataFrame(
        [
            {
                "order": order,
                "line": order // FREE_PER_ROW,
                "column": order % FREE_PER_ROW,
                "block": str(block_id),
                "holds": "can still be found" if block_id in findable else "empty",
                "just_freed": block_id in just_freed,
            }
            for order, block_id in enumerate(free)
        ],
        columns=["order", "line", "column", "block", "holds", "just_freed"],
    )


def checks(outcome: Outcome) -> pd.DataFrame:
    """A row for each statement of a scenario: the known answer beside the computed one."""
    return pd.DataFrame(
        [
            {
                "what": check.what,
                "expected": _plain(check.expected),
                "computed": _plain(check.computed),
                "agrees": "yes" if check.holds else "NO",
            }
            for check in outcome.checks
        ]
    )


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


def steps(trace: Trace, upto: int | None = None) -> pd.DataFrame:
    """A row a step: what was measured and held; `upto` limits it to that many steps."""
    return pd.DataFrame(
        [
            {
                "step": step,
                "kind": frame.kind,
                "token": trace.texts[frame.num_tokens],
                "ms": frame.seconds * 1000,
                "tokens_processed": frame.tokens_processed,
                "cached_tokens": frame.cached_tokens,
                "kv_bytes": trace.kv_bytes(frame),
                "block_bytes": trace.block_bytes(frame),
                "evicted": len(frame.evicted),
                "blocks_freed": len(frame.freed),
                "hit_rate": frame.hit_rate,
                "naive_hit_rate": frame.naive_hit_rate,
            }
            for step, frame in enumerate(trace.frames[:upto])
        ]
    )


def experiment(rows: list[Asked]) -> pd.DataFrame:
    """Two rows for each way of asking: tokens found in the pool, and tokens computed."""
    return pd.DataFrame(
        [
            {
                "order": order,
                "how": asked.how,
                "part": part,
                "tokens": count,
                "ms": asked.prefill.seconds * 1000,
                "hit_rate": asked.prefill.hit_rate,
            }
            for order, asked in enumerate(rows)
            for part, count in (
                ("found in the pool", asked.prefill.cached_tokens),
                ("computed", asked.prefill.computed_tokens),
            )
        ],
        columns=["order", "how", "part", "tokens", "ms", "hit_rate"],
    )


def _commonest(states: list[TokenState]) -> TokenState:
    order = list(TokenState)
    return max(set(states), key=lambda state: (states.count(state), order.index(state)))
