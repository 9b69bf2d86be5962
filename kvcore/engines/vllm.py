"""What vLLM reserves: its memory budget, its block pool and the lines it prints about them.

Sources: vLLM 0.32.0 and 0.33.0 (`kv_cache_utils.py`, `kv_cache_interface.py`, `gpu_worker.py`) and
the logs in the conformance set. The rules are re-derived here; nothing is imported from vLLM.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvcore.architecture import Architecture, LayerKind, even_stages
from kvcore.checks import is_finite, is_whole, whole
from kvcore.engines.common import PlanError, version_tuple
from kvcore.engines.vllm_pages import Layout, Page, layout
from kvcore.units import GIB

__all__ = [
    "CPU_BLOCK_SIZE",
    "DEFAULT_BLOCK_SIZE",
    "Budget",
    "Overhead",
    "Plan",
    "PlanError",
    "PlanGroup",
    "RankPlan",
    "budget",
    "default_utilisation",
    "longest_context",
    "plan",
    "startup_lines",
]

DEFAULT_BLOCK_SIZE = 16
CPU_BLOCK_SIZE = 128
"""Block size of the CPU backend (0.32.0: 2 GiB of 23,040-byte tokens gave 728 blocks)."""

MOST_RANKS = 4096

IN_FLIGHT = "tokens in flight beside the window"
BLOCK_ROUNDING = "rounding to whole blocks"
STATE_COPIES = "state copies for prefix caching and drafts"
SPECULATION = "speculative decoding"
PAGE_PADDING = "pages padded to one size"
PADDING_LAYERS = "padding layers"
TERMS = (IN_FLIGHT, BLOCK_ROUNDING, STATE_COPIES, SPECULATION, PAGE_PADDING, PADDING_LAYERS)
"""What a request reserves beyond what its architecture needs."""

CONCURRENCY_TOKENS_SINCE = (0, 20, 2)
"""From here on the token count is concurrency × length (inferred from dated logs)."""
GRAPHS_COUNTED_SINCE = (0, 21, 0)
UTILISATION_092_SINCE = (0, 33, 0)
KV_CACHE_SIZE_SINCE = (0, 8, 0)
"""From here on tokens are printed instead of blocks (the V1 engine)."""
ONE_LINE_SINCE = (0, 28, 0)
"""From here on tokens and concurrency are printed in one line (seen in 0.28.0 and 0.32.0)."""


@dataclass(frozen=True)
class Budget:
    """How vLLM arrives at the memory it gives to the cache, bytes on one rank."""

    total_bytes: int
    utilisation: float
    requested_bytes: int
    non_kv_bytes: int
    graph_bytes: int
    graphs_counted: bool
    available_bytes: int


@dataclass(frozen=True)
class PlanGroup:
    """Layers that share a block table.

    blocks_per_request: blocks one request at the full length may hold in this group.
    bytes_per_block: bytes of one block over all its layers, padding layers included.
    """

    kind: str
    layers: int
    padding_layers: int
    block_size: int
    blocks_per_request: int
    bytes_per_block: int
    window: int | None = None


@dataclass(frozen=True)
class RankPlan:
    """One worker: its stage, the memory it has, and the blocks that would fit there."""

    stage: int
    tensor_rank: int
    layers: int
    available_bytes: int | None
    bytes_per_block: int
    bytes_per_request: int
    num_blocks: int


@dataclass(frozen=True)
class Overhead:
    """Bytes one request reserves beyond what the architecture needs, and the reason."""

    term: str
    bytes: int


@dataclass(frozen=True)
class Plan:
    """vLLM's plan of its block pool.

    block_size: tokens per block of the attention layers (the smallest, as vLLM reports it).
    num_blocks: blocks on every rank, the minimum over ranks.
    bytes_per_request: bytes one request of max_model_len reserves on the rank that limits.
    kv_cache_tokens: the number vLLM prints, with the meaning it has in `version`.
    max_concurrency: num_blocks ÷ blocks_per_request.
    limiting_rank: the rank with room for the fewest blocks.
    overheads: what makes bytes_per_request larger than the architecture's need.
    """

    version: str
    max_model_len: int
    kv_format: str
    tensor_parallel: int
    pipeline_parallel: int
    block_size: int
    num_blocks: int
    blocks_per_request: int
    bytes_per_request: int
    kv_cache_tokens: int
    max_concurrency: float
    groups: tuple[PlanGroup, ...]
    ranks: tuple[RankPlan, ...]
    limiting_rank: RankPlan
    overheads: tuple[Overhead, ...]
    needed_bytes: int
    padding: tuple[tuple[int, int], ...]
    state_page_used: int
    state_page_bytes: int
    state_blocks_per_request: int
    raised_block_size: bool
    plain_tokens: int | None
    device: str = "GPU"

    @property
    def bytes_per_block(self) -> int:
        return self.limiting_rank.bytes_per_block

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pool on the limiting rank, all blocks."""
        return self.num_blocks * self.bytes_per_block

    @property
    def fits(self) -> bool:
        """Whether one request of max_model_len fits on every rank; if not vLLM does not start."""
        return all(
            rank.available_bytes is None or rank.bytes_per_request <= rank.available_bytes
            for rank in self.ranks
        )

    @property
    def state_slots(self) -> int | None:
        """Sequences whose recurrent state fits at once; None for a model without state."""
        if not self.state_blocks_per_request:
            return None
        return self.num_blocks // self.state_blocks_per_request

    def capacity(self, num_blocks: int) -> tuple[int, float]:
        """(kv_cache_tokens, max_concurrency) of a pool of num_blocks, otherwise as planned."""
        return _capacity(
            num_blocks,
            self.blocks_per_request,
            self.max_model_len,
            len(self.groups),
            self.block_size,
            version_tuple(self.version),
        )

    @property
    def cluster_bytes_per_request(self) -> int:
        """Bytes one request reserves on all ranks together."""
        return sum(rank.bytes_per_request for rank in self.ranks)


