"""Rotary positions (RoPE, Su et al. 2021, arXiv:2104.09864, section 3.2)."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from kvcore.decoding.errors import LoadError


def inverse_frequencies(head_dim: int, theta: float, scaling: Mapping | None = None) -> Tensor:
    """Radians per position for each pair of dimensions: [head_dim / 2].

    `scaling` is the checkpoint's `rope_scaling` (or `rope_parameters`): none, "default", "linear"
    or "llama3" (Llama 3.1). Raises LoadError for any other kind.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / theta**exponents
    scaling = scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return frequencies
    if kind == "linear":
        return frequencies / scaling["factor"]
    if kind == "llama3":
        return _llama3(frequencies, scaling)
    raise LoadError(f"Rotary positions of the kind {kind!r} are not supported by this runner.")


def _llama3(frequencies: Tensor, scaling: Mapping) -> Tensor:
    """Slow frequencies are divided by `factor`, fast ones kept, those between blended."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    kept_share = ((turns - low) / (high - low)).clamp(0, 1)
    return kept_share * frequencies + (1 - kept_share) * frequencies / scaling["factor"]


def angles(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position × frequency: two of [len(positions), head_dim]."""
    turned = positions.to(torch.float32)[:, None] * frequencies
    turned = torch.cat((turned, turned), dim=-1)
    return turned.cos(), turned.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + head_dim / 2]) by its angle. `cos`, `sin` broadcast against x."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
