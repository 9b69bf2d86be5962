"""What sharing costs in quality when a trained model is simply pooled."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import streamlit as st

from kvcore import recordings, units
from kvcore.charts import gqa as charts
from kvcore.decoding.known import KNOWN, offered
from kvcore.decoding.shelf import SHELF
from kvcore.jobs import Job, State, Work
from kvcore.quality import (
    PYTHON_TOPICS,
    Score,
    compare,
    pooled_treatments,
    python_text,
    score_rows,
    source_of,
)
from pages.common import query
from pages.common.draw import draw
from pages.common.jobs import Slot, progress, session_job
from pages.common.page import export_row
from pages.common.text import as_text

TITLE = next(iter(PYTHON_TOPICS))
TOKENS = (512, 768, 1000)
SCORED_FROM = 64
MODELS = offered(("smollm2", "gpt2", "distilgpt2"))

RULES = {
    "gqa_pool_model": query.Named({name: KNOWN[name].title for name in MODELS}),
    "gqa_pool_tokens": query.Choice(tuple(str(count) for count in TOKENS)),
}

UPTRAINED = pd.DataFrame(
    {
        "T5 XXL, as published": ["MHA", "GQA-8, uptrained", "MQA, uptrained"],
        "Time per sample": ["1.51 s", "0.28 s", "0.24 s"],
        "Average quality": [47.2, 47.1, 46.6],
    }
)


def body() -> None:
    st.markdown(
        "A trained model can be converted by replacing the KV heads of a group with their mean "
        "(Ainslie et al. 2023, §2.1). Without further training that is no free lunch. Measured on "
        "a real model, every layer or only the last ones pooled:"
    )
    slot = session_job("gqa_pooling")
    _start_and_stop(slot)
    if slot.active:
        st.fragment(_watch, run_every=0.5)()
    else:
        _result(slot)
    st.markdown(
        "**Uptraining wins most of it back.** The paper goes on training the pooled model for 5 % "
        "of its pre-training steps, and then:"
    )
    st.dataframe(UPTRAINED, hide_index=True, width="content")
    st.caption(
        "Quoted: Ainslie et al. 2023, “GQA: Training Generalized Multi-Query Transformer Models "
        "from Multi-Head Checkpoints”, table 1 (T5 XXL on TPUs, average over seven tasks). Not "
        "measured here: uptraining needs the training data and thousands of accelerator hours."
    )


def _start_and_stop(slot: Slot) -> None:
    row = st.columns([2, 1, 1], vertical_alignment="bottom")
    name = row[0].selectbox(
        "Model to pool",
        MODELS,
        format_func=lambda known: KNOWN[known].title,
        key="gqa_pool_model",
        bind="query-params",
        help="SmolLM2 has 3 KV heads for 9 query heads, GPT-2 has 12 for 12. GPT-2 needs the hub.",
    )
    tokens = row[1].selectbox(
        "Tokens of text",
        TOKENS,
        key="gqa_pool_tokens",
        bind="query-params",
        help="From the Python reference that ships with Python.",
    )
    buttons = row[2].container(horizontal=True)
    if buttons.button("Pool here", type="primary", key="gqa_pool", disabled=slot.active):
        slot.start(pooling_work(name, tokens))
        st.rerun()
    if buttons.button("Stop", key="gqa_pool_stop", disabled=not slot.active):
        slot.stop()
        slot.job.join(5)
        st.rerun()


def pooling_work(name: str, tokens: int) -> Work:
    """One score a step; refuses random weights, whose quality says nothing."""

    def work(job: Job) -> Iterator[Score]:
        model = SHELF.take(name, should_stop=lambda: job.stopping)
        if model.source == "random":
            raise ValueError(
                f"{model.notice} Pooling random weights would show nothing; choose SmolLM2."
            )
        treatments = pooled_treatments(model.config.num_layers, model.config.num_kv_heads)
        job.total = 1 + len(treatments)
        ids = model.encode(python_text(TITLE))[:tokens]
        yield from compare(model, ids, treatments, SCORED_FROM, lambda: job.stopping)

    return work


def _watch() -> None:
    slot = session_job("gqa_pooling")
    progress(slot.job)
    rows = score_rows(list(slot.job.results))
    if len(rows) > 2:
        _draw(rows)
    if not slot.active:
        st.rerun()


def _result(slot: Slot) -> None:
    if slot.job is not None:
        if slot.job.state is State.FAILED:
            progress(slot.job)
        rows = score_rows(slot.job.results)
        if len(rows) > 2:
            st.caption(f"Measured here and now on {source_of(TITLE)}.")
            _draw(rows)
            export_row("gqa_pooling", pd.DataFrame(rows), {"text": source_of(TITLE)})
            return
    recording = recordings.read("gqa")
    pooling = recording.data["pooling"]
    st.caption(
        f"{recording.label} Text: {as_text(pooling['text'])}. "
        f"{pooling['query_heads']} query heads, {pooling['kv_heads']} KV heads as trained."
    )
    _draw(pooling["scores"])
    export_row("gqa_pooling", pd.DataFrame(pooling["scores"]), {"text": pooling["text"]})


def _draw(rows: list[dict[str, object]]) -> None:
    frame = pd.DataFrame(rows)
    shown = frame[frame["share_of_full"] <= 1]
    last = shown.iloc[-1]
    words = (
        f"{last['treatment']} leaves {units.percent(last['share_of_full'])} of the cache and takes "
        f"perplexity from {units.sig3(frame.iloc[0]['perplexity'])} to "
        f"{units.sig3(last['perplexity'])}; {units.percent(last['unchanged'])} of the next tokens "
        "stay the same."
    )
    st.markdown(as_text(words, 400))
    draw(charts.pooling, shown, alt=words)
    st.dataframe(
        {
            "Pooled": shown["treatment"],
            "Cache": shown["cache_bytes"].map(units.mib),
            "Perplexity": shown["perplexity"].map(units.sig3),
            "Divergence (nats)": shown["divergence"].map(units.sig3),
            "Unchanged tokens": shown["unchanged"].map(units.percent),
        },
        hide_index=True,
    )
