"""What a model stores for each token and each sequence: groups of layers, and their bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kvcore.checks import is_whole
from kvcore.formats import (
    KVFormat,
    dtype_bytes,
    find_format,
    index_key_bytes,
    latent_bytes,
)


class LayerKind(StrEnum):
    """What one layer keeps in memory between two tokens."""

    FULL = "full"
    SLIDING_WINDOW = "sliding_window"
    CHUNKED = "chunked"
    LATENT = "latent"
    SPARSE_INDEX = "sparse_index"
    RECURRENT = "recurrent"
    SHARED = "shared"
    CROSS_ATTENTION = "cross_attention"
    NONE = "none"


WINDOWED = frozenset({LayerKind.SLIDING_WINDOW, LayerKind.CHUNKED})
EMPTY = frozenset({LayerKind.SHARED, LayerKind.NONE})


class Source(StrEnum):
    """Where a value comes from."""

    CONFIG = "config"
    CLASS_DEFAULT = "class default"
    ASSUMPTION = "assumption"


@dataclass(frozen=True)
class FieldSource:
    """The origin of one field of a layer group: the key read, the class, or the reason assumed."""

    field: str
    value: object
    source: Source
    detail: str


@dataclass(frozen=True)
class HeadPart:
    """`copies` × `heads` × `width` elements; ranks share the heads, at least one each."""

    heads: int
    width: int
    copies: int = 1

    def elements(self, tensor_parallel: int = 1) -> int:
        return self.copies * heads_per_rank(self.heads, tensor_parallel) * self.width


@dataclass(frozen=True)
class StateTensor:
    """One tensor of a recurrent state, kept once per sequence.

    `depth` is the other axis: kernel − 1 for a convolution, the state size (or key width) for a
    matrix.
    """

    name: str
    parts: tuple[HeadPart, ...]
    depth: int
    dtype: str

    def elements(self, tensor_parallel: int = 1, extra_depth: int = 0) -> int:
        width = sum(part.elements(tensor_parallel) for part in self.parts)
        return width * (self.depth + extra_depth)

    def bytes(
        self, tensor_parallel: int = 1, extra_depth: int = 0, dtype: str | None = None
    ) -> int:
        """Bytes per layer, sequence and rank; `dtype` overrides the stored one."""
        return self.elements(tensor_parallel, extra_depth) * dtype_bytes(dtype or self.dtype)


CONVOLUTION = "convolution"
MATRIX = "matrix"


@dataclass(frozen=True)
class LayerGroup:
    """Layers that keep the same thing.

    num_kv_heads, head_dim, value_head_dim: widths of keys and values; value_head_dim 0 means
        that no separate value is stored.
    window: tokens a windowed or chunked layer keeps; encoder positions of a cross-attention layer.
    latent_rank, rope_dim: the two parts of a latent vector.
    tokens_per_entry: tokens that share one stored entry (1 except in compressed attention).
    state: tensors of a recurrent layer.
    layer_ids: positions in the model, for pipeline splits.
    pinned_format: a format this group keeps whatever the user chooses for the rest.
    """

    kind: LayerKind
    count: int
    num_kv_heads: int = 0
    head_dim: int = 0
    value_head_dim: int = 0
    window: int | None = None
    latent_rank: int = 0
    rope_dim: int = 0
    tokens_per_entry: int = 1
    state: tuple[StateTensor, ...] = ()
    layer_ids: tuple[int, ...] = ()
    pinned_format: str | None = None
    label: str = ""
    provenance: tuple[FieldSource, ...] = ()

    @property
    def grows(self) -> bool:
        """Whether every further token adds bytes for ever."""
        return self.kind in (LayerKind.FULL, LayerKind.LATENT, LayerKind.SPARSE_INDEX)

    def heads_per_rank(self, tensor_parallel: int = 1) -> int:
        return heads_per_rank(self.num_kv_heads, tensor_parallel)

    def entry_bytes(self, kv_format: str | KVFormat = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes of one stored entry (one token's keys and values) in one layer, on one rank.

        0 for layers that store nothing per token: recurrent, shared, none.
        """
        fmt = find_format(self.pinned_format or kv_format)
        if self.kind is LayerKind.LATENT:
            return latent_bytes(fmt, self.latent_rank, self.rope_dim)
        if self.kind is LayerKind.SPARSE_INDEX:
            return self.num_kv_heads * index_key_bytes(fmt, self.head_dim)
        if self.kind is LayerKind.RECURRENT or self.kind in EMPTY:
            return 0
        heads = self.heads_per_rank(tensor_parallel)
        return fmt.bytes_for(heads, self.head_dim) + fmt.bytes_for(heads, self.value_head_dim)

    def state_bytes(
        self, tensor_parallel: int = 1, extra_depth: int = 0, dtype: str | None = None
    ) -> int:
        """Bytes of one layer's recurrent state for one sequence on one rank.

        `extra_depth` lengthens the convolution (vLLM adds the draft length there); `dtype`
        overrides the dtype of every part (llama.cpp keeps fp32).
        """
        return sum(
            tensor.bytes(tensor_parallel, extra_depth if tensor.name == CONVOLUTION else 0, dtype)
            for tensor in self.state
        )

    def entries(self, tokens: int) -> int:
        """Entries one layer holds once a sequence is `tokens` long."""
        if tokens <= 0:
            return 0
        if self.kind is LayerKind.CROSS_ATTENTION:
            return self.window or 0
        held = tokens if self.window is None else min(tokens, self.window)
        return held // self.tokens_per_entry

    def growth_bytes(self, kv_format: str | KVFormat = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes each further token adds for ever, all layers of the group, one rank; rounded up."""
        if not self.grows:
            return 0
        return -(
            -self.count * self.entry_bytes(kv_format, tensor_parallel) // self.tokens_per_entry
        )

    def fixed_bytes(self, kv_format: str | KVFormat = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes that do not grow with the sequence: full windows, encoder keys, state."""
        if self.kind is LayerKind.RECURRENT:
            return self.count * self.state_bytes(tensor_parallel)
        if self.kind not in WINDOWED and self.kind is not LayerKind.CROSS_ATTENTION:
            return 0
        held = (self.window or 0) // self.tokens_per_entry
        return self.count * held * self.entry_bytes(kv_format, tensor_parallel)

    def cache_bytes(
        self, tokens: int, kv_format: str | KVFormat = "bf16", tensor_parallel: int = 1
    ) -> int:
        """Bytes the group holds for one sequence of `tokens`, on one rank."""
        if tokens <= 0:
            return 0
        if self.kind is LayerKind.RECURRENT:
            return self.count * self.state_bytes(tensor_parallel)
        return self.count * self.entries(tokens) * self.entry_bytes(kv_format, tensor_parallel)


def heads_per_rank(heads: int, tensor_parallel: int) -> int:
    """KV heads on each rank: max(1, heads // tensor_parallel), so few heads are copied.

    Source: vLLM's get_num_kv_heads. 0 heads stay 0.
    """
    if not is_whole(tensor_parallel) or tensor_parallel < 1:
        raise ValueError(f"Tensor parallelism must be 1 or more, not {tensor_parallel!r}.")
    return max(1, heads // tensor_parallel) if heads > 0 else 0


@dataclass(frozen=True)
class ByteRange:
    """Bytes known to lie between two bounds; equal bounds are a plain number."""

    low: int
    high: int

    @property
    def exact(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True)
class Uncertainty:
    """A key of the config that leaves the answer open, and why."""

    key: str
    reason: str


@dataclass(frozen=True)
class Architecture:
    """What a model keeps: its layer groups, and where each number was read.

    Where the config leaves the answer open, `layers` is the larger reading, `low_layers` the
    smaller one and `uncertain` names the keys. Every count below then is the larger; the `*_range`
    methods give both.
    """

    model_type: str
    layers: tuple[LayerGroup, ...]
    name: str = ""
    num_layers: int = 0
    num_attention_heads: int = 0
    hidden_size: int = 0
    model_dtype: str | None = None
    kv_dtype: str | None = None
    max_context: int | None = None
    draft_layers: int = 0
    low_layers: tuple[LayerGroup, ...] | None = None
    uncertain: tuple[Uncertainty, ...] = ()
    provenance: tuple[FieldSource, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_config(cls, config: Mapping) -> Architecture:
        """Read a config.json. Raises kvcore.config_json.ConfigError, naming the key."""
        from kvcore.config_json import read_config

        return read_config(config)

    @classmethod
    def uniform(
        cls, num_layers: int, num_kv_heads: int, head_dim: int, name: str = "", **fields: object
    ) -> Architecture:
        """A model whose layers all attend to everything with the same heads."""
        for label, value in (
            ("num_layers", num_layers),
            ("num_kv_heads", num_kv_heads),
            ("head_dim", head_dim),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{label} must be a whole number of at least 1, not {value!r}.")
        group = LayerGroup(
            LayerKind.FULL,
            num_layers,
            num_kv_heads,
            head_dim,
            head_dim,
            layer_ids=tuple(range(num_layers)),
        )
        return cls("custom", (group,), name=name, num_layers=num_layers, **fields)

    @property
    def exact(self) -> bool:
        """Whether every number is known rather than bounded."""
        return self.low_layers is None

    @property
    def is_hybrid(self) -> bool:
        return any(group.kind is LayerKind.RECURRENT for group in self.layers)

    @property
    def has_sparse_index(self) -> bool:
        return any(group.kind is LayerKind.SPARSE_INDEX for group in self.layers)

    def storage_format(self, kv_format: str | KVFormat = "bf16") -> KVFormat:
        """The format the model really gets when asked for `kv_format`.

        "auto" is the checkpoint's own KV dtype. FP8 with sparse latent attention is `fp8_ds_mla` in
        vLLM and SGLang.
        """
        if kv_format == "auto":
            kv_format = self.kv_dtype or self.model_dtype or "bf16"
        fmt = find_format(kv_format)
        if fmt.name == "fp8" and self.has_sparse_index and self._has_latent:
            return find_format("fp8_ds_mla")
        return fmt

    @property
    def _has_latent(self) -> bool:
        return any(group.kind is LayerKind.LATENT for group in self.layers)

    def growth_bytes(self, kv_format: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes per token per rank that never stop growing."""
        fmt = self.storage_format(kv_format)
        return sum(group.growth_bytes(fmt, tensor_parallel) for group in self.layers)

    def fixed_bytes(self, kv_format: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes per sequence per rank that do not grow: full windows, encoder keys, state."""
        fmt = self.storage_format(kv_format)
        return sum(group.fixed_bytes(fmt, tensor_parallel) for group in self.layers)

    def cache_bytes(self, tokens: int, kv_format: str = "bf16", tensor_parallel: int = 1) -> int:
        """Bytes one sequence of `tokens` holds on one rank: growth, windows and state."""
        return self._cache_bytes(self.layers, tokens, kv_format, tensor_parallel)

    def state_bytes(self, tensor_parallel: int = 1) -> int:
        """Bytes of recurrent state per sequence and rank."""
        return sum(group.count * group.state_bytes(tensor_parallel) for group in self.layers)

    def growth_range(self, kv_format: str = "bf16", tensor_parallel: int = 1) -> ByteRange:
        fmt = self.storage_format(kv_format)
        return self._bounds(lambda group: group.growth_bytes(fmt, tensor_parallel))

    def fixed_range(self, kv_format: str = "bf16", tensor_parallel: int = 1) -> ByteRange:
        fmt = self.storage_format(kv_format)
        return self._bounds(lambda group: group.fixed_bytes(fmt, tensor_parallel))

    def cache_range(
        self, tokens: int, kv_format: str = "bf16", tensor_parallel: int = 1
    ) -> ByteRange:
        high = self._cache_bytes(self.layers, tokens, kv_format, tensor_parallel)
        if self.low_layers is None:
            return ByteRange(high, high)
        low = self._cache_bytes(self.low_layers, tokens, kv_format, tensor_parallel)
        return ByteRange(min(low, high), max(low, high))

    def _bounds(self, measure: Callable[[LayerGroup], int]) -> ByteRange:
        low = self.low_layers if self.low_layers is not None else self.layers
        bounds = sorted(sum(measure(group) for group in layers) for layers in (low, self.layers))
        return ByteRange(*bounds)

    def _cache_bytes(
        self,
        layers: tuple[LayerGroup, ...],
        tokens: int,
        kv_format: str,
        tensor_parallel: int,
    ) -> int:
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
            raise ValueError(f"Tokens must be a whole number of at least 0, not {tokens!r}.")
        fmt = self.storage_format(kv_format)
        return sum(group.cache_bytes(tokens, fmt, tensor_parallel) for group in layers)

    def stages(self, layers_per_stage: Sequence[int]) -> tuple[Architecture, ...]:
        """One architecture for each pipeline stage, `layers_per_stage[i]` layers on stage i.

        Raises ValueError unless the counts add up to the model's layers.
        """
        if sum(layers_per_stage) != self.num_layers or min(layers_per_stage, default=0) < 0:
            raise ValueError(
                f"The stages hold {sum(layers_per_stage)} layers, but {self.name or 'the model'} "
                f"has {self.num_layers}."
            )
        stages, start = [], 0
        for size in layers_per_stage:
            stages.append(self._slice(start, start + size))
            start += size
        return tuple(stages)

    def _slice(self, start: int, stop: int) -> Architecture:
        def part(layers: tuple[LayerGroup, ...]) -> tuple[LayerGroup, ...]:
            kept = (group_slice(group, start, stop) for group in layers)
            return tuple(group for group in kept if group.count)

        return replace(
            self,
            layers=part(self.layers),
            low_layers=None if self.low_layers is None else part(self.low_layers),
            num_layers=stop - start,
        )


def group_slice(group: LayerGroup, start: int, stop: int) -> LayerGroup:
    """The part of a group that lies in layers start … stop − 1."""
    ids = tuple(i for i in group.layer_ids if start <= i < stop)
    return replace(group, layer_ids=ids, count=len(ids))


def even_stages(num_layers: int, pipeline_parallel: int) -> tuple[int, ...]:
    """Layers per stage when nothing is said: as even as can be.

    Source: vLLM's get_pp_indices, which spares the last stage and gives the remainder to those
    before it.
    """
    if not 1 <= pipeline_parallel <= num_layers:
        raise ValueError(f"{num_layers} layers cannot be split over {pipeline_parallel} stages.")
    each, left = divmod(num_layers, pipeline_parallel)
    sizes = [each] * pipeline_parallel
    for i in range(2, left + 2):
        sizes[-i] += 1
    return tuple(sizes)
