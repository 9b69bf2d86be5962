"""The state a recurrent layer keeps for each sequence, by family.

Elements:

    Mamba-1          d_inner·(conv−1) + d_inner·d_state
    Mamba-2          (d_inner + 2·groups·state)·(conv−1) + heads·head_dim·state
    gated delta net  (2·k_heads·k_dim + v_heads·v_dim)·(conv−1) + v_heads·v_dim·k_dim

Sources: Gu & Dao 2023; Dao & Gu 2024; Yang et al. 2024; vLLM 0.33.0's state shapes. The matrix is
kept in fp32 unless the config says otherwise, the convolution in the model's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvcore.architecture import CONVOLUTION, MATRIX, HeadPart, Source, StateTensor
from kvcore.config_json.fields import Fields, shown
from kvcore.formats import ALIASES, FormatError, dtype_bytes

State = tuple[StateTensor, ...]

STATE_DTYPE_KEYS = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")


def state_dtype(fields: Fields) -> str:
    """The dtype of the recurrent matrix: from the config, else fp32 as an assumption."""
    for key in STATE_DTYPE_KEYS:
        value = fields.get(key)
        if value is None or value == "auto":
            continue
        name = ALIASES.get(str(value).lower().removeprefix("torch."), str(value).lower())
        try:
            dtype_bytes(name)
        except FormatError:
            raise fields.error(
                key, f"{{key}} is {shown(value)}, which is no dtype known here."
            ) from None
        fields.record("state_dtype", name, Source.CONFIG, fields.name(key))
        return name
    default = next(
        (
            fields.model_class.default(key)
            for key in STATE_DTYPE_KEYS
            if fields.model_class.default(key)
        ),
        None,
    )
    if default:
        name = ALIASES.get(str(default), str(default))
        fields.record("state_dtype", name, Source.CLASS_DEFAULT, fields.model_class.source)
        return name
    fields.record("state_dtype", "fp32", Source.ASSUMPTION, "most engines keep the matrix in fp32")
    return "fp32"


def recurrent_state(fields: Fields, model_type: str, model_dtype: str) -> State:
    """The tensors one recurrent layer keeps. Raises ConfigError, naming the key."""
    family = FAMILIES.get(model_type)
    if family is None and fields.says("linear_num_key_heads"):
        family = _gated_delta_net
    if family is None:
        raise fields.error(
            "layer_types",
            f"{{key}} has recurrent layers, but what a {model_type} layer keeps is unknown here.",
        )
    return family(fields, model_dtype)


def short_convolution(fields: Fields, model_dtype: str) -> State:
    """LFM2: the last kernel − 1 inputs, hidden_size wide."""
    kernel = fields.whole("conv_kernel", "conv_L_cache", minimum=2)
    width = fields.whole("hidden_size", "hidden_size")
    return (StateTensor(CONVOLUTION, (HeadPart(width, 1),), kernel - 1, model_dtype),)


def _inner_size(fields: Fields, *expand_keys: str) -> int:
    expand = fields.whole("expand", *expand_keys, assume=2, because="Mamba's own default")
    return expand * fields.whole("hidden_size", "hidden_size")


def _mamba1(fields: Fields, model_dtype: str) -> State:
    inner = _inner_size(fields, "mamba_expand", "expand")
    return _mamba1_tensors(
        inner,
        fields.whole("conv_kernel", "mamba_d_conv", "conv_kernel", minimum=2),
        fields.whole("state_size", "mamba_d_state", "state_size"),
        model_dtype,
        state_dtype(fields),
    )


def _mamba1_tensors(inner: int, kernel: int, state: int, dtype: str, matrix_dtype: str) -> State:
    return (
        StateTensor(CONVOLUTION, (HeadPart(inner, 1),), kernel - 1, dtype),
        StateTensor(MATRIX, (HeadPart(inner, 1),), state, matrix_dtype),
    )


def _mamba2(fields: Fields, model_dtype: str) -> State:
    heads = fields.whole(
        "state_heads", "mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads"
    )
    head_dim = _mamba2_head_dim(fields, heads)
    groups = fields.whole(
        "state_groups", "n_groups", "mamba_n_groups", "mamba_ngroups", assume=1, because="one group"
    )
    return _mamba2_tensors(
        heads,
        head_dim,
        groups,
        fields.whole("state_size", "ssm_state_size", "mamba_d_state", "state_size"),
        fields.whole("conv_kernel", "conv_kernel", "mamba_d_conv", minimum=2),
        model_dtype,
        state_dtype(fields),
    )


def _mamba2_head_dim(fields: Fields, heads: int) -> int:
    for key in ("mamba_head_dim", "mamba_d_head", "mamba_headdim"):
        if fields.get(key) not in (None, "auto"):
            return fields.whole("state_head_dim", key)
    if fields.model_class.model_type == "mamba2" and fields.get("head_dim") is not None:
        return fields.whole("state_head_dim", "head_dim")
    inner = fields.maybe_whole("state_width", "mamba_d_ssm") if fields.says("mamba_d_ssm") else None
    inner = inner or _inner_size(fields, "mamba_expand", "expand")
    if inner % heads:
        raise fields.error(
            "mamba_n_heads", f"{{key}}: {heads} heads do not divide the state width {inner}."
        )
    return inner // heads


def _mamba2_tensors(
    heads: int, head_dim: int, groups: int, state: int, kernel: int, dtype: str, matrix_dtype: str
) -> State:
    convolved = [HeadPart(heads, head_dim)]
    if groups:
        convolved.append(HeadPart(groups, state, copies=2))
    return (
        StateTensor(CONVOLUTION, tuple(convolved), kernel - 1, dtype),
        StateTensor(MATRIX, (HeadPart(heads, head_dim),), state, matrix_dtype),
    )


def _plamo2(fields: Fields, model_dtype: str) -> State:
    """Mamba-2 whose B and C do not pass the convolution."""
    return _mamba2_tensors(
        fields.whole("state_heads", "mamba_num_heads"),
        fields.whole("state_head_dim", "hidden_size_per_head"),
        0,
        fields.whole("state_size", "mamba_d_state"),
        fields.whole("conv_kernel", "mamba_d_conv", minimum=2),
        model_dtype,
        state_dtype(fields),
    )


def _gated_delta_net(fields: Fields, model_dtype: str) -> State:
    heads = fields.maybe_whole("num_attention_heads", "num_attention_heads")
    k_heads = fields.whole(
        "key_heads", "linear_num_key_heads", assume=heads, because="as many as attention heads"
    )
    v_heads = fields.whole(
        "state_heads", "linear_num_value_heads", assume=heads, because="as many as attention heads"
    )
    hidden = fields.maybe_whole("hidden_size", "hidden_size") or 0
    k_dim = fields.whole(
        "key_dim",
        "linear_key_head_dim",
        assume=int(0.75 * hidden / k_heads) or None,
        because="three quarters of the hidden size over the key heads (olmo_hybrid)",
    )
    v_dim = fields.whole(
        "value_dim", "linear_value_head_dim", assume=2 * k_dim, because="twice the key width"
    )
    kernel = fields.whole("conv_kernel", "linear_conv_kernel_dim", minimum=2)
    return _delta_tensors(k_heads, k_dim, v_heads, v_dim, kernel, model_dtype, state_dtype(fields))


def _delta_tensors(
    k_heads: int, k_dim: int, v_heads: int, v_dim: int, kernel: int, dtype: str, matrix_dtype: str
) -> State:
    convolved = (HeadPart(k_heads, k_dim, copies=2), HeadPart(v_heads, v_dim))
    return (
        StateTensor(CONVOLUTION, convolved, kernel - 1, dtype),
        StateTensor(MATRIX, (HeadPart(v_heads, v_dim),), k_dim, matrix_dtype),
    )


def _kimi_delta(fields: Fields, model_dtype: str) -> State:
    """Kimi Linear: query, key and value of equal width, each convolved."""
    linear = fields.inside("linear_attn_config") or fields
    heads = linear.whole("state_heads", "linear_num_heads", "num_heads", "num_attention_heads")
    width = linear.whole("state_head_dim", "linear_head_dim", "head_dim")
    kernel = linear.whole(
        "conv_kernel", "linear_conv_kernel_dim", "short_conv_kernel_size", minimum=2
    )
    if linear is not fields:
        fields.sources.update(linear.sources)
    return _delta_tensors(heads, width, heads, width, kernel, model_dtype, state_dtype(fields))


def _lightning(fields: Fields, model_dtype: str) -> State:
    """MiniMax: one square matrix a head, no convolution."""
    heads = fields.whole("state_heads", "num_attention_heads")
    width = fields.maybe_whole("state_head_dim", "head_dim")
    width = width or fields.whole("hidden_size", "hidden_size") // heads
    return (StateTensor(MATRIX, (HeadPart(heads, width),), width, state_dtype(fields)),)


def _linear_unit(fields: Fields, model_dtype: str) -> State:
    """RecurrentGemma: a vector of lru_width and the inputs of its convolution."""
    hidden = fields.whole("hidden_size", "hidden_size")
    width = fields.whole("state_width", "lru_width", assume=hidden, because="as wide as the model")
    kernel = fields.whole("conv_kernel", "conv1d_width", minimum=2)
    return (
        StateTensor(CONVOLUTION, (HeadPart(width, 1),), kernel - 1, model_dtype),
        StateTensor(MATRIX, (HeadPart(width, 1),), 1, state_dtype(fields)),
    )


FAMILIES: Mapping[str, Callable[[Fields, str], State]] = {
    "bailing_hybrid": _kimi_delta,
    "bamba": _mamba2,
    "falcon_h1": _mamba2,
    "falcon_mamba": _mamba1,
    "granitemoehybrid": _mamba2,
    "jamba": _mamba1,
    "kimi_linear": _kimi_delta,
    "lara_mini": _gated_delta_net,
    "mamba": _mamba1,
    "mamba2": _mamba2,
    "minimax": _lightning,
    "nemotron_h": _mamba2,
    "olmo_hybrid": _gated_delta_net,
    "plamo2": _plamo2,
    "qwen3_5_moe_text": _gated_delta_net,
    "qwen3_5_text": _gated_delta_net,
    "qwen3_next": _gated_delta_net,
    "recurrent_gemma": _linear_unit,
    "zamba": _mamba1,
    "zamba2": _mamba2,
}
