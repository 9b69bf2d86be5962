"""How fast memory can be read, which is what limits decoding: the floor under every cached step."""

import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kvcore.decoding.generate import Clock
from kvcore.decoding.threads import DEFAULT_THREADS, use_threads

if TYPE_CHECKING:
    from kvcore.decoding.model import Model


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second of a pure read of the model's own weights, and the threads that read."""

    bytes_per_second: float
    threads: int

    def floor_seconds(self, model: "Model", cached_tokens: int = 0) -> float:
        """The least a cached step can take: all weights and the whole cache read once."""
        return model.bytes_read_per_token(cached_tokens) / self.bytes_per_second

    def share(self, model: "Model", cached_tokens: int, seconds: float) -> float:
        """Share of that limit which a step of `seconds` reached: 1 is the limit itself."""
        return self.floor_seconds(model, cached_tokens) / seconds


def measure_bandwidth(
    model: "Model",
    *,
    threads: int = DEFAULT_THREADS,
    rounds: int = 5,
    clock: Clock = time.perf_counter,
) -> Bandwidth:
    """Read every weight matrix `rounds` times and take the median of the better way to read.

    Nothing is allocated: what a decode step reads is read here, with as little else as torch can do
    with it: a sum, and a product with a vector, whose kernels fetch ahead better on many machines.
    """
    used = use_threads(threads)
    read = max(_bytes_per_second(model, kernel, rounds, clock) for kernel in (_sum, _product))
    return Bandwidth(read, used)


@torch.inference_mode()
def _bytes_per_second(model: "Model", kernel: object, rounds: int, clock: Clock) -> float:
    matrices = [matrix.weight for matrix in model.network.matrices]
    total = sum(matrix.nbytes for matrix in matrices)
    seconds = []
    for _ in range(rounds):
        began = clock()
        for matrix in matrices:
            kernel(matrix)
        seconds.append(clock() - began)
    return total / median(seconds)


def _sum(matrix: Tensor) -> None:
    matrix.sum()


def _product(matrix: Tensor) -> None:
    torch.mm(torch.ones(1, matrix.shape[0]), matrix)
