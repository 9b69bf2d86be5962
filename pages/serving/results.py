"""What an experiment showed: the answer, the picture, the tabs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from kvcore import units
from kvcore.charts import server as charts
from kvcore.serving import frames
from kvcore.serving.experiments import AGAIN, CHANGED, FIRST, WARM_UP
from kvcore.serving.findings import (
    early_change_findings,
    first_token_findings,
    token_time_findings,
)
from kvcore.serving.recorded import EARLY_CHANGE, FIRST_TOKEN, TOKEN_TIME
from kvcore.serving.run import Sample, skew_notice
from pages.common.draw import draw
from pages.common.page import export_row, share_link, sources
from pages.common.text import as_text

UNKNOWN = "not said"
EXPORT = "Export"
TABS = ("Every request", "Arithmetic", "Sources", EXPORT)
TAB = "server_tab"


def show(kind: str, samples: Sequence[Sample], whole: bool, settings: Mapping[str, object]) -> None:
    """Everything about the samples so far; the tabs only once they stand still."""
    measured = [s for s in samples if s.series != WARM_UP]
    _tell_problems(measured)
    if not any(not s.problem for s in measured):
        return
    ANSWERS[kind](measured)
    if not whole:
        return
    bodies: tuple[Callable[[], None], ...] = (
        lambda: st.dataframe(_readable(measured), hide_index=True),
        lambda: st.code("\n".join(ARITHMETIC[kind](measured)), language=None, wrap_lines=True),
        lambda: sources(SOURCES),
        lambda: _export(kind, measured, settings),
    )
    for tab, body in zip(st.tabs(TABS, key=TAB, on_change="rerun"), bodies, strict=True):
        if tab.open:
            with tab:
                body()


def _export(kind: str, samples: Sequence[Sample], settings: Mapping[str, object]) -> None:
    export_row("server", frames.table(samples), {"experiment": kind, **settings})
    share_link("server_")


def _tell_problems(samples: Sequence[Sample]) -> None:
    problems = [s.problem for s in samples if s.problem]
    for sentence in dict.fromkeys(problems):
        times = problems.count(sentence)
        count = f" ({times} times)" if times > 1 else ""
        st.warning(as_text(sentence, 400) + count)
    notice = skew_notice(list(samples))
    if notice:
        st.caption(notice)
    retries = sum(s.retries for s in samples)
    if retries:
        st.caption(f"The server limited requests; {retries:,} were sent again after a pause.")


def _first_token(samples: Sequence[Sample]) -> None:
    found = first_token_findings(samples)
    ratio, cold, pays, slope = st.columns(4)
    longest = max(found.cold, default=None)
    ratio.metric(
        "Faster when warm",
        units.times(found.longest_ratio) if found.longest_ratio else "–",
        help="Median time to first token, cold over warm, at the longest prompt.",
    )
    cold.metric(
        "Cold, longest",
        units.seconds(found.cold[longest].middle) if longest else "–",
        help="Median time to first token with a prefix the server has never seen.",
    )
    pays.metric(
        "Always faster from",
        f"{found.pays_from:,} tokens" if found.pays_from else "no length here",
        help="For prompts of this length and longer, every answer to a prefix sent before (warm) "
        "began sooner than every answer to a new one (cold).",
    )
    slope.metric(
        "1,000 tokens, cold",
        units.seconds(found.cold_line.slope * 1000) if found.cold_line else "–",
        help="Slope of the cold line (Theil and Sen): how fast the server prefills.",
    )
    st.markdown(found.verdict)
    takeaway = "Time to first token against prompt length, cold and warm."
    if found.longest_ratio:
        takeaway = (
            f"At the longest prompt the first token came {units.times(found.longest_ratio)} "
            "sooner with a warm prefix."
        )
    draw(charts.first_token, frames.first_token_points(samples), alt=takeaway)


def _early_change(samples: Sequence[Sample]) -> None:
    found = early_change_findings(samples)
    again, changed, cost, lost = st.columns(4)
    again.metric("Prefix repeated", _seconds(found.seconds, AGAIN), help="Median first token.")
    changed.metric(
        "Character changed",
        _seconds(found.seconds, CHANGED),
        help="Median first token with one character of the third word changed.",
    )
    cost.metric(
        "That costs",
        units.times(found.costs_times) if found.costs_times else "–",
        help="Time to first token after the change over time before it.",
    )
    lost.metric(
        "Tokens lost",
        UNKNOWN if found.lost_tokens is None else units.count(found.lost_tokens),
        help="No longer reused after the change, as the server counts in its answers or metrics.",
    )
    takeaway = "Time to first token for a prefix, the same again, and with one character changed."
    if found.costs_times:
        takeaway = (
            "One changed character near the start of the prompt makes the first token take "
            f"{units.times(found.costs_times)} as long as with the prefix repeated."
        )
    draw(charts.early_change, frames.early_change_bars(samples), alt=takeaway)


def _token_time(samples: Sequence[Sample]) -> None:
    found = token_time_findings(samples)
    alone, context, bend, full = st.columns(4)
    shortest = min(found.by_context, default=None)
    alone.metric(
        "Alone, per token",
        units.ms(found.by_context[shortest].middle) if shortest else "–",
        help="Median time per output token of a single request, at the shortest context.",
    )
    context.metric(
        "1,000 of context",
        units.ms(found.context_line.slope * 1000) if found.context_line else "–",
        help="What 1,000 more tokens of context add to each output token (Theil and Sen's slope).",
    )
    bend.metric(
        "Bends at",
        f"{found.bends_at:,}" if found.bends_at else ("not yet" if found.loads else "–"),
        help="So many requests at once; twice as many bring less than 1.25 times the tokens a "
        "second.",
    )
    usage = [load.kv_usage for load in found.loads if load.kv_usage is not None]
    lost = [load.preemptions for load in found.loads if load.preemptions is not None]
    full.metric(
        "KV cache in use",
        units.percent(max(usage)) if usage else UNKNOWN,
        help="At most, as /metrics said when looked at twice a second.",
    )
    if lost:
        st.caption(f"Preemptions meanwhile: {sum(lost):,.0f}.")
    left, right = st.columns(2)
    _draw_if_any(
        charts.context_time,
        frames.token_time_points(samples),
        "Time for each output token against the length of the context.",
        left,
    )
    loads = frames.load_points(samples)
    _draw_if_any(
        charts.load_time, loads, "Time for each output token against requests at once.", right
    )
    if not len(loads):
        return
    draw(
        charts.throughput,
        loads,
        alt="Tokens a second of all requests together, against requests at once.",
        slot=left,
    )
    right.caption("The server's cache meanwhile")
    right.dataframe(
        [
            {
                "at once": row.concurrent,
                "ms a token": f"{row.ms:,.1f}",
                "tokens a second": f"{row.tokens_per_second:,.1f}",
                "KV cache in use": row.usage,
                "preemptions": row.preemptions,
            }
            for row in loads.itertuples()
        ],
        hide_index=True,
    )


def _draw_if_any(chart: Callable, frame: object, alt: str, slot: object) -> None:
    if len(frame):
        draw(chart, frame, alt=alt, slot=slot)


def _seconds(found: Mapping[str, object], step: str) -> str:
    return units.seconds(found[step].middle) if step in found else "–"


def _readable(samples: Sequence[Sample]) -> object:
    frame = frames.table(samples)
    frame = frame.drop(columns=[name for name in frame if frame[name].isna().all()])
    return frame.rename(columns=lambda name: name.replace("_", " "))


def _first_token_arithmetic(samples: Sequence[Sample]) -> list[str]:
    found = first_token_findings(samples)
    lines = []
    for name, line in (("cold", found.cold_line), ("warm", found.warm_line)):
        if line is not None:
            lines.append(
                f"{name}: {line.intercept:.3f} s + {line.slope * 1000:.3f} ms × tokens "
                "(median of all slopes between two answers)"
            )
    for length, cold in found.cold.items():
        warm = found.warm.get(length)
        if warm is not None:
            lines.append(
                f"about {length:,} tokens: cold {cold.low:.3f} to {cold.high:.3f} s, warm "
                f"{warm.low:.3f} to {warm.high:.3f} s ({cold.count} and {warm.count} answers); "
                f"{cold.middle:.3f} ÷ {warm.middle:.3f} = {cold.middle / warm.middle:.1f}×"
            )
    return lines


def _early_change_arithmetic(samples: Sequence[Sample]) -> list[str]:
    found = early_change_findings(samples)
    lines = [
        f"{step}: {each.middle:.3f} s in the median of {each.count} ({each.low:.3f} to "
        f"{each.high:.3f})"
        for step, each in found.seconds.items()
    ]
    if found.costs_times:
        changed, again = found.seconds[CHANGED].middle, found.seconds[AGAIN].middle
        lines.append(f"cost: {changed:.3f} ÷ {again:.3f} = {found.costs_times:.1f}×")
    if FIRST in found.seconds and found.lost_tokens is not None:
        lines.append(
            f"tokens: {found.reused[AGAIN]:,.0f} reused − {found.reused[CHANGED]:,.0f} reused "
            f"after the change = {found.lost_tokens:,.0f} computed again"
        )
    return lines


def _token_time_arithmetic(samples: Sequence[Sample]) -> list[str]:
    found = token_time_findings(samples)
    formula = "time per token = (last piece − first piece) ÷ (output tokens − 1)"
    return [formula] + [
        f"{load.concurrent} at once: {load.seconds_per_token.middle * 1000:.1f} ms a token each, "
        f"{load.tokens_per_second:.1f} tokens a second in all"
        for load in found.loads
    ]


ANSWERS = {FIRST_TOKEN: _first_token, EARLY_CHANGE: _early_change, TOKEN_TIME: _token_time}
ARITHMETIC = {
    FIRST_TOKEN: _first_token_arithmetic,
    EARLY_CHANGE: _early_change_arithmetic,
    TOKEN_TIME: _token_time_arithmetic,
}
SOURCES = [
    "Times: from sending a request to the arrival of its pieces, on the clock of the machine that "
    "serves this page. The way there and back is in them.",
    "Tokens: as the server counts them in `usage`; where it sends none, the length aimed at.",
    "Tokens reused: `cached_tokens` or its like in the answer, else how much the counters at "
    "/metrics rose meanwhile (other people's requests count there too).",
    "vLLM's metrics: its page “Production Metrics”, 0.32; SGLang's: its metrics collector; "
    "llama.cpp's: the README of its server.",
    "Prompts: common English words drawn at random, so that no server has seen them before.",
]
