"""Multi-head, grouped-query and multi-query attention: who shares what, and what a step costs.

A KV head is a drawer: one key and one value per position. Query heads are the readers. With as
many drawers as readers it is multi-head attention (MHA); with one drawer for all it is
multi-query (MQA, Shazeer 2019); anything between is grouped-query, GQA-g for g drawers (Ainslie
et al. 2023, §2.2).

The decode attention below comes in several formulations that give the same numbers. They differ
in how often they read the cache, which is what a decode step spends its time on. torch is
imported when a tensor is asked for, not before.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcore.decoding.memory import available_bytes
from kvcore.decoding.threads import import_torch, use_threads

if TYPE_CHECKING:
    from torch import Tensor

FP32_BYTES = 4
MAX_QUERY_HEADS = 256
MEASUREMENT_LIMIT_BYTES = 3 * 2**30
LIMITS_BYTES = 64 * 2**20 + 2 * 4 * 2**20
"""The block that is summed, and the square with its product."""
WARM_UPS = 2


# Who shares what


@dataclass(frozen=True)
class Sharing:
    """How `num_query_heads` readers share `num_kv_heads` drawers, in equal groups of neighbours."""

    num_query_heads: int
    num_kv_heads: int

    def __post_init__(self) -> None:
        if not 1 <= self.num_query_heads <= MAX_QUERY_HEADS:
            raise ValueError(
                f"Query heads must lie between 1 and {MAX_QUERY_HEADS}; "
                f"{self.num_query_heads} was given."
            )
        if self.num_kv_heads < 1 or self.num_query_heads % self.num_kv_heads:
            raise ValueError(
                f"{self.num_query_heads} query heads cannot share {self.num_kv_heads} KV heads "
                f"evenly; choose one of {', '.join(map(str, divisors(self.num_query_heads)))}."
            )

    @property
    def name(self) -> str:
        """MHA, MQA or GQA-g, g being the number of KV heads as in Ainslie et al. (§2.2)."""
        if self.num_kv_heads == self.num_query_heads:
            return "MHA"
        if self.num_kv_heads == 1:
            return "MQA"
        return f"GQA-{self.num_kv_heads}"

    @property
    def group_size(self) -> int:
        """Query heads per KV head."""
        return self.num_query_heads // self.num_kv_heads

    def kv_head_of(self, query_head: int) -> int:
        """The drawer this query head reads. Raises ValueError for a head that does not exist."""
        if not 0 <= query_head < self.num_query_heads:
            raise ValueError(
                f"Query head {query_head} does not exist; heads are numbered 0 to "
                f"{self.num_query_heads - 1}."
            )
        return query_head // self.group_size

    def query_heads_of(self, kv_head: int) -> range:
        """The query heads that read this drawer. Raises ValueError if it does not exist."""
        if not 0 <= kv_head < self.num_kv_heads:
            raise ValueError(
                f"KV head {kv_head} does not exist; heads are numbered 0 to "
                f"{self.num_kv_heads - 1}."
            )
        return range(kv_head * self.group_size, (kv_head + 1) * self.group_size)

    @property
    def groups(self) -> tuple[range, ...]:
        """For each KV head, the query heads that read it."""
        return tuple(self.query_heads_of(kv_head) for kv_head in range(self.num_kv_heads))


def divisors(number: int) -> list[int]:
    """Every divisor of a positive number, ascending."""
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]


def sharings(num_query_heads: int) -> list[Sharing]:
    """Every even way to share, from MHA down to MQA: one for each divisor."""
    return [Sharing(num_query_heads, count) for count in reversed(divisors(num_query_heads))]


# One decode step of attention, in the ways people write it
#
# Shapes: q [batch, query heads, 1, dim]; k and v [batch, KV heads, context, dim];
# the result has the shape of q.


def packed_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The queries of a group become the rows of one matrix, so each K and V is read once.

    A decode step sees every cached position, so no mask is needed, and the query axis, which
    holds a single position, is free to carry the group.
    """
    from torch.nn.functional import scaled_dot_product_attention

    batch, query_heads, _, dim = q.shape
    kv_heads = k.shape[1]
    rows = q.view(batch, kv_heads, query_heads // kv_heads, dim)
    return scaled_dot_product_attention(rows, k, v).view(batch, query_heads, 1, dim)


def grouped_matmul_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same packing written out: scores, softmax, weighted sum."""
    batch, query_heads, _, dim = q.shape
    kv_heads = k.shape[1]
    rows = q.view(batch, kv_heads, query_heads // kv_heads, dim) * dim**-0.5
    weights = (rows @ k.transpose(-1, -2)).softmax(dim=-1)
    return (weights @ v).view(batch, query_heads, 1, dim)


def enable_gqa_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch's own switch: nothing is copied, but each query head goes through K and V by itself."""
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(q, k, v, enable_gqa=True)


def repeated_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """K and V are copied once per query head of the group, then treated as MHA."""
    from torch.nn.functional import scaled_dot_product_attention

    group_size = q.shape[1] // k.shape[1]
    return scaled_dot_product_attention(
        q, k.repeat_interleave(group_size, dim=1), v.repeat_interleave(group_size, dim=1)
    )


PACKED = "queries packed as rows"
GROUPED_MATMUL = "grouped matmul"
ENABLE_GQA = "SDPA, enable_gqa=True"
REPEATED = "repeat_interleave, then SDPA"

FORMULATIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    PACKED: packed_attention,
    GROUPED_MATMUL: grouped_matmul_attention,
    ENABLE_GQA: enable_gqa_attention,
    REPEATED: repeated_attention,
}


