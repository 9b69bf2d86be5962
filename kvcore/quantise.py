"""Keys and values stored in few bits, really: codes packed, scales beside them, and back again.

Every format of `kvcore.formats` that holds a K or V vector. What is stored has the layout and the
size of the engine's format; the rounding is ours and named per codec. Where a scale is stored in
16 or 8 bits, codes are computed against the stored scale, so restoring adds no second error.

Tensors are [..., heads, head_dim]: the last two axes are one token's row. torch is imported when
a tensor is quantised, not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kvcore.formats import FORMATS, FormatError, KVFormat, find_format

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Parts = dict[str, "Tensor"]

LATENT_ROPE_DIM = 64
"""Rotary elements at the end of a latent vector in `fp8_ds_mla` (DeepSeek-V2 and later)."""

FP16_ULP = 2.0**-11
"""Largest relative error of rounding to fp16."""
FP16_TINY = 2.0**-25
"""Largest absolute error of rounding to fp16 near zero."""


@dataclass(frozen=True)
class Quantised:
    """What a cache would hold for a tensor of `shape`."""

    format: KVFormat
    shape: tuple[int, ...]
    parts: Mapping[str, Tensor]

    @property
    def nbytes(self) -> int:
        """Bytes of everything that grows with the cache.

        The one scale of a whole tensor (`fp8`, and the outer scale of `nvfp4`) belongs to the
        model, not to a token; it is kept in `parts` under names beginning with "tensor_" and not
        counted, as engines do not count it either.
        """
        return sum(
            part.nbytes for name, part in self.parts.items() if not name.startswith("tensor_")
        )

    def restore(self) -> Tensor:
        """The tensor as attention would see it, fp32, in its old shape."""
        blocks = CODECS[self.format.name].decode(dict(self.parts))
        return _from_blocks(blocks, self.format, self.shape)


def quantise(x: Tensor, fmt: str | KVFormat) -> Quantised:
    """Store `x` [..., heads, head_dim] in a format.

    Raises FormatError for an unknown format, or a tensor that has no head axis, is empty, holds
    infinities or NaN, or is too large for the scale of the format.
    """
    import torch

    found = find_format(fmt)
    if x.dim() < 2 or not x.numel():
        raise FormatError(f"Give keys or values as [..., heads, head_dim], not {list(x.shape)}.")
    if not torch.isfinite(x).all():
        raise FormatError("Only finite keys and values can be quantised; this tensor has others.")
    blocks = _to_blocks(x.float(), found)
    parts = CODECS[found.name].encode(blocks)
    if any(part.is_floating_point() and not _finite(part) for part in parts.values()):
        raise FormatError(f"The largest value, {x.abs().max():.3g}, is beyond {found.name}.")
    return Quantised(found, tuple(x.shape), parts)


def restored(x: Tensor, fmt: str | KVFormat) -> Tensor:
    """`x` through a format and back, in its own dtype."""
    return quantise(x, fmt).restore().to(x.dtype)


def error_bound(x: Tensor, fmt: str | KVFormat) -> Tensor:
    """The largest error each element can come back with, from the steps of the format."""
    found = find_format(fmt)
    blocks = _to_blocks(x.float(), found)
    bound = CODECS[found.name].bound(blocks).expand_as(blocks)
    return _from_blocks(bound, found, tuple(x.shape))


def quantisable() -> list[str]:
    """Names of the formats a K or V vector can be stored in."""
    return [name for name in FORMATS if name in CODECS]


# Blocks: rows of elements that share a scale


def _block_size(fmt: KVFormat, width: int) -> int:
    return fmt.block_elements if fmt.block_elements > 1 else width


def _to_blocks(x: Tensor, fmt: KVFormat) -> Tensor:
    """[blocks, elements]; the last block of a row is filled up with its last element."""
    rows = x.reshape(-1, x.shape[-1] * x.shape[-2] if fmt.whole_row else x.shape[-1])
    size = _block_size(fmt, rows.shape[-1])
    missing = -rows.shape[-1] % size
    if missing:
        import torch

        rows = torch.cat([rows, rows[:, -1:].expand(-1, missing)], dim=1)
    return rows.reshape(-1, size)


def _from_blocks(blocks: Tensor, fmt: KVFormat, shape: tuple[int, ...]) -> Tensor:
    width = shape[-1] * shape[-2] if fmt.whole_row else shape[-1]
    size = _block_size(fmt, width)
    rows = blocks[:, :size].reshape(-1, -(-width // size) * size)
    return rows[:, :width].reshape(shape)


def _finite(part: Tensor) -> bool:
    return bool(part.float().isfinite().all())


# Codes in fewer than eight bits


def _pack(codes: Tensor, bits: int) -> Parts:
    """Codes below 2**bits as bytes: nibbles in pairs, the fifth bits in a plane of their own."""
    import torch

    if bits == 8:
        return {"codes": codes.to(torch.uint8)}
    codes = codes.to(torch.int16)
    if codes.shape[1] % 2:
        codes = torch.cat([codes, codes[:, -1:]], dim=1)
    low = codes & 15
    parts = {"codes": (low[:, 0::2] | (low[:, 1::2] << 4)).to(torch.uint8)}
    if bits == 5:
        places = torch.arange(8, dtype=torch.int16)
        high = (codes >> 4).reshape(codes.shape[0], -1, 8)
        parts["fifth_bits"] = (high << places).sum(dim=-1).to(torch.uint8)
    return parts


def _unpack(parts: Parts, bits: int) -> Tensor:
    import torch

    codes = parts["codes"]
    if bits == 8:
        return codes.float()
    low = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(1)
    if bits == 5:
        places = torch.arange(8, dtype=torch.uint8)
        high = (parts["fifth_bits"].unsqueeze(-1) >> places) & 1
        low = low + (high.flatten(1) << 4)
    return low.float()


# Codecs


class Codec(Protocol):
    """blocks [n, elements] to stored parts and back; `bound` per element or per block."""

    def encode(self, blocks: Tensor) -> Parts: ...

    def decode(self, parts: Parts) -> Tensor: ...

    def bound(self, blocks: Tensor) -> Tensor: ...


def _largest(blocks: Tensor) -> Tensor:
    return blocks.abs().amax(dim=1, keepdim=True)


def _signed_largest(blocks: Tensor) -> Tensor:
    return blocks.gather(1, blocks.abs().argmax(dim=1, keepdim=True))


def _divide(blocks: Tensor, scale: Tensor) -> Tensor:
    """blocks / scale, and 0 where the scale is 0 (an empty or vanishing block)."""
    scale = scale.float()
    return (blocks / scale.masked_fill(scale == 0, 1.0)).masked_fill(scale == 0, 0.0)


@dataclass(frozen=True)
class Cast:
    """Rounded to a narrower float; the relative error is half a unit in the last place."""

    dtype: str
    relative: float
    absolute: float

    def encode(self, blocks: Tensor) -> Parts:
        return {"values": blocks.to(_dtype(self.dtype))}

    def decode(self, parts: Parts) -> Tensor:
        return parts["values"].float()

    def bound(self, blocks: Tensor) -> Tensor:
        return (blocks.abs() * self.relative).clamp(min=self.absolute)


@dataclass(frozen=True)
class ScaledFloat8:
    """E4M3 (Micikevicius et al. 2022) after scaling the largest value to 448.

    Three bits of mantissa: a relative error of 1/16, or half of 2**-9 of the scale near zero.
    """

    whole_tensor: bool

    def encode(self, blocks: Tensor) -> Parts:
        scale = self._scale(blocks)
        codes = _divide(blocks, scale).to(_dtype("float8_e4m3fn"))
        return {"codes": codes, "tensor_scale" if self.whole_tensor else "scale": scale}

    def decode(self, parts: Parts) -> Tensor:
        scale = parts["tensor_scale" if self.whole_tensor else "scale"]
        return parts["codes"].float() * scale

    def bound(self, blocks: Tensor) -> Tensor:
        import torch

        return torch.maximum(blocks.abs() / 16, self._scale(blocks) * 2.0**-10) * (1 + 1e-6)

    def _scale(self, blocks: Tensor) -> Tensor:
        return (blocks.abs().max().view(1, 1) if self.whole_tensor else _largest(blocks)) / 448


@dataclass(frozen=True)
class Symmetric:
    """Whole numbers from −levels to levels; one step is the largest value over `levels`."""

    bits: int
    levels: int
    scale_dtype: str

    def encode(self, blocks: Tensor) -> Parts:
        scale = (_largest(blocks) / self.levels).to(_dtype(self.scale_dtype))
        codes = _divide(blocks, scale).round().clamp(-self.levels, self.levels)
        return {**_pack(codes + self.levels, self.bits), "scale": scale}

    def decode(self, parts: Parts) -> Tensor:
        return (_unpack(parts, self.bits) - self.levels) * parts["scale"].float()

    def bound(self, blocks: Tensor) -> Tensor:
        step = _largest(blocks) / self.levels
        if self.scale_dtype == "float32":
            return step / 2 * (1 + 1e-5)
        return step / 2 * (1 + 2 * FP16_ULP) + self.levels * FP16_TINY


@dataclass(frozen=True)
class SignedLargest:
    """ggml's q4_0 and q5_0: the value of largest size sits at −levels, so that all codes are used.

    A value as large on the other side has no code of its own and is off by a whole step.
    """

    bits: int

    @property
    def levels(self) -> int:
        return 2 ** (self.bits - 1)

    def encode(self, blocks: Tensor) -> Parts:
        scale = (_signed_largest(blocks) / -self.levels).to(_dtype("float16"))
        codes = _divide(blocks, scale).round().clamp(-self.levels, self.levels - 1)
        return {**_pack(codes + self.levels, self.bits), "scale": scale}

    def decode(self, parts: Parts) -> Tensor:
        return (_unpack(parts, self.bits) - self.levels) * parts["scale"].float()

    def bound(self, blocks: Tensor) -> Tensor:
        step = _largest(blocks) / self.levels
        return step * (1 + self.levels * FP16_ULP) + self.levels * FP16_TINY


@dataclass(frozen=True)
class LowestAndStep:
    """ggml's q4_1 and q5_1, and KIVI's 4-bit groups: the lowest value, and equal steps up."""

    bits: int

    @property
    def levels(self) -> int:
        return 2**self.bits - 1

    def encode(self, blocks: Tensor) -> Parts:
        half = _dtype("float16")
        lowest = blocks.amin(dim=1, keepdim=True).to(half)
        scale = ((blocks.amax(dim=1, keepdim=True) - lowest.float()) / self.levels).to(half)
        codes = _divide(blocks - lowest.float(), scale).round().clamp(0, self.levels)
        return {**_pack(codes, self.bits), "scale": scale, "lowest": lowest}

    def decode(self, parts: Parts) -> Tensor:
        return _unpack(parts, self.bits) * parts["scale"].float() + parts["lowest"].float()

    def bound(self, blocks: Tensor) -> Tensor:
        lowest = blocks.amin(dim=1, keepdim=True)
        moved = lowest.abs() * FP16_ULP + FP16_TINY
        step = (blocks.amax(dim=1, keepdim=True) - lowest + moved) / self.levels
        clipped = self.levels * (step * FP16_ULP + FP16_TINY)
        return step / 2 + moved + clipped


@dataclass(frozen=True)
class UnevenSteps:
    """ggml's iq4_nl: sixteen uneven values, denser near zero; the nearest is taken.

    The value of largest size sits at −127. ggml searches for a scale that fits better; we do not.
    """

    values: tuple[int, ...]

    def encode(self, blocks: Tensor) -> Parts:
        scale = (_signed_largest(blocks) / self.values[0]).to(_dtype("float16"))
        distance = (_divide(blocks, scale).unsqueeze(-1) - self._table()).abs()
        return {**_pack(distance.argmin(dim=-1), 4), "scale": scale}

    def decode(self, parts: Parts) -> Tensor:
        return self._table()[_unpack(parts, 4).long()] * parts["scale"].float()

    def bound(self, blocks: Tensor) -> Tensor:
        gaps = [above - below for below, above in zip(self.values, self.values[1:], strict=False)]
        steps = max(max(gaps) / 2, -self.values[0] - self.values[-1])
        scale = _largest(blocks) / -self.values[0]
        return scale * (steps + 127 * FP16_ULP) * (1 + FP16_ULP) + 127 * FP16_TINY

    def _table(self) -> Tensor:
        import torch

        return torch.tensor(self.values, dtype=torch.float32)


@dataclass(frozen=True)
class NVFP4:
    """E2M1 values, an E4M3 scale per 16 of them, and one fp32 scale for the tensor (NVIDIA)."""

    values: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

    def encode(self, blocks: Tensor) -> Parts:
        import torch

        outer = self._outer(blocks)
        inner = _divide(_largest(blocks) / 6, outer).to(_dtype("float8_e4m3fn"))
        scaled = _divide(blocks, inner.float() * outer)
        nearest = (scaled.abs().unsqueeze(-1) - torch.tensor(self.values)).abs().argmin(dim=-1)
        codes = nearest + 8 * (scaled < 0)
        return {**_pack(codes, 4), "scale": inner, "tensor_scale": outer}

    def decode(self, parts: Parts) -> Tensor:
        import torch

        codes = _unpack(parts, 4).long()
        sizes = torch.tensor(self.values)[codes % 8]
        return sizes * (1 - 2 * (codes // 8)) * parts["scale"].float() * parts["tensor_scale"]

    def bound(self, blocks: Tensor) -> Tensor:
        # The widest gap, 4 to 6, is off by 1 scale at most; the scale itself by 1/16 of itself,
        # or by half of 2**-9 of the outer scale where the block is tiny beside the tensor.
        tiny = self._outer(blocks) * 2.0**-10
        return (_largest(blocks) / 6) * (1 + 1 / 16) + 7 * tiny + 1e-30

    def _outer(self, blocks: Tensor) -> Tensor:
        return blocks.abs().max().view(1, 1) / (6 * 448)


@dataclass(frozen=True)
class LatentFloat8:
    """fp8_ds_mla: E4M3 with a 4-byte scale per 128 compressed elements, rotary part in BF16."""

    def encode(self, blocks: Tensor) -> Parts:
        latent, rope = self._split(blocks)
        groups = latent.unflatten(1, (-1, 128))
        scale = groups.abs().amax(dim=-1, keepdim=True) / 448
        codes = _divide(groups, scale).to(_dtype("float8_e4m3fn"))
        return {"codes": codes, "scale": scale, "rope": rope.to(_dtype("bfloat16"))}

    def decode(self, parts: Parts) -> Tensor:
        import torch

        latent = (parts["codes"].float() * parts["scale"]).flatten(1)
        return torch.cat([latent, parts["rope"].float()], dim=1)

    def bound(self, blocks: Tensor) -> Tensor:
        import torch

        latent, rope = self._split(blocks)
        groups = latent.unflatten(1, (-1, 128)).flatten(0, 1)
        grouped = ScaledFloat8(whole_tensor=False).bound(groups).reshape(latent.shape)
        return torch.cat([grouped, Cast("bfloat16", 2.0**-8, 2.0**-134).bound(rope)], dim=1)

    def _split(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        rank = blocks.shape[1] - LATENT_ROPE_DIM
        if rank < 128 or rank % 128:
            raise FormatError(
                f"fp8_ds_mla holds a latent vector of a multiple of 128 elements and "
                f"{LATENT_ROPE_DIM} rotary ones; this vector has {blocks.shape[1]}."
            )
        return blocks[:, :rank], blocks[:, rank:]


def _dtype(name: str) -> torch.dtype:
    import torch

    return getattr(torch, name)


IQ4_NL_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The sixteen values of iq4_nl (llama.cpp, ggml-quants)."""

CODECS: Mapping[str, Codec] = {
    "fp32": Cast("float32", 0.0, 0.0),
    "fp16": Cast("float16", FP16_ULP, FP16_TINY),
    "bf16": Cast("bfloat16", 2.0**-8, 2.0**-134),
    "fp8": ScaledFloat8(whole_tensor=True),
    "fp8_per_token_head": ScaledFloat8(whole_tensor=False),
    "fp8_ds_mla": LatentFloat8(),
    "int8_per_token_head": Symmetric(8, 127, "float32"),
    "int4_per_token_head": Symmetric(4, 7, "float32"),
    "nvfp4": NVFP4(),
    "q8_0": Symmetric(8, 127, "float16"),
    "q5_1": LowestAndStep(5),
    "q5_0": SignedLargest(5),
    "q4_1": LowestAndStep(4),
    "q4_0": SignedLargest(4),
    "iq4_nl": UnevenSteps(IQ4_NL_VALUES),
}
