"""What fits on a group of GPUs: users, and the ceilings that bandwidth and compute set.

A ceiling is what the hardware cannot pass, not what an engine reaches: it reads every byte once at
full bandwidth, or does every multiplication at full rate, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property, lru_cache

from kvcore.architecture import Architecture, LayerKind, even_stages

WEIGHT_BITS: Mapping[str, Fraction] = {
    "fp32": Fraction(32),
    "bf16": Fraction(16),
    "fp8": Fraction(8),
    "int8": Fraction(8),
    "q8_0": Fraction(34 * 8, 32),
    "q6_K": Fraction(210 * 8, 256),
    "nvfp4": Fraction(9 * 8, 16),
    "q4_K": Fraction(144 * 8, 256),
    "q4_0": Fraction(18 * 8, 32),
    "mxfp4": Fraction(17 * 8, 32),
    "int4": Fraction(4 * 128 + 16, 128),
}
"""Bits per weight with scales: ggml block layouts, NVFP4 (a byte per 16), MXFP4 (a byte per 32),
int4 in groups of 128 with a 16-bit scale. Embeddings and norms often stay in 16 bits, so a real
checkpoint may be larger."""


class CapacityError(ValueError):
    """A setting that cannot be, named in one sentence."""


class Limit(StrEnum):
    """What stops the next user."""

    MEMORY = "memory"
    STATE_SLOTS = "state slots"
    NOTHING = "nothing"


def weight_bytes(parameters: int, dtype: str = "bf16") -> int:
    """Bytes of `parameters` weights in `dtype`, scales included, rounded up."""
    bits = WEIGHT_BITS.get(dtype)
    if bits is None:
        raise CapacityError(f"“{dtype}” is no weight format here: {', '.join(WEIGHT_BITS)}.")
    if parameters < 0:
        raise CapacityError(f"Parameters cannot be {parameters:,}.")
    return -(-parameters * bits.numerator // (bits.denominator * 8))


@dataclass(frozen=True)
class Deployment:
    """A model on GPUs. Bytes are per GPU unless said otherwise.

    memory_bytes: memory a GPU has.
    utilisation: the share of it the engine may use.
    overhead_bytes: activations, graphs and all else that is neither weights nor cache, per GPU.
    weights_bytes: of one whole copy of the model.
    A copy runs on tensor_parallel × pipeline_parallel GPUs; data_parallel copies run beside each
    other. layers_per_stage overrides the even split, stage_memory_bytes the memory of each stage.
    """

    architecture: Architecture
    memory_bytes: int
    weights_bytes: int
    overhead_bytes: int = 0
    utilisation: float = 1.0
    kv_format: str = "bf16"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    layers_per_stage: tuple[int, ...] | None = None
    stage_memory_bytes: tuple[int, ...] | None = None
    state_slots: int | None = None

    def __post_init__(self) -> None:
        for name in ("tensor_parallel", "pipeline_parallel", "data_parallel"):
            if getattr(self, name) < 1:
                raise CapacityError(f"{name} must be 1 or more, not {getattr(self, name)}.")
        for name in ("memory_bytes", "weights_bytes", "overhead_bytes"):
            if getattr(self, name) < 0:
                raise CapacityError(f"{name} cannot be negative.")
        if not 0 < self.utilisation <= 1:
            raise CapacityError(f"utilisation must lie between 0 and 1, not {self.utilisation}.")
        for name in ("layers_per_stage", "stage_memory_bytes"):
            given = getattr(self, name)
            if given is not None and len(given) != self.pipeline_parallel:
                raise CapacityError(
                    f"{name} has {len(given)} entries for {self.pipeline_parallel} stages."
                )

    @property
    def num_gpus(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The pipeline's stages: their layers, weights and free memory, on one GPU of each."""
        sizes = self.layers_per_stage or even_stages(
            self.architecture.num_layers, self.pipeline_parallel
        )
        memories = self.stage_memory_bytes or (self.memory_bytes,) * self.pipeline_parallel
        return tuple(
            Stage(
                part, self._stage_weights(size), int(memory * self.utilisation), self.overhead_bytes
            )
            for part, size, memory in zip(
                self.architecture.stages(sizes), sizes, memories, strict=True
            )
        )

    def _stage_weights(self, num_layers: int) -> int:
        """Weights on one GPU of a stage: in proportion to its layers, shared out over the ranks."""
        ranks = self.architecture.num_layers * self.tensor_parallel
        return -(-self.weights_bytes * num_layers // ranks)


@dataclass(frozen=True)
class Stage:
    """One pipeline stage as one of its GPUs sees it."""

    architecture: Architecture
    weights_bytes: int
    budget_bytes: int
    overhead_bytes: int

    @property
    def free_bytes(self) -> int:
        """Bytes left for the cache, negative when the weights do not fit."""
        return self.budget_bytes - self.weights_bytes - self.overhead_bytes


@dataclass(frozen=True)
class Users:
    """How many sequences fit at once, per copy and in all, and what stops the next one.

    bytes_per_user and free_bytes are those of the stage that runs out first, on one GPU.
    """

    per_copy: int
    total: int
    limit: Limit
    stage: int
    bytes_per_user: int
    free_bytes: int
    shared_bytes: int = 0

    @property
    def fits(self) -> bool:
        return self.free_bytes >= 0


def users_at(deployment: Deployment, tokens: int) -> Users:
    """Users who each hold `tokens` at once."""
    return users_with_prefix(deployment, tokens, 0)


def users_with_prefix(deployment: Deployment, tokens: int, shared_prefix: int) -> Users:
    """Users who each hold `tokens`, the first `shared_prefix` of them stored once for all.

    Only what grows with every token can be shared; a window is kept by each user where the prefix
    leaves it, and so is a recurrent state.
    """
    if tokens < 1:
        raise CapacityError("A user holds at least one token.")
    if not 0 <= shared_prefix <= tokens:
        raise CapacityError(
            f"The shared prefix of {shared_prefix:,} tokens must lie within the {tokens:,} "
            "that a user holds."
        )
    found = [
        _stage_users(stage, i, tokens, shared_prefix, deployment)
        for i, stage in enumerate(deployment.stages)
    ]
    worst = min(found, key=lambda users: users.per_copy)
    if deployment.state_slots is not None and deployment.architecture.is_hybrid:
        slots = max(0, deployment.state_slots)
        if slots < worst.per_copy:
            worst = replace(worst, per_copy=slots, limit=Limit.STATE_SLOTS)
    total = worst.per_copy * deployment.data_parallel
    return worst if worst.total == total else replace(worst, total=total)


def _stage_users(
    stage: Stage, index: int, tokens: int, shared_prefix: int, deployment: Deployment
) -> Users:
    rank = (deployment.kv_format, deployment.tensor_parallel)
    whole = stage.architecture.cache_bytes(tokens, *rank)
    shared = shareable_bytes(stage.architecture, shared_prefix, *rank)
    own = whole - shared
    free = stage.free_bytes
    count = max(0, free - shared) // own if own else 0
    return Users(count, count, Limit.MEMORY, index, own, free, shared)


@lru_cache(maxsize=1_024)
def shareable_bytes(
    architecture: Architecture, tokens: int, kv_format: str = "bf16", tensor_parallel: int = 1
) -> int:
    """Bytes of a prefix that all users can read from one copy: the layers that grow for ever."""
    fmt = architecture.storage_format(kv_format)
    return sum(
        group.cache_bytes(tokens, fmt, tensor_parallel)
        for group in architecture.layers
        if group.grows
    )


def state_slots_that_fit(deployment: Deployment, share: float = 1.0) -> int | None:
    """Recurrent states that fit in `share` of the free memory; None for models without any."""
    if not deployment.architecture.is_hybrid:
        return None
    counts = []
    for stage in deployment.stages:
        state = stage.architecture.state_bytes(deployment.tensor_parallel)
        if state:
            counts.append(max(0, int(stage.free_bytes * share)) // state)
    return min(counts) if counts else None


class Bound(StrEnum):
    """What a decode step waits for."""

    BANDWIDTH = "memory bandwidth"
    COMPUTE = "compute"


@dataclass(frozen=True)
class Ceilings:
    """What bandwidth and compute allow at most. None where the GPU's figure is unknown.

    decode_seconds: one step of one user, through all stages. The read of weights and caches and the
    multiplications overlap at best, so the longer counts. tokens_per_second_total assumes that
    pipeline stages are kept busy by other users.
    bandwidth_bound_from: users from which reading caches takes longer than reading weights.
    prefill_seconds: time to first token, with no other work on the GPUs.
    """

    decode_seconds: float | None
    tokens_per_second_per_user: float | None
    tokens_per_second_total: float | None
    decode_bound: Bound | None
    prefill_seconds: float | None
    weights_read: int
    cache_read: int
    bandwidth_bound_from: int | None

    @property
    def bytes_per_step(self) -> int:
        """Bytes the GPUs of one rank read for a step, all stages together."""
        return self.weights_read + self.cache_read


@dataclass(frozen=True)
class Work:
    """The GPU and model figures a ceiling needs; None is unknown.

    bandwidth: bytes per second of one GPU. flops: dense operations per second of one GPU.
    """

    bandwidth: int | None = None
    flops: int | None = None
    parameters: int | None = None
    active_parameters: int | None = None


def ceilings(
    deployment: Deployment, users: int, tokens: int, prompt_tokens: int, work: Work
) -> Ceilings:
    """Ceilings of decode and prefill for `users` a copy, each holding `tokens`.

    Every weight is read once a step, experts as many as `users` tokens are likely to draw when each
    draws evenly. Source: the roofline; Pope et al. 2022, "Efficiently Scaling Transformer
    Inference", section 2.
    """
    stages = [_stage_read(stage, deployment, users, tokens, work) for stage in deployment.stages]
    weights = sum(read[0] for read in stages)
    cache = sum(read[1] for read in stages)
    steps = [_step(sum(read), users, deployment, work) for read in stages]
    known = all(seconds is not None for seconds, _ in steps) and users > 0
    decode = sum(seconds for seconds, _ in steps) if known else None
    slowest = max(steps, key=lambda step: step[0]) if known else (None, None)
    each = cache // users if users else 0
    return Ceilings(
        decode_seconds=decode,
        tokens_per_second_per_user=1 / decode if decode else None,
        tokens_per_second_total=users * deployment.data_parallel / slowest[0] if decode else None,
        decode_bound=slowest[1],
        prefill_seconds=_prefill_seconds(deployment, prompt_tokens, work),
        weights_read=weights,
        cache_read=cache,
        bandwidth_bound_from=-(-weights // each) if each else None,
    )


def _stage_read(
    stage: Stage, deployment: Deployment, users: int, tokens: int, work: Work
) -> tuple[int, int]:
    """Weight and cache bytes one GPU of the stage reads in a step."""
    share = _drawn_share(work, users)
    each = stage.architecture.cache_bytes(tokens, deployment.kv_format, deployment.tensor_parallel)
    return int(stage.weights_bytes * share), users * each


def _drawn_share(work: Work, users: int) -> float:
    """The share of the weights that `users` tokens pass through, when experts are drawn evenly."""
    if not work.parameters or not work.active_parameters:
        return 1.0
    active = min(1.0, work.active_parameters / work.parameters)
    return 1 - (1 - active) ** max(1, users)


def _step(
    num_bytes: int, users: int, deployment: Deployment, work: Work
) -> tuple[float | None, Bound | None]:
    """Seconds a stage needs for a step, and what it waits for."""
    if not work.bandwidth:
        return None, None
    reading = num_bytes / work.bandwidth
    if not work.flops or not work.active_parameters:
        return reading, Bound.BANDWIDTH
    ranks = deployment.tensor_parallel * deployment.pipeline_parallel
    computing = 2 * work.active_parameters * users / (work.flops * ranks)
    if computing > reading:
        return computing, Bound.COMPUTE
    return reading, Bound.BANDWIDTH


def _prefill_seconds(deployment: Deployment, tokens: int, work: Work) -> float | None:
    """2 operations per active weight and token, plus attention, on one stage after another."""
    if not tokens or not work.flops or not work.active_parameters:
        return None
    operations = 2 * work.active_parameters * tokens
    operations += attention_operations(deployment.architecture, tokens)
    return operations / (work.flops * deployment.tensor_parallel)


def attention_operations(architecture: Architecture, tokens: int) -> int:
    """Multiply-adds × 2 of scores and mixing over a causal prompt of `tokens`.

    4 operations per head, width and pair; a window or chunk caps the pairs (Kaplan et al. 2020,
    table 1, with causal halving).
    """
    heads = architecture.num_attention_heads
    total = 0
    for group in architecture.layers:
        if group.kind is LayerKind.LATENT:
            width = group.latent_rank + group.rope_dim
        elif group.kind in (LayerKind.FULL, LayerKind.SLIDING_WINDOW, LayerKind.CHUNKED):
            width = group.head_dim
        else:
            continue
        seen = min(tokens, group.window) if group.window else tokens
        pairs = tokens * seen - seen * seen // 2
        total += group.count * 4 * heads * width * pairs // group.tokens_per_entry
    return total


@dataclass(frozen=True)
class MemoryShare:
    """One part of a GPU's memory."""

    part: str
    num_bytes: int


def memory_shares(deployment: Deployment, users: int, tokens: int) -> tuple[MemoryShare, ...]:
    """Where the memory of the fullest GPU goes: weights, overhead, held back, caches, free.

    "missing" takes the place of "free" when the parts exceed the memory.
    """
    found = users_at(deployment, tokens)
    stage = deployment.stages[found.stage]
    memories = (
        deployment.stage_memory_bytes or (deployment.memory_bytes,) * deployment.pipeline_parallel
    )
    memory = memories[found.stage]
    caches = users * stage.architecture.cache_bytes(
        tokens, deployment.kv_format, deployment.tensor_parallel
    )
    held_back = memory - stage.budget_bytes
    left = stage.free_bytes - caches
    parts = [
        MemoryShare("weights", stage.weights_bytes),
        MemoryShare("overhead", stage.overhead_bytes),
        MemoryShare("held back", held_back),
        MemoryShare("caches", caches),
        MemoryShare("free" if left >= 0 else "missing", abs(left)),
    ]
    return tuple(part for part in parts if part.num_bytes)
