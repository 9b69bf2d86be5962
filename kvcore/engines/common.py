"""What the engines' planners share: their error, version numbers, rounding up, bytes per entry."""

from __future__ import annotations

import re

from kvcore.architecture import LayerGroup, LayerKind
from kvcore.formats import KVFormat, find_format, index_key_bytes


class PlanError(ValueError):
    """A plan that cannot be made; the message names what is wrong and what to do."""


def version_tuple(version: str) -> tuple[int, int, int]:
    """(major, minor, patch) of "0.33", "v0.20.2rc1.dev129+g1a2b" or 0.33.

    Raises PlanError for anything that does not begin with a number.
    """
    match = re.match(r"\s*v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?", str(version))
    if not match:
        raise PlanError(f"“{version}” is not a version; write one such as 0.33.")
    major, minor, patch = (int(part or 0) for part in match.groups())
    return major, minor, patch


def ceil_div(a: int, b: int) -> int:
    """a ÷ b, rounded up."""
    return -(-a // b)


def entry_bytes(group: LayerGroup, fmt: KVFormat, tensor_parallel: int = 1) -> int:
    """Bytes per token and layer as vLLM and SGLang store them.

    Index keys are FP8 with a scale whatever the format of the rest (132 bytes for 128 elements).
    """
    if group.kind is LayerKind.SPARSE_INDEX:
        return group.num_kv_heads * index_key_bytes(find_format("fp8"), group.head_dim)
    return group.entry_bytes(fmt, tensor_parallel)
