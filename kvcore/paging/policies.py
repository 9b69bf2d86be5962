"""The five policies by name."""

from __future__ import annotations

from kvcore.checks import is_finite, is_whole, whole
from kvcore.paging.contiguous import CONTIGUOUS_POLICIES, ContiguousPool
from kvcore.paging.paged import DemandPagedPool, PagedPool
from kvcore.paging.pool import Pool

MOST_BLOCKS = 10_000_000
POLICIES = (*CONTIGUOUS_POLICIES, "paged", "demand-paged")

# OPT-13B in 16 bits: 5,120 numbers of 2 bytes, in each of the 40 layers' two tensors.
OPT_13B_TENSOR_BYTES = 10_240
LARGEST_PAGE_BYTES = 2 * 2**20


def make_pool(
    policy: str,
    num_slots: int,
    block_size: int = 16,
    watermark: float = 0.01,
    max_model_len: int = 2_048,
    page_bytes: int = LARGEST_PAGE_BYTES,
    tensor_bytes: int = OPT_13B_TENSOR_BYTES,
    prefix_caching: bool = True,
) -> Pool:
    """An empty pool under one of `POLICIES`.

    Raises ValueError that says which setting cannot be and what to use.
    """
    _check(policy, num_slots, block_size, watermark, max_model_len)
    if not all(is_whole(size) and size >= 1 for size in (page_bytes, tensor_bytes)):
        raise ValueError("Pages and a token's share of a tensor are at least one byte.")
    if policy == "paged":
        return PagedPool(num_slots, block_size, watermark, prefix_caching)
    if policy == "demand-paged":
        return DemandPagedPool(num_slots, page_bytes, tensor_bytes, watermark)
    return ContiguousPool(policy, num_slots, max_model_len)


def _check(
    policy: str, num_slots: int, block_size: int, watermark: float, max_model_len: int
) -> None:
    if policy not in POLICIES:
        raise ValueError(f"There is no policy {policy!r}; there are {', '.join(POLICIES)}.")
    whole("num_slots", num_slots, 1)
    whole("block_size", block_size, 1)
    if policy == "paged" and num_slots // block_size > MOST_BLOCKS:
        raise ValueError(f"A paged pool has at most {MOST_BLOCKS:,} blocks here.")
    if not is_finite(watermark) or not 0 <= watermark < 1:
        raise ValueError("watermark is a share of the pool: at least 0 and less than 1.")
    whole("max_model_len", max_model_len, 2)
