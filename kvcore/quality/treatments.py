"""What can be done to a cache to make it smaller, and how many bytes that leaves."""

from __future__ import annotations

from dataclasses import dataclass

from kvcore import eviction
from kvcore.formats import find_format

CHANNEL_GROUP = 32
"""Tokens that share a scale where keys are quantised per channel (KIVI, Liu et al. 2024)."""


KEEPS, FORGETS, ROUNDS, SHARES = "keeps all", "forgets", "rounds", "shares heads"


@dataclass(frozen=True)
class Treatment:
    """One way to make a cache smaller.

    policy, parts: as `kvcore.eviction.kept_positions` takes them; parts are (name, tokens) pairs.
    key_format, value_format: names of `kvcore.formats`.
    keys_per_channel: scales run along 32 tokens of one channel; the tokens of a group that is not
        full yet stay in BF16.
    pooled_kv_heads, pooled_layers: KV heads mean-pooled to so many (Ainslie et al. 2023, §2.1), in
        the last `pooled_layers` layers, or in all.

    Raises ValueError (or its kind) for a budget or a format that does not exist, and for
    per-channel keys in a format without blocks of 32 or together with eviction.
    """

    name: str
    policy: str = eviction.NONE
    parts: tuple[tuple[str, int], ...] = ()
    key_format: str = "bf16"
    value_format: str = "bf16"
    keys_per_channel: bool = False
    pooled_kv_heads: int | None = None
    pooled_layers: int | None = None

    def __post_init__(self) -> None:
        eviction.budget_for(self.policy, **dict(self.parts))
        find_format(self.value_format)
        key_format = find_format(self.key_format)
        if not self.keys_per_channel:
            return
        if key_format.block_elements != CHANNEL_GROUP:
            raise ValueError(
                f"Per-channel keys need a format with blocks of {CHANNEL_GROUP}, such as q4_1; "
                f"{self.key_format} has none."
            )
        if self.policy != eviction.NONE:
            raise ValueError("Per-channel keys are measured on a full cache; drop the eviction.")

    @property
    def kind(self) -> str:
        """What it does, in a word: keeps all, forgets, rounds or shares."""
        if self.policy != eviction.NONE:
            return FORGETS
        if self.pooled_kv_heads is not None:
            return SHARES
        wide = {"fp32", "bf16", "fp16"}
        return KEEPS if {self.key_format, self.value_format} <= wide else ROUNDS

    @property
    def budget(self) -> eviction.Budget:
        return eviction.budget_for(self.policy, **dict(self.parts))

    def kept(self, length: int) -> int:
        """Positions held once `length` tokens have been read."""
        total = self.budget.total
        return length if total is None else min(length, total)

    def kept_positions(self, length: int) -> list[int]:
        """Which those are; heavy hitters depend on the attention paid and are not known here."""
        return eviction.kept_positions(length, self.policy, **dict(self.parts))

    def kv_heads(self, layer: int, num_layers: int, num_kv_heads: int) -> int:
        """KV heads this layer keeps."""
        first = 0 if self.pooled_layers is None else num_layers - self.pooled_layers
        if self.pooled_kv_heads is None or layer < first:
            return num_kv_heads
        return self.pooled_kv_heads

    def cache_bytes(self, num_layers: int, num_kv_heads: int, head_dim: int, length: int) -> int:
        """Bytes of keys and values after `length` tokens, scales included."""
        tokens = self.kept(length)
        value_format = find_format(self.value_format)
        total = 0
        for layer in range(num_layers):
            heads = self.kv_heads(layer, num_layers, num_kv_heads)
            total += self._key_bytes(tokens, heads, head_dim)
            total += tokens * value_format.bytes_for(heads, head_dim)
        return total

    def _key_bytes(self, tokens: int, heads: int, head_dim: int) -> int:
        key_format = find_format(self.key_format)
        if not self.keys_per_channel:
            return tokens * key_format.bytes_for(heads, head_dim)
        still_open = tokens % CHANNEL_GROUP
        grouped = key_format.bytes_for(heads * head_dim, tokens - still_open)
        return grouped + still_open * find_format("bf16").bytes_for(heads, head_dim)


REFERENCE = Treatment("Full cache, 32 bits", key_format="fp32", value_format="fp32")
"""What everything is compared with: nothing forgotten, nothing rounded."""

FULL = Treatment("Full cache, 16 bits")


def window(tokens: int) -> Treatment:
    return Treatment(f"Window of {tokens}", eviction.WINDOW, (("window", tokens),))


def sinks_and_window(sinks: int, tokens: int) -> Treatment:
    noun = "sink" if sinks == 1 else "sinks"
    name = f"{sinks} {noun} + window of {tokens}"
    return Treatment(name, eviction.SINKS, (("sinks", sinks), ("window", tokens)))


def heavy_hitters(heavy: int, recent: int) -> Treatment:
    name = f"{heavy} heavy hitters + {recent} recent"
    return Treatment(name, eviction.HEAVY_HITTERS, (("heavy", heavy), ("recent", recent)))


def rounded(name: str, keys: str, values: str, per_channel: bool = False) -> Treatment:
    return Treatment(name, key_format=keys, value_format=values, keys_per_channel=per_channel)


def standard_treatments(budget: int = 256, sinks: int = 4) -> list[Treatment]:
    """Forgetting under one budget in tokens, and rounding from 16 bits down to 4.

    Raises ValueError for a budget that leaves no window beside the sinks.
    """
    if budget <= sinks:
        raise ValueError(f"A budget of {budget} tokens leaves no window beside {sinks} sinks.")
    return [
        FULL,
        window(budget),
        sinks_and_window(sinks, budget - sinks),
        heavy_hitters(budget // 2, budget - budget // 2),
        rounded("8 bits (q8_0)", "q8_0", "q8_0"),
        rounded("K 8 bits, V 4 bits", "q8_0", "q4_1"),
        rounded("K 4 bits, V 8 bits", "q4_1", "q8_0"),
        rounded("4 bits in groups of 32 (q4_1)", "q4_1", "q4_1"),
        rounded("4 bits, keys per channel", "q4_1", "q4_1", per_channel=True),
        rounded("4 bits, one scale per head", "int4_per_token_head", "int4_per_token_head"),
    ]


def pooled_treatments(num_layers: int, num_kv_heads: int) -> list[Treatment]:
    """Fewer KV heads by mean-pooling: the fewest in some layers, then each count in all of them.

    Only the full cache where there is a single KV head already.
    """
    counts = [count for count in range(num_kv_heads - 1, 0, -1) if num_kv_heads % count == 0]
    if not counts:
        return [FULL]
    some = sorted({1, num_layers // 6, num_layers // 2} - {0, num_layers})
    partly = [_pooled(counts[-1], layers, num_layers) for layers in some]
    return [FULL, *partly, *(_pooled(count, num_layers, num_layers) for count in counts)]


def _pooled(kv_heads: int, layers: int, num_layers: int) -> Treatment:
    heads = f"{kv_heads} KV head" + ("s" if kv_heads > 1 else "")
    where = "in every layer" if layers == num_layers else f"in the last {layers}"
    if layers == 1:
        where = "in the last layer"
    return Treatment(f"{heads} {where}", pooled_kv_heads=kv_heads, pooled_layers=layers)
