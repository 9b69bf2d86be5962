"""What SGLang reserves: its static pool, the split between full and window layers, and states.

SGLang gives the cache what is left of `mem_fraction_static` after the weights, and divides it by
the bytes of one token. Windows are sized by a ratio to the full pool, not by the window. It prints
GB and means GiB. Source: SGLang 0.5.23, `pool_configurator.py` and `kv_cache_configurator.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvcore.architecture import (
    CONVOLUTION,
    EMPTY,
    WINDOWED,
    Architecture,
    LayerGroup,
    LayerKind,
)
from kvcore.engines.common import PlanError, entry_bytes
from kvcore.formats import KVFormat
from kvcore.units import GIB

DEFAULT_MEM_FRACTION = 0.88
"""A common value; SGLang itself picks one from the GPU and the batch when it is not given."""

DEFAULT_SWA_RATIO = 0.8
DEFAULT_STATE_RATIO = 0.9
STATE_SLOTS_PER_REQUEST = 3
"""State slots one running request takes with the radix cache on; 1 with it off."""


@dataclass(frozen=True)
class Plan:
    """SGLang's pools on one rank.

    tokens: `max_total_num_tokens`, the full-attention pool (all-window models: the window pool).
    window_tokens: the pool of the windowed layers, None for a model without windows.
    state_slots: sequences' worth of recurrent state, None for a model without state.
    The byte counts include one spare page, which SGLang allocates and never hands out.
    """

    available_bytes: int
    kv_format: str
    tensor_parallel: int
    page_size: int
    cell_bytes: float
    tokens: int
    window_tokens: int | None
    state_slots: int | None
    k_bytes: int
    v_bytes: int
    latent_bytes: int
    index_bytes: int
    window_bytes: int
    conv_state_bytes: int
    matrix_state_bytes: int
    max_requests_by_state: int | None

    @property
    def state_bytes(self) -> int:
        return self.conv_state_bytes + self.matrix_state_bytes

    @property
    def pool_bytes(self) -> int:
        """Everything set aside: full, window, index and state pools."""
        full = self.k_bytes + self.v_bytes + self.latent_bytes + self.index_bytes
        return full + self.window_bytes + self.state_bytes


def pool_bytes(
    free_before_load: int, free_after_load: int, mem_fraction_static: float = DEFAULT_MEM_FRACTION
) -> int:
    """Memory for the pools: free after the weights − free before × (1 − mem_fraction_static).

    The headroom is a share of what was free before loading, not of the whole GPU. May be negative.
    Raises PlanError for a fraction outside 0 … 1.
    """
    if not 0 < mem_fraction_static < 1:
        raise PlanError(f"mem_fraction_static must lie between 0 and 1, not {mem_fraction_static}.")
    return int(free_after_load - free_before_load * (1 - mem_fraction_static))


def plan(
    a: Architecture,
    available_bytes: int | None,
    kv_format: str = "bf16",
    tensor_parallel: int = 1,
    page_size: int = 1,
    swa_full_tokens_ratio: float = DEFAULT_SWA_RATIO,
    state_ratio: float = DEFAULT_STATE_RATIO,
    *,
    tokens: int | None = None,
    draft_layers: int = 0,
    slots_per_request: int = STATE_SLOTS_PER_REQUEST,
) -> Plan:
    """Size SGLang's pools on one rank.

    available_bytes: from pool_bytes. None is allowed only with `tokens`.
    tensor_parallel: ranks that share the attention heads; with data-parallel attention that is
        tp ÷ dp, often 1.
    swa_full_tokens_ratio: window tokens per full token. state_ratio: `mamba_full_memory_ratio`,
        bytes of state per byte of cache.
    tokens: the pool's size if it is set (`--max-total-tokens`) rather than derived.

    Raises PlanError for settings SGLang would refuse or models whose pools are not known here.
    """
    layers = [group for group in a.layers if group.kind not in EMPTY and group.count]
    _check(a, layers, page_size, tensor_parallel, swa_full_tokens_ratio, state_ratio)
    fmt = a.storage_format(kv_format)
    full = [group for group in layers if group.grows]
    windowed = [group for group in layers if group.kind in WINDOWED]
    states = [group for group in layers if group.kind is LayerKind.RECURRENT]

    if available_bytes is None and tokens is None:
        raise PlanError("The memory for the pools is missing; give bytes or a token count.")
    rest = available_bytes
    slots = None
    if states and rest is not None:
        slots = _state_slots(rest, state_ratio, a.state_bytes(tensor_parallel))
        rest -= (slots + 1) * a.state_bytes(tensor_parallel)

    full_cell = sum(_cell(group, fmt, tensor_parallel) for group in full)
    full_cell *= 1 + draft_layers / max(1, sum(group.count for group in full if _stores_kv(group)))
    window_cell = sum(_cell(group, fmt, tensor_parallel) for group in windowed)
    cell = full_cell + swa_full_tokens_ratio * window_cell if full else window_cell
    if tokens is None:
        tokens = int(rest // cell) if cell else 0
    tokens = tokens // page_size * page_size
    if tokens <= 0 and cell:
        raise PlanError(
            "Not one token fits; raise mem_fraction_static, use more GPUs or a smaller model."
        )
    window_tokens = None
    if windowed:
        scaled = int(tokens * swa_full_tokens_ratio) if full else tokens
        window_tokens = scaled // page_size * page_size
    rows = tokens + page_size
    convolution, matrix = state_bytes(a, slots, tensor_parallel) if slots else (0, 0)
    return Plan(
        available_bytes=available_bytes if available_bytes is not None else 0,
        kv_format=fmt.name,
        tensor_parallel=tensor_parallel,
        page_size=page_size,
        cell_bytes=cell,
        tokens=tokens,
        window_tokens=window_tokens,
        state_slots=slots,
        k_bytes=rows * _part(full, fmt, tensor_parallel, values=False),
        v_bytes=rows * _part(full, fmt, tensor_parallel, values=True),
        latent_bytes=rows * _sum_kind(full, LayerKind.LATENT, fmt, tensor_parallel),
        index_bytes=rows * _sum_kind(full, LayerKind.SPARSE_INDEX, fmt, tensor_parallel),
        window_bytes=(window_tokens + page_size) * window_cell if window_tokens else 0,
        conv_state_bytes=convolution,
        matrix_state_bytes=matrix,
        max_requests_by_state=None if slots is None else slots // slots_per_request,
    )


def state_bytes(a: Architecture, slots: int, tensor_parallel: int = 1) -> tuple[int, int]:
    """Bytes of the convolution and of the matrix states: `slots` sequences and one spare slot."""
    convolution = matrix = 0
    for group in a.layers:
        for tensor in group.state:
            size = (slots + 1) * group.count * tensor.bytes(tensor_parallel)
            if tensor.name == CONVOLUTION:
                convolution += size
            else:
                matrix += size
    return convolution, matrix


def startup_lines(p: Plan) -> list[str]:
    """The lines SGLang prints about the pools, without timestamps. Its GB are GiB."""
    lines = []
    if p.state_slots is not None:
        lines.append(
            f"Mamba Cache is allocated. max_mamba_cache_size: {p.state_slots}, conv_state size: "
            f"{p.conv_state_bytes / GIB:.2f}GB, ssm_state size: {p.matrix_state_bytes / GIB:.2f}GB"
        )
    if p.window_tokens is not None:
        lines.append(
            f"Use sliding window memory pool. full_layer_tokens={p.tokens}, "
            f"swa_layer_tokens={p.window_tokens}"
        )
        lines.append(
            f"SWAKVPool mem usage: {(p.k_bytes + p.v_bytes + p.window_bytes) / GIB:.2f} GB, "
            f"swa size: {p.window_tokens}, full size: {p.tokens}"
        )
    elif p.latent_bytes:
        total = p.latent_bytes + p.index_bytes
        lines.append(f"KV Cache is allocated. #tokens: {p.tokens}, KV size: {total / GIB:.2f} GB")
    elif p.k_bytes:
        lines.append(
            f"KV Cache is allocated. #tokens: {p.tokens}, K size: {p.k_bytes / GIB:.2f} GB, "
            f"V size: {p.v_bytes / GIB:.2f} GB"
        )
    return [*lines, f"max_total_num_tokens={p.tokens}"]


def _check(
    a: Architecture,
    layers: list[LayerGroup],
    page_size: int,
    tensor_parallel: int,
    ratio: float,
    state_ratio: float,
) -> None:
    if not layers:
        raise PlanError(f"{a.name or 'This model'} keeps no cache, so there is nothing to plan.")
    if any(group.tokens_per_entry != 1 for group in layers):
        raise PlanError(
            f"{a.name or 'This model'} compresses several tokens into one entry; SGLang keeps "
            "separate pools for that, which are not modelled."
        )
    if any(group.kind is LayerKind.CROSS_ATTENTION for group in layers):
        raise PlanError("SGLang's pools for encoder-decoder models are not modelled.")
    if page_size < 1 or tensor_parallel < 1:
        raise PlanError("Page size and tensor parallelism must be at least 1.")
    if not 0 < ratio <= 1:
        raise PlanError(f"swa_full_tokens_ratio must lie between 0 and 1, not {ratio}.")
    if state_ratio <= 0:
        raise PlanError(f"mamba_full_memory_ratio must be more than 0, not {state_ratio}.")


def _state_slots(rest: int, ratio: float, per_slot: int) -> int:
    """Slots for states: their share of the memory, less the one slot that is always spare."""
    share = rest * ratio / (1 + ratio)
    slots = int((share - per_slot) // per_slot)
    if slots < 1:
        raise PlanError("Not one recurrent state fits; raise mem_fraction_static or use more GPUs.")
    return slots


def _stores_kv(group: LayerGroup) -> bool:
    return group.kind is not LayerKind.SPARSE_INDEX


def _cell(group: LayerGroup, fmt: KVFormat, tensor_parallel: int) -> int:
    return group.count * entry_bytes(group, fmt, tensor_parallel)


def _sum_kind(layers: list[LayerGroup], kind: LayerKind, fmt: KVFormat, ranks: int) -> int:
    return sum(_cell(group, fmt, ranks) for group in layers if group.kind is kind)


def _part(layers: list[LayerGroup], fmt: KVFormat, ranks: int, values: bool) -> int:
    """Bytes per token of the keys, or of the values, of all full layers."""
    return sum(
        group.count
        * fmt.bytes_for(
            group.heads_per_rank(ranks), group.value_head_dim if values else group.head_dim
        )
        for group in layers
        if group.kind is LayerKind.FULL
    )
