"""What a run of the lab showed, step by step: enough to draw every step again without a model."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

import numpy as np


class TokenState(StrEnum):
    """What has become of a token's key and value, by how much of them can be used again.

    REUSED: taken from the pool instead of computed. FINDABLE: in a full block with a name, so that
    the next request can. HELD: in the last, open block, or computed after an eviction. EVICTED:
    no longer in the cache.
    """

    REUSED = "from the pool"
    FINDABLE = "can be reused"
    HELD = "cannot be reused"
    EVICTED = "evicted"


@dataclass(frozen=True)
class About:
    """The model and the settings of a run. Budgets are in tokens; None where there is none."""

    model: str
    source: str
    num_layers: int
    num_kv_heads: int
    head_dim: int
    bytes_per_token: int
    block_size: int
    num_blocks: int
    policy: str
    budget: dict[str, int]
    renumber: bool

    @property
    def bytes_per_block(self) -> int:
        return self.block_size * self.bytes_per_token


@dataclass(frozen=True)
class Prefill:
    """The first token of a request, measured.

    `seconds` from asking to logits with what the pool had; `cold_seconds` for the same prompt
    without it, run straight afterwards, None when nothing was reused. `largest_difference` is
    between the logits of the two, `same_token` whether both choose the same one.
    """

    prompt_tokens: int
    cached_tokens: int
    seconds: float
    cold_seconds: float | None = None
    largest_difference: float | None = None
    same_token: bool | None = None

    @property
    def computed_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    @property
    def saved_seconds(self) -> float | None:
        """Cold less warm; None when nothing was reused, negative when reuse did not pay."""
        return None if self.cold_seconds is None else self.cold_seconds - self.seconds


@dataclass(frozen=True)
class Frame:
    """The cache after one step.

    num_tokens:  tokens of the text so far, the one just chosen not included.
    kept:        indices of the tokens the cache holds, ascending; `positions` their numbers.
    evicted:     indices that went in this step, `freed` the blocks that became free with them.
    block_ids:   the request's block table, 0 for a dropped block; `ref_counts` and `findable` for
                 each of them.
    free_list:   ids of the free blocks, next to be taken first; `free_findable` those of them that
                 still hold something to be found.
    others:      block tables of requests that were left open, by name.
    seconds:     measured: eviction, bookkeeping, forward pass and choice of the token.
    """

    kind: str
    num_tokens: int
    kept: tuple[int, ...]
    positions: tuple[int, ...]
    evicted: tuple[int, ...]
    freed: tuple[int, ...]
    block_ids: tuple[int, ...]
    ref_counts: tuple[int, ...]
    findable: tuple[bool, ...]
    free_list: tuple[int, ...]
    free_findable: tuple[int, ...]
    others: tuple[tuple[str, tuple[int, ...]], ...]
    seconds: float
    tokens_processed: int
    hit_rate: float | None
    naive_hit_rate: float | None

    @property
    def cached_tokens(self) -> int:
        """Tokens whose key and value the cache holds."""
        return len(self.kept)

    @property
    def blocks_held(self) -> int:
        return sum(block_id != 0 for block_id in self.block_ids)


@dataclass(eq=False)
class Trace:
    """A request from its prompt on. It only grows: what a frame tells stays true for ever.

    token_ids, texts: of every token, the prompt's first; the last one was chosen and not yet run.
    key_norms, value_norms: for each token that was run, the length of its key (value) vector in
        every layer, all heads together: [num_layers].
    """

    about: About
    name: str
    token_ids: list[int]
    texts: list[str]
    prefill: Prefill
    frames: list[Frame] = field(default_factory=list)
    key_norms: list[Sequence[float]] = field(default_factory=list)
    value_norms: list[Sequence[float]] = field(default_factory=list)

    @property
    def num_prompt_tokens(self) -> int:
        return self.prefill.prompt_tokens

    def text(self, frame: Frame) -> str:
        """What the model has written up to and with the token chosen in `frame`."""
        return "".join(self.texts[self.num_prompt_tokens : frame.num_tokens + 1])

    def kv_bytes(self, frame: Frame) -> int:
        """Bytes of the keys and values held."""
        return frame.cached_tokens * self.about.bytes_per_token

    def block_bytes(self, frame: Frame) -> int:
        """Bytes of the blocks they lie in; a block counts whole."""
        return frame.blocks_held * self.about.bytes_per_block

    def states(self, frame: Frame) -> list[TokenState]:
        """What has become of each token of the text."""
        states = [TokenState.EVICTED] * frame.num_tokens
        for index in frame.kept:
            if index < self.prefill.cached_tokens:
                states[index] = TokenState.REUSED
            elif frame.findable[index // self.about.block_size]:
                states[index] = TokenState.FINDABLE
            else:
                states[index] = TokenState.HELD
        return states

    def norms(self, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
        """Lengths of keys and of values: two of [num_layers, num_tokens]."""
        shape = (frame.num_tokens, self.about.num_layers)
        keys, values = (
            np.asarray(norms[: frame.num_tokens], dtype=np.float32).reshape(shape).T
            for norms in (self.key_norms, self.value_norms)
        )
        return keys, values


def to_json(trace: Trace) -> dict[str, Any]:
    """The trace as JSON values; norms to three digits as float16, positions as ranges."""
    return {
        "about": asdict(trace.about),
        "name": trace.name,
        "token_ids": trace.token_ids,
        "texts": trace.texts,
        "prefill": asdict(trace.prefill),
        "frames": [_frame_to_json(frame) for frame in trace.frames],
        "key_norms": _pack(trace.key_norms),
        "value_norms": _pack(trace.value_norms),
    }


def from_json(data: Mapping[str, Any]) -> Trace:
    """Reads what `to_json` wrote."""
    num_layers = data["about"]["num_layers"]
    return Trace(
        about=About(**data["about"]),
        name=data["name"],
        token_ids=list(data["token_ids"]),
        texts=list(data["texts"]),
        prefill=Prefill(**data["prefill"]),
        frames=[_frame_from_json(frame) for frame in data["frames"]],
        key_norms=_unpack(data["key_norms"], num_layers),
        value_norms=_unpack(data["value_norms"], num_layers),
    )


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Ascending numbers as [first, last] runs: 0, 1, 2, 7 → [[0, 2], [7, 7]]."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


_AS_RANGES = ("kept", "positions", "evicted", "free_list")


def _frame_to_json(frame: Frame) -> dict[str, Any]:
    data = asdict(frame)
    for name in _AS_RANGES:
        data[name] = ranges(data[name])
    data["findable"] = [int(flag) for flag in frame.findable]
    return data


def _frame_from_json(data: Mapping[str, Any]) -> Frame:
    values = {each.name: data[each.name] for each in fields(Frame)}
    for name in _AS_RANGES:
        runs = values[name]
        values[name] = tuple(number for low, high in runs for number in range(low, high + 1))
    values["findable"] = tuple(bool(flag) for flag in values["findable"])
    for name in ("freed", "block_ids", "ref_counts", "free_findable"):
        values[name] = tuple(values[name])
    values["others"] = tuple((name, tuple(ids)) for name, ids in values["others"])
    return Frame(**values)


def _pack(norms: Sequence[Sequence[float]]) -> str:
    return base64.b64encode(np.asarray(norms, dtype="<f2").tobytes()).decode("ascii")


def _unpack(packed: str, num_layers: int) -> list[Sequence[float]]:
    flat = np.frombuffer(base64.b64decode(packed), dtype="<f2").astype(np.float32)
    return list(flat.reshape(-1, num_layers))
