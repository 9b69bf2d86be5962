"""The rack: a step of a trace as boxes, one for each shelf of layers and column of positions.

At most `MAX_BOXES` boxes, so that they can be drawn 30 times a second without a graphics card:
positions are joined within their block first, then layers.
"""

import base64
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from kvcore.lab.trace import Frame, TokenState, Trace

MAX_BOXES = 2_000
COLUMNS_BEFORE_LAYERS_JOIN = 32
BRIGHTNESS = {
    TokenState.REUSED: 1.0,
    TokenState.FINDABLE: 0.85,
    TokenState.HELD: 0.35,
    TokenState.EVICTED: 0.0,
}


@dataclass(frozen=True)
class Grid:
    """How positions and layers are joined: tokens a column, layers a shelf."""

    tokens: int
    layers: int


def grid_for(num_layers: int, num_tokens: int, block_size: int, max_boxes: int = MAX_BOXES) -> Grid:
    """The finest grid with at most `max_boxes` boxes, keys and values counted apart.

    A column never crosses the edge of a block unless it holds whole blocks.
    """
    tokens = 1
    for tokens in _column_widths(block_size):
        columns = _columns(num_tokens, tokens)
        if 2 * num_layers * columns <= max_boxes or columns <= COLUMNS_BEFORE_LAYERS_JOIN:
            break
    layers = 1
    while 2 * -(-num_layers // layers) * _columns(num_tokens, tokens) > max_boxes:
        layers += 1
    return Grid(tokens, layers)


@lru_cache(maxsize=64)
def rack_data(trace: Trace, frame: Frame, max_boxes: int = MAX_BOXES) -> dict[str, object]:
    """What the rack component draws, as JSON values.

    shelves: a label each, lowest first. columns: label, block, state in words, brightness (how much
    of it can be used again), gone and reused (shares, 0 to 1), start (of a block). keys, values:
    mean norms as base64 of little-endian 32-bit floats, [shelves, columns].
    """
    about = trace.about
    grid = grid_for(about.num_layers, frame.num_tokens, about.block_size, max_boxes)
    key_norms, value_norms = (joined(norms, grid) for norms in trace.norms(frame))
    return {
        "shelves": _shelves(about.num_layers, grid.layers),
        "columns": _column_data(trace, frame, grid.tokens),
        "keys": _packed(key_norms),
        "values": _packed(value_norms),
    }


def _column_widths(block_size: int) -> list[int]:
    within = [width for width in range(1, block_size) if block_size % width == 0]
    return within + [block_size << power for power in range(12)]


def _columns(num_tokens: int, width: int) -> int:
    return -(-num_tokens // width)


def _shelves(num_layers: int, joined: int) -> list[str]:
    labels = []
    for first in range(0, num_layers, joined):
        last = min(first + joined, num_layers)
        labels.append(f"layer {first + 1}" if joined == 1 else f"layers {first + 1}–{last}")
    return labels


def _column_data(trace: Trace, frame: Frame, width: int) -> list[dict[str, object]]:
    states = trace.states(frame)
    block_size = trace.about.block_size
    columns = []
    for first in range(0, frame.num_tokens, width):
        last = min(first + width, frame.num_tokens) - 1
        mine = states[first : last + 1]
        held = [state for state in mine if state is not TokenState.EVICTED]
        brightness = sum(BRIGHTNESS[state] for state in held) / len(held) if held else 0.0
        columns.append(
            {
                "label": column_label(trace, first, last),
                "block": _block_label(frame, first // block_size, last // block_size),
                "state": _state_label(mine),
                "brightness": round(brightness, 3),
                "gone": round(1 - len(held) / len(mine), 3),
                "reused": round(mine.count(TokenState.REUSED) / len(mine), 3),
                "start": first % block_size == 0,
            }
        )
    return columns


def column_label(trace: Trace, first: int, last: int) -> str:
    """“ the quick”, position 4 to 5, text shortened to 40 characters."""
    text = "".join(trace.texts[first : last + 1]).replace("\n", "⏎")
    text = text if len(text) <= 40 else text[:39] + "…"
    place = f"position {first}" if first == last else f"positions {first} to {last}"
    return f"“{text}”, {place}"


def _block_label(frame: Frame, first: int, last: int) -> str:
    ids = frame.block_ids[first : last + 1]
    if len(ids) > 1:
        return "blocks " + ", ".join(str(block_id) for block_id in ids)
    if ids[0] == 0:
        return "block given back"
    users = frame.ref_counts[first]
    shared = f", shared by {users}" if users > 1 else ""
    return f"block {ids[0]}{shared}"


def _state_label(states: list[TokenState]) -> str:
    if len(set(states)) == 1:
        return str(states[0])
    counts = {state: states.count(state) for state in TokenState}
    return "; ".join(f"{count} {state}" for state, count in counts.items() if count)


def joined(norms: np.ndarray, grid: Grid) -> np.ndarray:
    """Means over the layers of a shelf and the tokens of a column: [shelves, columns]."""
    by_layer = np.add.reduceat(norms, range(0, norms.shape[0], grid.layers), axis=0)
    sums = np.add.reduceat(by_layer, range(0, norms.shape[1], grid.tokens), axis=1)
    return sums / (
        _widths(norms.shape[0], grid.layers)[:, None] * _widths(norms.shape[1], grid.tokens)
    )


def _widths(count: int, width: int) -> np.ndarray:
    return np.asarray([min(width, count - first) for first in range(0, count, width)])


def _packed(norms: np.ndarray) -> str:
    return base64.b64encode(norms.astype("<f4").tobytes()).decode("ascii")