# What is timed


@dataclass(frozen=True)
class Shape:
    """One decode step over a cache of `context` positions, fp32, in one layer."""

    batch: int
    num_query_heads: int
    head_dim: int
    context: int

    def __post_init__(self) -> None:
        for field in ("batch", "num_query_heads", "head_dim", "context"):
            value = getattr(self, field)
            if value < 1:
                raise ValueError(f"{field} must be at least 1; {value} was given.")

    def cache_bytes(self, num_kv_heads: int) -> int:
        """Bytes of K and V together: what one step has to read at least once."""
        return 2 * self.batch * num_kv_heads * self.context * self.head_dim * FP32_BYTES

    @property
    def flops(self) -> int:
        """Multiplications and additions of scores and weighted sum; sharing leaves them as is."""
        return 2 * 2 * self.batch * self.num_query_heads * self.context * self.head_dim


@dataclass(frozen=True)
class Variant:
    """One way to share, computed in one way."""

    sharing: Sharing
    formulation: str

    @property
    def name(self) -> str:
        if self.sharing.group_size == 1:
            return self.sharing.name
        return f"{self.sharing.name}, {self.formulation}"

    def copy_bytes(self, shape: Shape) -> int:
        """Bytes written anew at each step: the whole MHA cache where heads are repeated, else 0."""
        if self.formulation != REPEATED:
            return 0
        return shape.cache_bytes(self.sharing.num_query_heads)

    def traffic_bytes(self, shape: Shape) -> int:
        """Bytes of K and V the step goes through, re-reads and copies counted.

        Packed and grouped forms go through the cache once. `enable_gqa` goes through it once per
        query head (inferred from how its gain fades with the context; a processor's own cache
        serves part of it). Repeating reads the cache, writes the copy and reads the copy.
        """
        once = shape.cache_bytes(self.sharing.num_kv_heads)
        if self.formulation == ENABLE_GQA:
            return once * self.sharing.group_size
        return once + 2 * self.copy_bytes(shape)


def variants(
    num_query_heads: int, kv_heads: Iterable[int], formulations: Sequence[str] = tuple(FORMULATIONS)
) -> list[Variant]:
    """MHA once, then every formulation for each number of KV heads below it."""
    chosen = [Variant(Sharing(num_query_heads, num_query_heads), PACKED)]
    for count in kv_heads:
        if count == num_query_heads:
            continue
        sharing = Sharing(num_query_heads, count)
        chosen += [Variant(sharing, formulation) for formulation in formulations]
    return chosen


@dataclass(frozen=True)
class Sample:
    """One timed call. `variant` is None for the machine's own limits."""

    round: int
    variant: Variant | None
    limit: str | None
    seconds: float
    bytes_read: int = 0
    flops: int = 0


