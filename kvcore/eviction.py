"""Which positions of a cache stay when it may hold only so many.

Four policies, each with a budget in tokens:

- none: everything stays.
- window: the last `window` positions.
- sinks: the first `sinks` positions and the last `window` (StreamingLLM, Xiao et al. 2023, §3.2;
  class defaults 4 + 512).
- heavy hitters: the last `recent` positions and, of those before, the `heavy` ones that received
  the most attention so far (H2O, Zhang et al. 2023, §4).

They say which positions stay, not how a model that keeps them is to number them: see `renumbered`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kvcore.checks import is_number, is_whole

NONE, WINDOW, SINKS, HEAVY_HITTERS = "none", "window", "sinks", "heavy hitters"
POLICIES = (NONE, WINDOW, SINKS, HEAVY_HITTERS)

DEFAULT_SINKS = 4
DEFAULT_WINDOW = 512


class EvictableCache(Protocol):
    """What eviction needs of `kvcore.decoding.KVCache`."""

    kept: list[int]
    attention_mass: Any

    def __len__(self) -> int: ...

    def keep(self, indices: Sequence[int], *, renumber: bool = False) -> None: ...


_OTHER_POLICY_NAMES = {
    "full": NONE,
    "sliding window": WINDOW,
    "sink": SINKS,
    "sinks window": SINKS,
    "sinks and window": SINKS,
    "streaming llm": SINKS,
    "streamingllm": SINKS,
    "heavy": HEAVY_HITTERS,
    "heavy hitter": HEAVY_HITTERS,
    "h2o": HEAVY_HITTERS,
}

_PARTS_OF_THE_PAPERS = {
    "window_size": "window",
    "sliding_window": "window",
    "start_size": "sinks",
    "num_sinks": "sinks",
    "n_sink": "sinks",
    "heavy_size": "heavy",
    "heavy_hitters": "heavy",
    "recent_size": "recent",
}


@dataclass(frozen=True)
class Budget:
    """What a policy may keep, in tokens; None where the policy has no such part.

    `room` positions are left free for tokens about to come, at the cost of the recent ones.
    """

    sinks: int = 0
    heavy: int = 0
    recent: int | None = None
    room: int = 0

    @property
    def total(self) -> int | None:
        """Most positions kept; None without a limit."""
        return None if self.recent is None else self.sinks + self.heavy + self.recent


def policy_name(policy: str | None) -> str:
    """The policy's name here, from any spelling in use ("h2o", "Sinks + window", "streaming-llm").

    Raises ValueError naming the policies there are.
    """
    wanted = NONE if policy is None else str(policy)
    spelled = " ".join(re.findall(r"[a-z0-9]+", wanted.lower()))
    name = _OTHER_POLICY_NAMES.get(spelled, spelled)
    if name not in POLICIES:
        raise ValueError(f"There is no policy {policy!r}; choose one of {', '.join(POLICIES)}.")
    return name


def budget_for(policy: str | None, *, room: int = 0, **parts: int | None) -> Budget:
    """The parts of a policy's budget, from its parts or from a total.

    - window: `window` (or `recent`, or the total `budget`); 512 where nothing is said.
    - sinks: `sinks` (4) and `window` (512, or the total `budget` less the sinks).
    - heavy hitters: `heavy` and `recent`; of a total, half each (H2O's equal ratios), the odd
      token to the recent ones.

    The papers' own spellings (start_size, recent_size, n_sink, …) are understood.
    Raises ValueError for a negative part, a window of nothing, a total too small for its parts or
    a part that the policy does not have.
    """
    name = policy_name(policy)
    given = {}
    for part, tokens in parts.items():
        part = _PARTS_OF_THE_PAPERS.get(part, part)
        if tokens is None:
            continue
        if part in given:
            raise ValueError(f"The budget names {part} twice.")
        given[part] = _whole_tokens(part, tokens)
    room = _whole_tokens("room", room)
    if "window" in given and "recent" in given:
        raise ValueError("window and recent are the same part of the budget; give one of them.")
    _refuse_foreign_parts(name, given)
    return _BUDGETS[name](given, room)


def kept_positions(
    length: int,
    policy: str | None,
    *,
    scores: Sequence[float] | None = None,
    **budget: int | None,
) -> list[int]:
    """Sorted positions, of 0 … length - 1, that `policy` keeps under `budget` (see `budget_for`).

    Heavy hitters need `scores`: the attention each position has received, one number a position.
    Of equal scores the earlier position stays. With `room=c` the recent part gives up c positions
    for tokens about to come, and only where they would not fit otherwise, as StreamingLLM does
    before each of its chunks.

    Raises ValueError for an unknown policy, an impossible budget or missing scores.
    """
    if not is_whole(length) or length < 0:
        raise ValueError(f"A cache holds 0 or more positions, not {length!r}.")
    name = policy_name(policy)
    parts = budget_for(name, **budget)
    if hasattr(scores, "tolist"):  # an array or a tensor
        scores = scores.tolist()
    if name == HEAVY_HITTERS and (scores is None or len(scores) != length):
        received = "none" if scores is None else str(len(scores))
        raise ValueError(f"Heavy hitters need {length} scores, one a position; got {received}.")
    if name == HEAVY_HITTERS and not all(is_number(score) for score in scores):
        raise ValueError("Heavy hitters need a number as the score of every position.")
    if parts.total is None or length + parts.room <= parts.total:
        return list(range(length))
    first_recent = max(0, length - max(0, parts.recent - parts.room))
    kept = set(range(first_recent, length)) | set(range(min(parts.sinks, length)))
    if parts.heavy:
        earlier = sorted(range(first_recent), key=lambda position: (-scores[position], position))
        kept.update(earlier[: parts.heavy])
    return sorted(kept)


def evict(
    cache: EvictableCache,
    policy: str | None,
    *,
    incoming: int = 0,
    renumber: bool = False,
    **budget: int | None,
) -> list[int]:
    """Apply a policy to a real cache before `incoming` tokens enter it.

    The tokens to come count within the budget: what they then attend to, themselves included, are
    exactly the positions the policy keeps at that length. Heavy hitters are ranked by the attention
    each slot has received, summed over layers and heads, so that all layers keep the same ones.

    Returns the indices of the text that went. Raises ValueError where nothing would be left or a
    cache does not add up the attention that heavy hitters need.
    """
    held = len(cache)
    scores = _received(cache) + [0.0] * incoming if policy_name(policy) == HEAVY_HITTERS else None
    kept = kept_positions(held + incoming, policy, scores=scores, **budget)
    slots = [slot for slot in kept if slot < held]
    if len(slots) == held:
        return []
    if not slots:
        raise ValueError("This budget leaves nothing in the cache; allow at least 2 tokens.")
    stays = set(slots)
    gone = [index for slot, index in enumerate(cache.kept) if slot not in stays]
    cache.keep([cache.kept[slot] for slot in slots], renumber=renumber)
    return gone


def _received(cache: EvictableCache) -> list[float]:
    if cache.attention_mass is None:
        raise ValueError("Heavy hitters need a cache made with track_attention=True.")
    return cache.attention_mass.sum(dim=(0, 1))[: len(cache)].tolist()


def renumbered(kept: Sequence[int]) -> list[int]:
    """Positions within the cache, 0, 1, 2 …, in place of those in the text.

    StreamingLLM numbers what it keeps anew, so that no distance exceeds what the model was trained
    on; the keys must then be rotated to the new places. Leaving positions as they were needs no
    rotation and keeps true distances.
    """
    return list(range(len(kept)))


def blocks_freed(kept: Sequence[int], length: int, block_size: int) -> list[int]:
    """Indices of the blocks of which nothing is kept; an evicted token in any other frees none."""
    needed = {position // block_size for position in kept}
    return [index for index in range(-(-length // block_size)) if index not in needed]


_ALL_PARTS = {"budget", "window", "sinks", "heavy", "recent"}
_PARTS = {
    NONE: _ALL_PARTS,
    WINDOW: {"budget", "window", "recent"},
    SINKS: {"budget", "window", "recent", "sinks"},
    HEAVY_HITTERS: {"budget", "heavy", "recent", "window"},
}


def _refuse_foreign_parts(name: str, given: dict[str, int]) -> None:
    foreign = sorted(set(given) - _PARTS[name])
    if foreign:
        raise ValueError(f"The policy {name!r} has no {' or '.join(foreign)}.")


def _window_budget(given: dict[str, int], room: int) -> Budget:
    window = given.get("window", given.get("recent", given.get("budget", DEFAULT_WINDOW)))
    return Budget(recent=_at_least_one(window), room=room)


def _sinks_budget(given: dict[str, int], room: int) -> Budget:
    sinks = given.get("sinks", DEFAULT_SINKS)
    window = given.get("window", given.get("recent"))
    if window is None:
        window = given["budget"] - sinks if "budget" in given else DEFAULT_WINDOW
    return Budget(sinks=sinks, recent=_at_least_one(window), room=room)


def _heavy_budget(given: dict[str, int], room: int) -> Budget:
    recent = given.get("recent", given.get("window"))
    heavy = given.get("heavy")
    total = given.get("budget")
    if total is None and (heavy is None or recent is None):
        raise ValueError("Heavy hitters need a budget, or both heavy and recent, in tokens.")
    if heavy is None:
        heavy = total // 2 if recent is None else total - recent
    if recent is None:
        recent = total - heavy
    if heavy < 0:
        raise ValueError(f"A budget of {total} tokens is too small for {recent} recent ones.")
    return Budget(heavy=heavy, recent=_at_least_one(recent), room=room)


def _whole_tokens(part: str, tokens: int) -> int:
    if isinstance(tokens, bool) or not hasattr(tokens, "__index__") or tokens < 0:
        raise ValueError(f"{part} is a whole number of tokens, 0 or more, not {tokens!r}.")
    return int(tokens)


def _at_least_one(recent: int) -> int:
    if recent < 1:
        raise ValueError("The recent part of a budget must leave at least 1 token.")
    return recent


_BUDGETS: dict[str, Callable[[dict[str, int], int], Budget]] = {
    NONE: lambda given, room: Budget(),
    WINDOW: _window_budget,
    SINKS: _sinks_budget,
    HEAVY_HITTERS: _heavy_budget,
}
