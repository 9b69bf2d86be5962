"""The memory that is given out, and the longest request it is given to."""

from __future__ import annotations

import streamlit as st

from kvcore import units
from kvcore.catalog import GPUS
from kvcore.paging.hardware import named_pool, pooled_models
from kvcore.paging.simulation import PAPER_NUM_SLOTS
from pages.common.page import refuse
from pages.common.query import Choice, Named, Number

POOLS = {
    "paper": "The paper's: 12 GiB for OPT-13B",
    "slots": "So many slots",
    "model": "A model on a GPU",
}
MAX_LENGTHS = [2_048, 4_096, 8_192, 16_384, 32_768, 131_072]
RULES = {
    "paging_pool": Named(POOLS),
    "paging_slots": Number(64, 2_000_000),
    "paging_model": Choice(pooled_models()),
    "paging_gpu": Choice(tuple(GPUS)),
    "paging_gpus": Choice(("1", "2", "4", "8")),
    "paging_max_len": Named({length: units.count(length) for length in MAX_LENGTHS}),
}


def choose_pool() -> dict[str, object]:
    pool = st.selectbox(
        "Memory",
        list(POOLS),
        format_func=POOLS.get,
        key="paging_pool",
        bind="query-params",
        help="A slot is the room for the keys and values of one token, in all layers.",
    )
    chosen: dict[str, object] = {"num_slots": PAPER_NUM_SLOTS}
    if pool == "slots":
        chosen["num_slots"] = st.number_input(
            "Slots",
            64,
            2_000_000,
            PAPER_NUM_SLOTS,
            key="paging_slots",
            bind="query-params",
            help="Tokens whose keys and values fit at once.",
        )
    if pool == "model":
        chosen |= choose_hardware()
    chosen["max_model_len"] = st.selectbox(
        "Longest request the model takes (tokens)",
        MAX_LENGTHS,
        format_func=units.count,
        key="paging_max_len",
        bind="query-params",
        help="What “reserve the longest” reserves; longer requests are refused by every policy.",
    )
    return chosen


def choose_hardware() -> dict[str, object]:
    models = pooled_models()
    model = st.selectbox(
        "Model",
        models,
        key="paging_model",
        bind="query-params",
        help="Models whose every layer keeps the keys and values of every token.",
    )
    gpu = st.selectbox(
        "GPU",
        list(GPUS),
        list(GPUS).index("A10 24 GB"),
        key="paging_gpu",
        bind="query-params",
        help="Its memory as the calculator knows it.",
    )
    gpus = st.segmented_control(
        "GPUs",
        [1, 2, 4, 8],
        default=1,
        required=True,
        key="paging_gpus",
        bind="query-params",
        help="One copy of the model is split over so many.",
    )
    try:
        pool = named_pool(model, gpu, gpus)
    except ValueError as problem:
        refuse(str(problem))
        st.caption("Shown meanwhile: the paper's pool.")
        return {"num_slots": PAPER_NUM_SLOTS}
    st.caption(
        f"{units.gib(pool.free_bytes)} a GPU remain for the cache; at "
        f"{units.gib(pool.bytes_per_slot)} a token that is {units.count(pool.num_slots)} slots."
    )
    return {"num_slots": pool.num_slots, "tensor_bytes": pool.tensor_bytes}