READ = "read bandwidth"
ARITHMETIC = "matrix multiplication"


def required_bytes(shape: Shape, chosen: Sequence[Variant]) -> int:
    """Memory a measurement needs at its peak: every cache, and the largest copy."""
    caches = {variant.sharing.num_kv_heads for variant in chosen}
    held = sum(shape.cache_bytes(count) for count in caches)
    return held + max(variant.copy_bytes(shape) for variant in chosen)


def check_room(shape: Shape, chosen: Sequence[Variant]) -> None:
    """Raises ValueError when a measurement needs too much memory, here or anywhere."""
    needed = required_bytes(shape, chosen) + LIMITS_BYTES
    free = available_bytes()
    if free is not None and needed > free:
        raise ValueError(
            f"This measurement needs {needed / 2**30:.2f} GiB and {free / 2**30:.2f} GiB are free. "
            "Lower the batch, the heads or the context."
        )
    if needed > MEASUREMENT_LIMIT_BYTES:
        raise ValueError(
            f"This measurement needs {needed / 2**30:.1f} GiB; the limit here is "
            f"{MEASUREMENT_LIMIT_BYTES / 2**30:.0f} GiB. Lower the batch, the heads or the context."
        )


def measure(
    shape: Shape,
    chosen: Sequence[Variant],
    rounds: int = 9,
    threads: int = 1,
    seed: int = 0,
    clock: Callable[[], float] | None = None,
) -> Iterator[Sample]:
    """Time every variant once a round, in rotating order, beside the machine's own limits.

    clock: by default, one thread is timed by the processor time it gets, so that being put aside
    for a neighbour does not count; more threads by the wall clock.

    The limits are measured in the same rounds, so that a busy neighbour slows both: summing a
    block of at least 64 MiB for reading, and a 1,024-square product for arithmetic. Rounds before
    the first are warm-ups and not reported.

    Raises ValueError when the caches would not fit into memory or `MEASUREMENT_LIMIT_BYTES`, and
    RuntimeError when a variant's result differs from MHA over the expanded cache by more than 1e-4.
    """
    check_room(shape, chosen)
    clock = clock or (time.thread_time if threads == 1 else time.perf_counter)
    import_torch()
    import torch

    use_threads(threads)
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    q = normal(shape.batch, shape.num_query_heads, 1, shape.head_dim)
    caches = {
        count: tuple(normal(shape.batch, count, shape.context, shape.head_dim) for _ in range(2))
        for count in sorted({variant.sharing.num_kv_heads for variant in chosen})
    }
    block = torch.ones(16 * 2**20)
    square = normal(1024, 1024)

    def timed(round_index: int, task: Variant | str) -> Sample:
        with torch.inference_mode():
            if task == READ:
                seconds = _seconds(lambda: block.sum(), clock)
                return Sample(round_index, None, READ, seconds, bytes_read=block.nbytes)
            if task == ARITHMETIC:
                seconds = _seconds(lambda: square @ square, clock)
                return Sample(round_index, None, ARITHMETIC, seconds, flops=2 * 1024**3)
            run = FORMULATIONS[task.formulation]
            k, v = caches[task.sharing.num_kv_heads]
            seconds = _seconds(lambda: run(q, k, v), clock)
        least = shape.cache_bytes(task.sharing.num_kv_heads)
        return Sample(round_index, task, None, seconds, bytes_read=least, flops=shape.flops)

    tasks: list[Variant | str] = [*chosen, READ, ARITHMETIC]
    _check_same(q, caches, chosen)
    for round_index in range(-WARM_UPS, rounds):
        turn = round_index % len(tasks)
        for task in tasks[turn:] + tasks[:turn]:
            sample = timed(round_index, task)
            if round_index >= 0:
                yield sample