def default_utilisation(version: str = "0.33") -> float:
    """`gpu_memory_utilization` when nothing is said: 0.92 in 0.33, 0.90 before."""
    return 0.92 if version_tuple(version) >= UTILISATION_092_SINCE else 0.90


def budget(
    total_bytes: int,
    non_kv_bytes: int,
    graph_bytes: int = 0,
    utilisation: float | None = None,
    version: str = "0.33",
) -> Budget:
    """Memory for the cache on one rank: ceil(total × utilisation) − non-KV − CUDA graphs.

    total_bytes: what the runtime sees, not the sticker. non_kv_bytes: weights, peak activation and
    everything outside torch. graph_bytes count since 0.21.0; before, graphs came on top.
    available_bytes may be negative, and then vLLM does not start.
    Raises PlanError for a utilisation outside 0 … 1 or a total that is not positive.
    """
    share = default_utilisation(version) if utilisation is None else utilisation
    if not 0 < share <= 1:
        raise PlanError(f"The memory utilisation must lie between 0 and 1, not {share}.")
    if total_bytes <= 0:
        raise PlanError("The GPU's memory must be more than 0 bytes.")
    requested = math.ceil(total_bytes * share)
    counted = version_tuple(version) >= GRAPHS_COUNTED_SINCE
    available = requested - non_kv_bytes - (graph_bytes if counted else 0)
    return Budget(total_bytes, share, requested, non_kv_bytes, graph_bytes, counted, available)


