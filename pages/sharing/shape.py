"""The shape of the model, the request and the GPU."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from kvcore.attention import Sharing, sharings
from kvcore.capacity import weight_bytes
from kvcore.catalog import GPUS, MODELS
from kvcore.formats import FORMATS
from kvcore.gqa import Setting, shape_of, simple_models
from kvcore.units import GIB
from pages.common import query

MOST_HEADS = 128
DEFAULT_MODEL = "Llama-3.1-8B"
DEFAULT_GPU = "H100 80 GB SXM"
HEAD_DIMS = (32, 48, 64, 80, 96, 128, 192, 256)
CONTEXTS = tuple(2**power for power in range(10, 18))
KV_FORMATS = tuple(name for name in FORMATS if name != "fp8_ds_mla")
LARGEST_WEIGHTS = 2_000.0

RULES = {
    "gqa_query_heads": query.Number(1, MOST_HEADS),
    "gqa_sharing": query.Text(20),
    "gqa_layers": query.Number(1, 128),
    "gqa_head_dim": query.Choice(tuple(str(dim) for dim in HEAD_DIMS)),
    "gqa_tokens": query.Named({tokens: f"{tokens:,}" for tokens in CONTEXTS}),
    "gqa_format": query.Choice(KV_FORMATS),
    "gqa_gpu": query.Choice(tuple(GPUS)),
    "gqa_weights": query.Number(0, LARGEST_WEIGHTS, whole=False),
}


def choose() -> Setting:
    """The controls of the page."""
    _start_from()
    st.subheader("Heads", anchor=False)
    query_heads = st.slider(
        "Query heads",
        1,
        MOST_HEADS,
        32,
        key="gqa_query_heads",
        bind="query-params",
        help="Readers: every one of them looks at the whole cache for each new token.",
    )
    sharing = _choose_sharing(query_heads)
    st.subheader("Model and request", anchor=False)
    layers = st.slider(
        "Layers",
        1,
        128,
        32,
        key="gqa_layers",
        bind="query-params",
        help="Each keeps its own cache.",
    )
    row = st.container(horizontal=True)
    head_dim = row.selectbox(
        "Head dimension",
        HEAD_DIMS,
        HEAD_DIMS.index(128),
        key="gqa_head_dim",
        bind="query-params",
        help="Numbers in one key, and in one value, of one head.",
    )
    kv_format = row.selectbox(
        "Stored as",
        KV_FORMATS,
        key="gqa_format",
        bind="query-params",
        help="The format of keys and values; scales are counted.",
    )
    tokens = st.select_slider(
        "Tokens in the cache",
        CONTEXTS,
        8192,
        format_func=lambda count: f"{count:,}",
        key="gqa_tokens",
        bind="query-params",
        help="Prompt and reply of one request together.",
    )
    row = st.container(horizontal=True)
    gpu = row.selectbox(
        "GPU",
        list(GPUS),
        list(GPUS).index(DEFAULT_GPU),
        key="gqa_gpu",
        bind="query-params",
        help="Its memory as the driver reports it.",
    )
    weights = row.number_input(
        "Weights (GiB)",
        0.0,
        LARGEST_WEIGHTS,
        round(weight_bytes(MODELS[DEFAULT_MODEL].parameters) / GIB, 2),
        step=1.0,
        key="gqa_weights",
        bind="query-params",
        help="What the weights take on the same GPU. Sharing also shrinks the key and value "
        "projections a little; that is left out.",
    )
    memory_bytes = GPUS[gpu].memory_bytes
    return Setting(sharing, layers, head_dim, tokens, kv_format, memory_bytes, int(weights * GIB))


def _start_from() -> None:
    names = simple_models()
    st.selectbox(
        "Start from a model",
        names,
        index=names.index(DEFAULT_MODEL),
        key="gqa_model",
        on_change=_take_over,
        help="Sets the sliders below to this model; then move them.",
    )


def _take_over() -> None:
    model = MODELS[st.session_state.gqa_model]
    shape = shape_of(model)
    st.session_state.gqa_query_heads = shape.sharing.num_query_heads
    st.session_state.gqa_sharing = shape.sharing.name
    st.session_state.gqa_layers = shape.num_layers
    if shape.head_dim in HEAD_DIMS:
        st.session_state.gqa_head_dim = shape.head_dim
    if model.parameters is not None:
        weights = weight_bytes(model.parameters) / GIB
        st.session_state.gqa_weights = round(min(weights, LARGEST_WEIGHTS), 2)


def _choose_sharing(query_heads: int) -> Sharing:
    """A stop for every even way to share; the nearest one when the query heads change."""
    stops = {sharing.name: sharing for sharing in sharings(query_heads)}
    query.check({"gqa_sharing": query.Choice(tuple(stops))})
    wanted = st.session_state.get("gqa_sharing")
    if wanted is not None and wanted not in stops:
        nearest = _nearest(stops.values(), _kv_heads(wanted, query_heads))
        st.session_state.gqa_sharing = nearest.name
        st.caption(
            f"{wanted} does not divide {query_heads} query heads evenly; {nearest.name} is the "
            "nearest that does."
        )
    if len(stops) == 1:
        st.caption("One query head has nothing to share: MHA and MQA are the same.")
        return stops["MHA"]
    name = st.select_slider(
        "KV heads",
        list(stops),
        value=_nearest(stops.values(), 8).name,
        key="gqa_sharing",
        bind="query-params",
        help="Drawers: each holds one key and one value per token. MHA has one for every query "
        "head, MQA one for all, GQA-g has g; only even shares are offered.",
    )
    return stops[name]


def _nearest(stops: Iterable[Sharing], kv_heads: int) -> Sharing:
    return min(stops, key=lambda each: (abs(each.num_kv_heads - kv_heads), each.num_kv_heads))


def _kv_heads(name: str, query_heads: int) -> int:
    """The KV heads a name stands for."""
    return {"MHA": query_heads, "MQA": 1}.get(name) or int(name.removeprefix("GQA-"))
