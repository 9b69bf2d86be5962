"""Who shares which drawer, and what that saves."""

from __future__ import annotations

import streamlit as st

from kvcore import units
from kvcore.attention import Sharing
from kvcore.catalog import GPUS
from kvcore.charts import gqa as charts
from kvcore.gqa import (
    Setting,
    comparable_models,
    head_table,
    ladder_table,
    memory_table,
    models_frame,
)
from pages.common import query
from pages.common.draw import draw
from pages.common.page import export_row
from pages.sharing.timing import best_measured

MODELS_SHOWN = ("Llama-3.1-8B", "Qwen2.5-7B-Instruct", "Qwen3-32B", "Gemma-3-27B", "Falcon-7B")
MOST_MODELS = 8

RULES = {"gqa_models": query.Several(comparable_models())}


def metrics(setting: Setting) -> None:
    """The answer in four numbers."""
    sharing, mha = setting.sharing, setting.as_mha
    columns = st.columns(4)
    columns[0].metric(
        "Query heads per KV head",
        f"{sharing.group_size} ({sharing.name})",
        help="A query head is a reader. A KV head is what it reads: one key and one value for "
        "every token. Readers that share a KV head are counted together.",
    )
    columns[0].caption(_who_reads(sharing))
    columns[1].metric(
        "Cache of one request",
        units.gib(setting.cache_bytes),
        help="Keys and values of every layer at the chosen length.",
    )
    columns[1].caption(
        f"{units.gib(mha.cache_bytes)} as MHA: {units.times(mha.cache_bytes / setting.cache_bytes)}"
    )
    columns[2].metric(
        "Users at once",
        units.count(setting.users),
        help="Requests of this length that fit beside the weights on one such GPU; worst case, "
        "nobody shares a prefix.",
    )
    columns[2].caption(f"{units.count(mha.users)} as MHA")
    _time_metric(columns[3], setting)


def _who_reads(sharing: Sharing) -> str:
    readers, kept = sharing.num_query_heads, sharing.num_kv_heads
    if sharing.name == "MHA":
        return f"nothing shared: {readers} readers, {kept} sets of keys and values"
    return f"{readers} readers share {kept} set{'s' * (kept > 1)} of keys and values"


def _time_metric(column: st.delta_generator.DeltaGenerator, setting: Setting) -> None:
    measured = best_measured(setting.sharing)
    if measured is None:
        column.metric("Time saved in a step", "not recorded", help="See “Time, measured”.")
        column.caption("recorded for 32 query heads as GQA-8 and MQA; measure yours below")
        return
    speed_up, ideal, context = measured
    column.metric(
        "Attention runs",
        f"{units.times(speed_up)} as fast",
        help="One decode step of attention against MHA, recorded on a CPU; see “Time, measured”.",
    )
    column.caption(f"recorded at {context:,} tokens; bytes alone would say {ideal:.0f}×")


def picture(setting: Setting) -> None:
    sharing = setting.sharing
    if sharing.name == "MHA":
        words = f"Each of the {sharing.num_query_heads} query heads has a drawer of its own."
    else:
        drawers = "one drawer" if sharing.num_kv_heads == 1 else f"{sharing.num_kv_heads} drawers"
        words = (
            f"{sharing.num_query_heads} query heads share {drawers}, {sharing.group_size} to each."
        )
    draw(
        charts.heads,
        head_table(sharing),
        alt=words,
        num_query_heads=sharing.num_query_heads,
        num_kv_heads=sharing.num_kv_heads,
    )
    draw(
        charts.ladder,
        ladder_table(setting),
        alt=f"From MHA down to MQA each row has fewer and wider drawers; {sharing.name} is chosen.",
        num_query_heads=sharing.num_query_heads,
    )
    st.caption(
        f"Above: {words[0].lower()}{words[1:]} Only the drawers are kept in memory (after Ainslie "
        "et al. 2023, figure 2). Below: every even way to share; a box is a drawer, as wide as the "
        "heads that share it."
    )


def every_sharing(setting: Setting) -> None:
    table = memory_table(setting)
    less = setting.as_mha.cache_bytes / setting.cache_bytes
    draw(
        charts.memory,
        table,
        alt=f"{setting.sharing.name} takes {units.gib(setting.cache_bytes)}, {less:.1f} times less "
        "than MHA.",
    )
    export_row("gqa_memory", table.to_pandas, settings_of(setting))


def real_models(setting: Setting) -> None:
    """Catalogue models at the chosen length and format, and had they stayed MHA."""
    gpu = st.session_state.gqa_gpu
    names = st.multiselect(
        "Models",
        comparable_models(),
        default=list(MODELS_SHOWN),
        max_selections=MOST_MODELS,
        key="gqa_models",
        bind="query-params",
        help="Models that keep keys and values per head; those with a latent cache (MLA) share in "
        "another way and have no MHA twin of the same numbers.",
    )
    if not names:
        st.caption("Choose a model to compare.")
        return
    frame = models_frame(names, setting.tokens, setting.kv_format, GPUS[gpu])
    as_is = frame[frame["what"] == "as it is"]
    twin = frame[frame["what"] == "had it stayed MHA"]
    times = twin["cache_bytes"].to_numpy() / as_is["cache_bytes"].to_numpy()
    most = int(times.argmax())
    words = (
        f"At {setting.tokens:,} tokens {names[most]} keeps {as_is['cache'].iloc[most]}; had it "
        f"stayed MHA it would keep {twin['cache'].iloc[most]}, {units.times(times[most])} as much."
    )
    st.markdown(words)
    draw(charts.models, frame, alt=words)
    fits = as_is["users"].fillna(0).to_numpy() > 0
    st.dataframe(
        {
            "Model": as_is["model"].to_numpy(),
            "Sharing": as_is["sharing"].to_numpy(),
            "Cache": as_is["cache"].to_numpy(),
            "Had it stayed MHA": twin["cache"].to_numpy(),
            f"Users on one {gpu}": _users(as_is, fits),
            "Users as MHA": _users(twin, fits),
        },
        hide_index=True,
    )
    st.caption(
        "Users: through the calculator's code, weights in 16 bits, no overhead. "
        "Windows and recurrent layers stay as they are in both counts."
    )
    export_row("gqa_models", frame, {**settings_of(setting), "gpu": gpu})


def _users(frame: object, fits: object) -> list[str]:
    return [
        units.count(users) if fit else "weights do not fit"
        for users, fit in zip(frame["users"].fillna(0), fits, strict=True)
    ]


def settings_of(setting: Setting) -> dict[str, object]:
    return {
        "query_heads": setting.sharing.num_query_heads,
        "kv_heads": setting.sharing.num_kv_heads,
        "layers": setting.num_layers,
        "head_dim": setting.head_dim,
        "tokens": setting.tokens,
        "kv_format": setting.kv_format,
        "gpu_bytes": setting.memory_bytes,
        "weights_bytes": setting.weights_bytes,
    }