def plan(
    a: Architecture,
    available_bytes: int | Sequence[int] | None,
    max_model_len: int,
    kv_format: str = "bf16",
    tensor_parallel: int = 1,
    block_size: int = DEFAULT_BLOCK_SIZE,
    max_num_batched_tokens: int = 8192,
    prefix_caching: bool = True,
    speculative_tokens: int = 0,
    version: str = "0.33",
    *,
    pipeline_parallel: int | None = None,
    layers_per_stage: Sequence[int] | None = None,
    concurrent_batches: int = 1,
    num_blocks: int | None = None,
    device: str = "GPU",
) -> Plan:
    """Plan the block pool as vLLM does.

    available_bytes: memory for the cache on each rank, or a sequence with one entry per rank
        (pipeline stage by stage, tensor ranks within each). A sequence longer than tensor_parallel
        means pipeline stages. None is allowed only with num_blocks.
    block_size: tokens per block asked for (16; the CPU backend takes 128).
    max_num_batched_tokens × concurrent_batches: tokens in flight, kept beside each window.
    prefix_caching: a hybrid then keeps two state blocks per request, else one.
    speculative_tokens: draft length; adds the model's own draft layers and state copies.
    layers_per_stage: layers on each pipeline stage (VLLM_PP_LAYER_PARTITION); default is vLLM's.
    num_blocks: the pool's size, if it is set rather than derived (`num_gpu_blocks_override`).

    Raises PlanError for settings vLLM would refuse, in one sentence.
    """
    _check_settings(max_model_len, tensor_parallel, block_size, max_num_batched_tokens)
    whole("Speculative tokens", speculative_tokens, 0, PlanError)
    whole("concurrent_batches", concurrent_batches, 1, PlanError)
    release = version_tuple(version)
    pages = layout(
        a, kv_format, tensor_parallel, block_size, speculative_tokens, max_model_len, release
    )
    available, stages = _ranks(available_bytes, tensor_parallel, pipeline_parallel, num_blocks)
    bounds = _stage_bounds(a, stages, layers_per_stage)
    in_flight = max_num_batched_tokens * concurrent_batches
    state_blocks = (2 if prefix_caching else 1) + speculative_tokens

    blocks = [group.page.blocks(max_model_len, in_flight, state_blocks) for group in pages.groups]
    ranks = (
        _rank(pages, blocks, bounds[index // tensor_parallel], tensor_parallel, index, memory)
        for index, memory in enumerate(available)
    )
    holding = [rank for rank in ranks if rank.bytes_per_block]
    if not holding:
        raise PlanError("No rank holds a layer with a cache.")
    limiting = min(holding, key=lambda rank: (rank.num_blocks, -rank.bytes_per_block))
    if num_blocks is not None:
        limiting = replace(limiting, num_blocks=num_blocks)
        holding = [replace(rank, num_blocks=num_blocks) for rank in holding]
    pool = limiting.num_blocks
    needed_blocks = sum(blocks)
    sizes = [g.page.tokens for g in pages.groups if g.page.kind is not LayerKind.RECURRENT]
    smallest = min(sizes, default=pages.groups[0].page.tokens)
    tokens, concurrency = _capacity(
        pool, needed_blocks, max_model_len, len(pages.groups), smallest, release
    )
    states = [group.page for group in pages.groups if group.page.kind is LayerKind.RECURRENT]
    return Plan(
        version=str(version),
        max_model_len=max_model_len,
        kv_format=a.storage_format(kv_format).name,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=stages,
        block_size=smallest,
        num_blocks=pool,
        blocks_per_request=needed_blocks,
        bytes_per_request=limiting.bytes_per_request,
        kv_cache_tokens=tokens,
        max_concurrency=concurrency,
        groups=_plan_groups(pages, blocks),
        ranks=tuple(holding),
        limiting_rank=limiting,
        overheads=_overheads(pages, blocks, bounds[limiting.stage], max_model_len, in_flight),
        needed_bytes=_needed(pages, bounds[limiting.stage], max_model_len),
        padding=pages.padding,
        state_page_used=max((page.used_bytes for page in states), default=0),
        state_page_bytes=max((page.page_bytes for page in states), default=0),
        state_blocks_per_request=len(states) * state_blocks,
        raised_block_size=bool(states and sizes) and smallest > block_size,
        plain_tokens=_plain_tokens(a, limiting, kv_format, tensor_parallel, stages),
        device=device,
    )


def longest_context(
    a: Architecture,
    available_bytes: int | Sequence[int],
    max_model_len: int,
    **settings: object,
) -> int:
    """The longest max_model_len for which one request fits on every rank; 0 when none does.

    Binary search up to the length asked for, as vLLM does for the hint in its error message.
    """

    def fits(length: int) -> bool:
        return plan(a, available_bytes, length, **settings).fits

    if not fits(1):
        return 0
    low, high = 1, max_model_len
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def startup_lines(p: Plan, longest: int | None = None) -> list[str]:
    """The lines vLLM prints about the plan, without timestamps.

    longest: the result of longest_context, for the hint where one request does not fit.
    """
    lines = []
    if p.raised_block_size:
        lines.append(
            f"Setting attention block size to {p.block_size} tokens to ensure that attention page "
            "size is >= mamba page size."
        )
    if p.raised_block_size and p.state_page_bytes > p.state_page_used:
        share = 100 * (p.state_page_bytes - p.state_page_used) / p.state_page_used
        lines.append(
            f"Padding mamba page size by {share:.2f}% to ensure that mamba page size and attention "
            "page size are exactly equal."
        )
    memory = [rank.available_bytes for rank in p.ranks if rank.available_bytes is not None]
    lines += [f"Available KV cache memory: {each / GIB:.2f} GiB" for each in dict.fromkeys(memory)]
    lines += [
        f"Add {extra} padding layers, may waste at most {extra / real * 100:.2f}% KV cache memory"
        for extra, real in p.padding
    ]
    if version_tuple(p.version) < KV_CACHE_SIZE_SINCE:
        return [*lines, *_early_lines(p)]
    if not p.fits:
        return [*lines, _refusal(p, longest)]
    size = f"{p.device} KV cache size: {p.kv_cache_tokens:,} tokens"
    users = (
        f"Maximum concurrency for {p.max_model_len:,} tokens per request: {p.max_concurrency:.2f}x"
    )
    if version_tuple(p.version) >= ONE_LINE_SINCE:
        return [*lines, f"{size}, {users}"]
    return [*lines, size, users]


def _early_lines(p: Plan) -> list[str]:
    """Early versions printed blocks, and compared the length with the tokens of the pool."""
    stored = p.num_blocks * p.block_size
    lines = [
        f"# {p.device} blocks: {p.num_blocks}",
        f"Maximum concurrency for {p.max_model_len} tokens per request: {p.max_concurrency:.2f}x",
    ]
    if stored < p.max_model_len:
        lines.append(
            f"ValueError: The model's max seq len ({p.max_model_len}) is larger than the maximum "
            f"number of tokens that can be stored in KV cache ({stored})."
        )
    return lines


def _refusal(p: Plan, longest: int | None) -> str:
    rank = min(p.ranks, key=lambda r: (r.available_bytes or 0) - r.bytes_per_request)
    hint = (
        f"Based on the available memory, the estimated maximum model length is {longest}. "
        if longest
        else ""
    )
    return (
        f"ValueError: To serve at least one request with the model's max seq len "
        f"({p.max_model_len}), ({rank.bytes_per_request / GIB:.2f} GiB KV cache is needed, which "
        f"is larger than the available KV cache memory ({(rank.available_bytes or 0) / GIB:.2f} "
        f"GiB). {hint}".rstrip()
    )


def _capacity(
    num_blocks: int,
    blocks_per_request: int,
    max_model_len: int,
    num_groups: int,
    block_size: int,
    release: tuple[int, int, int],
) -> tuple[int, float]:
    """Tokens, as this version counts them, and concurrency."""
    concurrency = num_blocks / blocks_per_request
    if release >= CONCURRENCY_TOKENS_SINCE:
        return int(concurrency * max_model_len), concurrency
    return num_blocks // num_groups * block_size, concurrency


def _check_settings(
    max_model_len: int, tensor_parallel: int, block_size: int, max_num_batched_tokens: int
) -> None:
    for name, value in (
        ("max_model_len", max_model_len),
        ("tensor_parallel", tensor_parallel),
        ("block_size", block_size),
        ("max_num_batched_tokens", max_num_batched_tokens),
    ):
        if not is_whole(value) or value < 1:
            raise PlanError(f"{name} must be a whole number of at least 1, not {value!r}.")


def _ranks(
    available: int | Sequence[int] | None,
    tensor_parallel: int,
    pipeline_parallel: int | None,
    num_blocks: int | None,
) -> tuple[list[int | None], int]:
    """The memory of each rank, and the number of pipeline stages."""
    if tensor_parallel * (pipeline_parallel or 1) > MOST_RANKS:
        raise PlanError(f"More than {MOST_RANKS:,} ranks are more than any cluster here has.")
    if num_blocks is not None and num_blocks < 0:
        raise PlanError(f"num_blocks must be 0 or more, not {num_blocks}.")
    if isinstance(available, Sequence) and not isinstance(available, str):
        stages = pipeline_parallel or max(1, len(available) // tensor_parallel)
        if len(available) != stages * tensor_parallel:
            raise PlanError(
                f"{stages * tensor_parallel} ranks need as many memory sizes, not {len(available)}."
            )
        memory: list[int | None] = [_bytes(each) for each in available]
    else:
        stages = pipeline_parallel or 1
        memory = [None if available is None else _bytes(available)] * (stages * tensor_parallel)
    if num_blocks is None:
        if any(each is None for each in memory):
            raise PlanError("The memory for the cache is missing; give bytes or a block count.")
        least = min(each for each in memory if each is not None)
        if least <= 0:
            raise PlanError(
                f"No memory is left for the cache ({least / GIB:.2f} GiB); raise the utilisation, "
                "lower the overhead or add GPUs."
            )
    return memory, stages


def _bytes(available: float) -> int:
    if not is_finite(available):
        raise PlanError(f"The memory for the cache is a number of bytes, not {available!r}.")
    return int(available)


def _stage_bounds(
    a: Architecture, stages: int, layers_per_stage: Sequence[int] | None
) -> list[tuple[int, float]]:
    """First and one-past-last layer of each stage; the last one also holds the drafter."""
    if stages == 1 and layers_per_stage is None:
        return [(0, math.inf)]
    total = a.num_layers or sum(group.count for group in a.layers)
    try:
        sizes = tuple(layers_per_stage) if layers_per_stage else even_stages(total, stages)
    except ValueError as error:
        raise PlanError(str(error)) from None
    if len(sizes) != stages or sum(sizes) != total or min(sizes) < 0:
        raise PlanError(
            f"{stages} pipeline stages must share {total} layers, "
            f"not {' + '.join(map(str, sizes))}."
        )
    ends = [sum(sizes[: i + 1]) for i in range(stages)]
    starts = [0, *ends[:-1]]
    return list(zip(starts, [*ends[:-1], math.inf], strict=True))


def _rank(
    pages: Layout,
    blocks: Sequence[int],
    bounds: tuple[int, float],
    tensor_parallel: int,
    index: int,
    memory: int | None,
) -> RankPlan:
    held = [group.counts(*bounds) for group in pages.groups]
    per_block = _bytes_per_block(pages, held)
    return RankPlan(
        stage=index // tensor_parallel,
        tensor_rank=index % tensor_parallel,
        layers=sum(_layers(counts) for counts in held),
        available_bytes=memory,
        bytes_per_block=per_block,
        bytes_per_request=per_block * sum(blocks),
        num_blocks=(memory or 0) // per_block if per_block else 0,
    )


Counts = list[tuple[Page, int]]


def _layers(counts: Counts) -> int:
    return sum(count for _, count in counts)


def _bytes_per_block(pages: Layout, held: Sequence[Counts]) -> int:
    """Bytes of one block id on a rank: one page in each of its layer slots."""
    if pages.mixed:
        return sum(count * page.page_bytes for counts in held for page, count in counts)
    return max(_layers(counts) for counts in held) * pages.groups[0].page.page_bytes


def _plan_groups(pages: Layout, blocks: Sequence[int]) -> tuple[PlanGroup, ...]:
    planned = []
    for group, needed in zip(pages.groups, blocks, strict=True):
        padding = 0 if pages.mixed else pages.group_size - group.num_layers
        size = sum(count * page.page_bytes for page, count in group.counts())
        planned.append(
            PlanGroup(
                kind=" + ".join(kind.value for kind in group.kinds),
                layers=group.num_layers,
                padding_layers=padding,
                block_size=group.page.tokens,
                blocks_per_request=needed,
                bytes_per_block=size + padding * group.page.page_bytes,
                window=group.page.window,
            )
        )
    return tuple(planned)


def _needed(pages: Layout, bounds: tuple[int, float], length: int) -> int:
    """Bytes the architecture needs for one sequence on a rank, without drafter or pages."""
    start, stop = bounds
    own = (start, min(stop, pages.first_draft))
    return sum(
        count * page.bytes_needed(length)
        for group in pages.groups
        for page, count in group.counts(*own)
    )


def _overheads(
    pages: Layout,
    blocks: Sequence[int],
    bounds: tuple[int, float],
    length: int,
    in_flight: int,
) -> tuple[Overhead, ...]:
    """Split what a request reserves beyond its need, on one rank. The terms add up exactly."""
    terms = dict.fromkeys(TERMS, 0)
    held = [group.counts(*bounds) for group in pages.groups]
    slots = max(_layers(counts) for counts in held)
    for group, counts, needed in zip(pages.groups, held, blocks, strict=True):
        for page, count in counts:
            terms[PAGE_PADDING] += count * needed * (page.page_bytes - page.used_bytes)
            if page.kind is LayerKind.RECURRENT:
                longer = page.used_bytes - page.state_bytes
                terms[SPECULATION] += count * needed * longer
                terms[STATE_COPIES] += count * (needed - 1) * page.state_bytes
                continue
            held_tokens = page.tokens_held(length, in_flight)
            ahead = held_tokens - page.tokens_needed(length)
            unused = needed * page.tokens - held_tokens
            terms[IN_FLIGHT] += count * ahead * page.entry_bytes
            terms[BLOCK_ROUNDING] += count * unused * page.entry_bytes
        for page, count in group.counts(max(bounds[0], pages.first_draft), bounds[1]):
            terms[SPECULATION] += count * page.bytes_needed(length)
        if not pages.mixed:
            empty = slots - _layers(counts)
            terms[PADDING_LAYERS] += empty * needed * pages.groups[0].page.page_bytes
    return tuple(Overhead(term, size) for term, size in terms.items() if size)


def _plain_tokens(
    a: Architecture, rank: RankPlan, kv_format: str, tensor_parallel: int, stages: int
) -> int | None:
    """The naive count: available bytes ÷ bytes per token. None where that means nothing."""
    per_token = a.growth_bytes(kv_format, tensor_parallel)
    if rank.available_bytes is None or not per_token or stages > 1:
        return None
    return rank.available_bytes // per_token