def _seconds(call: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return clock() - start


def _check_same(
    q: Tensor, caches: dict[int, tuple[Tensor, ...]], chosen: Sequence[Variant]
) -> None:
    """Every formulation must agree with the plainest one before it is worth timing."""
    import torch

    with torch.inference_mode():
        expected: dict[int, Tensor] = {}
        for variant in chosen:
            count = variant.sharing.num_kv_heads
            if count not in expected:
                expected[count] = grouped_matmul_attention(q, *caches[count])
            got = FORMULATIONS[variant.formulation](q, *caches[count])
            difference = (got - expected[count]).abs().max().item()
            if difference > 1e-4:
                raise RuntimeError(f"{variant.name} is off by {difference:.1e}; it was not timed.")


# What the samples say


@dataclass(frozen=True)
class Machine:
    """The two limits of a step, measured in the same rounds as the steps."""

    read_bytes_per_second: float
    flops_per_second: float


@dataclass(frozen=True)
class Timing:
    """One variant over all rounds. `speed_up` is the median of MHA's time over its own, paired."""

    variant: Variant
    samples: int
    median_seconds: float
    p10_seconds: float
    bytes_read: int
    speed_up: float
    ideal_speed_up: float
    share_of_bandwidth: float
    share_of_arithmetic: float


def explain(
    group_size: int, formulation: str, share_of_bandwidth: float, share_of_arithmetic: float
) -> str:
    """What the measured shares say about the distance to the ideal, in a sentence."""
    if group_size > 1 and formulation == REPEATED:
        return "Writes every head out again before reading it: more traffic than MHA."
    if share_of_bandwidth >= 0.6:
        return "Close to what this machine can read: the bytes saved become time saved."
    if group_size > 1 and formulation == ENABLE_GQA:
        return (
            f"Goes through each K and V {group_size} times, once per query head: "
            "the saving fades as the cache outgrows the processor's own."
        )
    if share_of_bandwidth >= 0.5:
        return "Mostly reading: most of the bytes saved become time saved."
    if share_of_bandwidth + share_of_arithmetic >= 0.5:
        return (
            "Reads so little that arithmetic counts: sharing divides the bytes, "
            "not the multiplications."
        )
    return "Neither reading nor arithmetic is near its limit: fixed costs of the call are."


def machine_limits(samples: Iterable[Sample]) -> Machine:
    """Median rates of reading and multiplying. Raises ValueError before both were sampled."""
    read = [s.bytes_read / s.seconds for s in samples if s.limit == READ]
    multiplied = [s.flops / s.seconds for s in samples if s.limit == ARITHMETIC]
    if not read or not multiplied:
        raise ValueError("The machine's own limits have not been measured yet; finish one round.")
    return Machine(statistics.median(read), statistics.median(multiplied))


def timings(samples: Sequence[Sample]) -> list[Timing]:
    """One line per variant, from whatever rounds are complete enough to have MHA in them.

    Returns an empty list before the first round is complete.
    """
    try:
        machine = machine_limits(samples)
    except ValueError:
        return []
    by_variant: dict[Variant, dict[int, Sample]] = {}
    for sample in samples:
        if sample.variant is not None:
            by_variant.setdefault(sample.variant, {})[sample.round] = sample
    mha = next((r for v, r in by_variant.items() if v.sharing.name == "MHA"), None)
    if mha is None:
        return []
    lines = (_timing(variant, rounds, mha, machine) for variant, rounds in by_variant.items())
    return [line for line in lines if line is not None]


def _timing(
    variant: Variant, rounds: dict[int, Sample], mha: dict[int, Sample], machine: Machine
) -> Timing | None:
    paired = [mha[index].seconds / rounds[index].seconds for index in rounds if index in mha]
    if not paired:
        return None
    seconds = [sample.seconds for sample in rounds.values()]
    median = statistics.median(seconds)
    any_sample = next(iter(rounds.values()))
    return Timing(
        variant=variant,
        samples=len(seconds),
        median_seconds=median,
        p10_seconds=sorted(seconds)[len(seconds) // 10],
        bytes_read=any_sample.bytes_read,
        speed_up=statistics.median(paired),
        ideal_speed_up=next(iter(mha.values())).bytes_read / any_sample.bytes_read,
        share_of_bandwidth=any_sample.bytes_read / median / machine.read_bytes_per_second,
        share_of_arithmetic=any_sample.flops / median / machine.flops_per_second,
    )


def thread_choices() -> list[int]:
    """Thread counts worth offering here: one, and two where there are two cores."""
    return [1, 2] if (os.cpu_count() or 1) > 1 else [1]
