"""Multi-head, grouped-query and multi-query attention: what sharing saves, and what it costs."""

from pages.common.entry import through_app

through_app()

import streamlit as st

from kvcore import units
from kvcore.gqa import Setting, memory_table
from pages.common import query
from pages.common.page import export_row, header, share_link, sources
from pages.sharing import memory, pooling, shape, timing

TABS = (
    "Every sharing",
    "Real models",
    "Time, measured",
    "Quality, measured",
    "Arithmetic",
    "Sources",
    "Export and link",
)


def arithmetic(setting: Setting) -> None:
    sharing = setting.sharing
    st.markdown(
        "Each layer keeps one key and one value for every KV head and token; how many query heads "
        "read them does not matter:"
    )
    st.code(
        f"2 × {setting.num_layers} layers × {sharing.num_kv_heads} KV heads × "
        f"{setting.head_dim} numbers × {setting.tokens:,} tokens, stored as {setting.kv_format}\n"
        f"= {setting.cache_bytes:,} bytes = {units.gib(setting.cache_bytes)}",
        language=None,
        wrap_lines=True,
    )
    free = setting.memory_bytes - setting.weights_bytes
    st.markdown("Users are what fits into the memory that the weights leave, rounded down:")
    st.code(
        f"({setting.memory_bytes:,} − {setting.weights_bytes:,}) bytes ÷ "
        f"{setting.cache_bytes:,} bytes = {free / setting.cache_bytes:,.2f}, "
        f"so {units.count(setting.users)}",
        language=None,
        wrap_lines=True,
    )
    st.markdown(
        "A decode step multiplies every query with every key it sees, so the multiplications stay "
        f"those of {sharing.num_query_heads} heads whatever is shared; only the bytes are divided "
        f"by {sharing.group_size}. That is why the time saved falls behind the bytes saved once "
        "few are left to read."
    )


def where_from() -> None:
    sources(
        [
            "Names, groups, mean-pooling and the table quoted: Ainslie et al. 2023, §2 and table 1 "
            "(arXiv:2305.13245); one KV head for all: Shazeer 2019 (arXiv:1911.02150).",
            "Bytes and users: the calculator's code, computed; models and GPUs: the catalogue, "
            "each with its source there.",
            "Times and quality: measured by this project's code, recorded or live, as labelled. "
            "That `enable_gqa` goes through the cache once per query head is inferred from how "
            "its gain fades with the context, not read from counters.",
            "CPUs only. A GPU's kernels share within a group as the packed form does; its limits "
            "lie elsewhere.",
        ]
    )


def export(setting: Setting) -> None:
    export_row("gqa_sharing", memory_table(setting).to_pandas, memory.settings_of(setting))
    share_link("gqa")


@st.fragment
def lab() -> None:
    """All that follows from the settings: a moved slider draws this anew, and no more."""
    answer = st.container()
    asked, shown = st.columns([2, 3], gap="large")
    with asked:
        setting = shape.choose()
    with answer:
        memory.metrics(setting)
    with shown:
        memory.picture(setting)

    bodies = (
        lambda: memory.every_sharing(setting),
        lambda: memory.real_models(setting),
        lambda: timing.body(setting),
        pooling.body,
        lambda: arithmetic(setting),
        where_from,
        lambda: export(setting),
    )
    tabs = st.tabs(TABS, key="gqa_tab", on_change="rerun", bind="query-params")
    for tab, body in zip(tabs, bodies, strict=True):
        if tab.open:
            with tab:
                body()


query.check(
    {
        **shape.RULES,
        **memory.RULES,
        **timing.RULES,
        **pooling.RULES,
        "gqa_tab": query.Choice(TABS),
    },
)
header(
    "Sharing heads",
    "When query heads share keys and values, the cache shrinks by as much: what that saves in "
    "memory and time, and what it costs in quality.",
)
lab()
