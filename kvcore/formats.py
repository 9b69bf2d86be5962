"""How many bytes a stored vector takes, with the scales that come along with it.

Sources: vLLM 0.33.0 (`fp8`, `*_per_token_head`, NVFP4, `fp8_ds_mla`, index keys) and llama.cpp's
ggml block sizes (`q8_0` … `q4_0`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class FormatError(ValueError):
    """A storage format that does not exist, or that cannot hold this vector."""


class Scaling(StrEnum):
    """What is stored besides the elements themselves."""

    NONE = "none"
    PER_TENSOR = "one scale for the whole tensor"
    PER_VECTOR = "one 4-byte scale for each token and head"
    PER_BLOCK = "one scale in each block of elements"


@dataclass(frozen=True)
class KVFormat:
    """A storage format for keys and values.

    `bits` is the width of one element. Blocks of `block_elements` take `block_bytes` in all, scale
    included, when `scaling` is PER_BLOCK. `whole_row` says that a block may span heads, as in ggml,
    where a row is all heads of one token.
    """

    name: str
    label: str
    bits: int
    scaling: Scaling = Scaling.NONE
    block_elements: int = 1
    block_bytes: int = 0
    whole_row: bool = False
    engines: tuple[str, ...] = ()
    source: str = ""

    def bytes_for(self, num_vectors: int, width: int) -> int:
        """Bytes of `num_vectors` vectors of `width` elements, scales included, rounded up."""
        if num_vectors < 0 or width < 0:
            raise FormatError(f"A format cannot hold {num_vectors} vectors of {width} elements.")
        if self.scaling is Scaling.PER_VECTOR:
            return num_vectors * (_ceil_div(width * self.bits, 8) + 4)
        if self.scaling is not Scaling.PER_BLOCK:
            return _ceil_div(num_vectors * width * self.bits, 8)
        if self.whole_row:
            return _ceil_div(num_vectors * width, self.block_elements) * self.block_bytes
        return num_vectors * _ceil_div(width, self.block_elements) * self.block_bytes

    def bytes_per_element(self, width: int = 128) -> float:
        """Average bytes per element of a vector of `width`, scales included."""
        return self.bytes_for(1, width) / width


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _ggml(name: str, bits: int, block_bytes: int) -> KVFormat:
    return KVFormat(
        name=name,
        label=f"{name} (ggml, {block_bytes} B per 32 elements)",
        bits=bits,
        scaling=Scaling.PER_BLOCK,
        block_elements=32,
        block_bytes=block_bytes,
        whole_row=True,
        engines=("llama.cpp",),
        source="ggml block layout, llama.cpp",
    )


_ALL = (
    KVFormat("bf16", "BF16, 2 bytes", 16, engines=("vllm", "sglang", "llama.cpp")),
    KVFormat("fp16", "FP16, 2 bytes", 16, engines=("vllm", "sglang", "llama.cpp")),
    KVFormat("fp32", "FP32, 4 bytes", 32, engines=("llama.cpp",)),
    KVFormat(
        "fp8",
        "FP8, one scale per tensor",
        8,
        Scaling.PER_TENSOR,
        engines=("vllm", "sglang"),
        source="vLLM 0.33.0, kv_cache_dtype fp8",
    ),
    KVFormat(
        "int8_per_token_head",
        "INT8, 4-byte scale per token and head",
        8,
        Scaling.PER_VECTOR,
        engines=("vllm",),
        source="vLLM 0.33.0",
    ),
    KVFormat(
        "fp8_per_token_head",
        "FP8, 4-byte scale per token and head",
        8,
        Scaling.PER_VECTOR,
        engines=("vllm",),
        source="vLLM 0.33.0",
    ),
    KVFormat(
        "int4_per_token_head",
        "INT4, 4-byte scale per token and head",
        4,
        Scaling.PER_VECTOR,
        engines=("vllm",),
        source="vLLM 0.33.0",
    ),
    KVFormat(
        "nvfp4",
        "NVFP4, one-byte scale per 16 elements",
        4,
        Scaling.PER_BLOCK,
        block_elements=16,
        block_bytes=9,
        engines=("vllm",),
        source="vLLM 0.33.0: head_dim/2 + head_dim/16",
    ),
    KVFormat(
        "fp8_ds_mla",
        "FP8 for latent attention (scales per 128, rotary part in BF16)",
        8,
        Scaling.PER_TENSOR,
        engines=("vllm", "sglang"),
        source="vLLM 0.33.0: 512 + 4·4 + 64·2 = 656 bytes",
    ),
    _ggml("q8_0", 8, 34),
    _ggml("q5_1", 5, 24),
    _ggml("q5_0", 5, 22),
    _ggml("q4_1", 4, 20),
    _ggml("q4_0", 4, 18),
    _ggml("iq4_nl", 4, 18),
)

FORMATS: Mapping[str, KVFormat] = {each.name: each for each in _ALL}

ALIASES: Mapping[str, str] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "f32": "fp32",
    "float8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}

INDEX_KEY_FP8_BLOCK = 128
"""Elements that share one 4-byte scale in an FP8 index key (vLLM, SGLang)."""

_DTYPE_BYTES: Mapping[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


def find_format(name: str | KVFormat) -> KVFormat:
    """The format called `name`, or one of its aliases (`float16`, `fp8_e5m2`, `f16`).

    Raises FormatError, listing the formats there are, for any other name.
    """
    if isinstance(name, KVFormat):
        return name
    if isinstance(name, str):
        lowered = name.strip().lower().removeprefix("torch.")
        found = FORMATS.get(ALIASES.get(lowered, lowered))
        if found:
            return found
    raise FormatError(f"“{name}” is not a storage format; choose one of {', '.join(FORMATS)}.")


def dtype_bytes(name: str) -> int:
    """Bytes of one element of a plain dtype: fp32 4, bf16 and fp16 2, fp8 1."""
    found = find_format(name).name
    if found not in _DTYPE_BYTES:
        raise FormatError(
            f"“{name}” is not a plain dtype; choose one of {', '.join(_DTYPE_BYTES)}."
        )
    return _DTYPE_BYTES[found]


def latent_bytes(fmt: KVFormat, rank: int, rope_dim: int) -> int:
    """Bytes of one latent (MLA) vector: `rank` compressed elements and `rope_dim` rotary ones.

    `fp8_ds_mla` keeps one FP8 byte per compressed element, a 4-byte scale per 128 of them and the
    rotary part in BF16: 656 bytes for 512 + 64 (vLLM 0.33.0). Every other format stores one vector.
    """
    if fmt.name != "fp8_ds_mla":
        return fmt.bytes_for(1, rank + rope_dim)
    return rank + 4 * _ceil_div(rank, 128) + 2 * rope_dim


def index_key_bytes(fmt: KVFormat, width: int) -> int:
    """Bytes of one sparse-attention index key of `width` elements.

    With any format of 8 bits or fewer engines keep FP8 and a 4-byte scale per 128 elements: 132
    bytes for 128 (vLLM, SGLang). With 16 or 32 bits the key is stored as it is.
    """
    if fmt.bits >= 16:
        return fmt.bytes_for(1, width)
    return width + 4 * _ceil_div(width, INDEX_KEY_FP8_BLOCK)
