"""A real model with and without its cache, timed live on this machine."""

import pages.common.entry  # noqa: F401

# isort: split
import os
from dataclasses import asdict

import streamlit as st

from kvcore import recordings, units
from kvcore.charts import live_timing as charts
from kvcore.decoding import KNOWN, DecodingError, run_frames
from kvcore.decoding.compare import DEFAULT_SAMPLES, Agreement
from kvcore.decoding.run import RECORDING, Run, Settings, recorded
from kvcore.jobs import Job, State
from pages.common.draw import draw
from pages.common.jobs import progress, session_job
from pages.common.links import lab
from pages.common.page import export_row, header, refuse, share_link, sources
from pages.common.query import Choice, Named, Number, Text, check

FULL, SAMPLED = "Both in full", "Uncached sampled"
TEMPERATURES = ("0", "0.7", "1")
THREADS = ("1", "2")
MAX_PROMPT = 20_000
MAX_NEW = 1_000
GUIDE_FACTOR = 16
DEFAULT_PROMPT = (
    "The librarian never read a book twice. She wrote a card for every page, and when a visitor "
    "asked a question,"
)
PRESETS = {
    "A short reply": (48, FULL),
    "200 tokens": (200, FULL),
    "1,000 tokens, sampled": (1_000, SAMPLED),
    "1,000 tokens, in full": (1_000, FULL),
}
NAMES = tuple(KNOWN)


def apply_preset() -> None:
    chosen = st.session_state.live_timing_preset
    if chosen:
        st.session_state.live_timing_new_tokens, st.session_state.live_timing_mode = PRESETS[chosen]


def controls() -> Settings:
    st.pills(
        "Presets",
        list(PRESETS),
        key="live_timing_preset",
        on_change=apply_preset,
        help="Sets the length of the reply and how the uncached way is measured.",
    )
    prompt = st.text_area(
        "Prompt",
        DEFAULT_PROMPT,
        max_chars=MAX_PROMPT,
        height=110,
        key="live_timing_prompt",
        help="What the model goes on from. Any language, any signs.",
        bind="query-params",
    )
    model = st.selectbox(
        "Model",
        NAMES,
        format_func=lambda name: KNOWN[name].title,
        key="live_timing_model",
        help="Real weights from the Hugging Face hub, or the nearest that can be had without it.",
        bind="query-params",
    )
    new_tokens = st.slider(
        "New tokens",
        1,
        MAX_NEW,
        48,
        key="live_timing_new_tokens",
        help="Length of the reply; prompt and reply together must fit the model's context.",
        bind="query-params",
    )
    mode = st.segmented_control(
        "How the uncached way is measured",
        (FULL, SAMPLED),
        default=FULL,
        required=True,
        key="live_timing_mode",
        help=f"In full, or at {DEFAULT_SAMPLES} places spread over the reply with a line between.",
        bind="query-params",
    )
    temperature = st.segmented_control(
        "Temperature",
        TEMPERATURES,
        default="0.7",
        required=True,
        key="live_timing_temperature",
        help="0 always takes the best token; above it tokens are drawn, the same draws both ways.",
        bind="query-params",
    )
    with st.expander("More settings"):
        seed = st.number_input(
            "Seed",
            0,
            2**31 - 1,
            0,
            key="live_timing_seed",
            help="Of the draws when the temperature is above 0.",
            bind="query-params",
        )
        threads = st.segmented_control(
            "Threads",
            THREADS,
            default="1",
            required=True,
            key="live_timing_threads",
            help=f"Cores that compute; this machine has {os.cpu_count()}. One is the steadier.",
            bind="query-params",
        )
        naive = st.toggle(
            "Naive loop without a cache",
            key="live_timing_naive",
            help="Computes the logits of every token in each uncached step, not of the last alone.",
            bind="query-params",
        )
        peer = st.toggle(
            "Reference line",
            True,
            key="live_timing_peer",
            help="Times transformers' own cached step beside ours; needs the model's size again.",
            bind="query-params",
        )
    return Settings(
        model=model,
        prompt=prompt,
        new_tokens=new_tokens,
        temperature=float(temperature),
        seed=seed,
        threads=int(threads),
        samples=DEFAULT_SAMPLES if mode == SAMPLED else None,
        all_logits=naive,
        with_peer=peer,
    )


def start(settings: Settings) -> None:
    run = Run(settings)

    def work(job: Job) -> object:
        job.total = settings.new_tokens
        yield from run.measure(stopped=lambda: job.stopping)

    slot.start(work, about=run)


def tell(job: Job, run: Run) -> None:
    """Where the job stands, and what went wrong in one sentence."""
    if isinstance(job.error, DecodingError):
        refuse(str(job.error))
    elif job.state is State.RUNNING and not run.pairs:
        st.progress(0.0, run.status)
    elif job.state is State.RUNNING:
        left = run.comparison.seconds_left()
        remains = "" if left is None else f", about {units.seconds(left)} left"
        share = len(run.pairs) / run.settings.new_tokens
        st.progress(share, f"{len(run.pairs):,} of {run.settings.new_tokens:,} tokens{remains}")
    else:
        progress(job)
    if job.state is State.STOPPED:
        st.caption(f"Stopped after {len(run.pairs):,} tokens. What was measured is below.")
    if job.state is State.DONE:
        disturbance(run)


def disturbance(run: Run) -> None:
    if run.was_disturbed:
        st.caption(
            f"Other work took the processor for {units.percent(1 - run.cpu_share)} of the time, so "
            "the milliseconds are too high. Both ways were hit alike; the ratio still holds."
        )


def notice(run: Run) -> None:
    if run.facts is None or not run.facts.notice:
        return
    st.caption(run.facts.notice)
    if run.facts.source == "random" and run.facts.name != "smollm2":
        lab("live_timing", "Use SmolLM2, whose text can be read", {"live_timing_model": "smollm2"})


def answer(run: Run) -> None:
    comparison = run.comparison
    ratios = comparison.speed_up()
    faster, with_cache, without, same = st.columns(4)
    sampled = " (partly interpolated)" if comparison.is_sampled else ""
    faster.metric(
        "Faster with the cache",
        units.times(ratios[-1]) if ratios else "–",
        f"after {len(ratios):,} tokens",
        delta_color="off",
        delta_arrow="off",
        border=True,
        help="Time without the cache divided by time with it, for the same reply.",
    )
    with_cache.metric(
        "With the cache",
        units.seconds(comparison.cached.total_seconds),
        f"{comparison.cached.tokens_processed:,} tokens run",
        delta_color="off",
        delta_arrow="off",
        border=True,
        help="Time for the reply so far, and tokens that went through the model.",
    )
    without.metric(
        "Without a cache",
        units.seconds(comparison.uncached.total_seconds),
        f"{comparison.uncached.tokens_processed:,} tokens run{sampled}",
        delta_color="off",
        delta_arrow="off",
        border=True,
        help="Every step runs the whole text again.",
    )
    agreement = comparison.agreement
    same.metric(
        "Same reply?",
        VERDICTS[agreement.verdict],
        f"{agreement.compared:,} tokens compared",
        delta_color="off",
        delta_arrow="off",
        border=True,
        help="Every token of both ways is compared, and all the logits behind it.",
    )


VERDICTS = {None: "–", "identical": "Yes", "rounding": "Until a near tie", "wrong": "No"}


def texts(run: Run, live: bool) -> None:
    left, right = st.columns(2)
    left.caption("With the cache")
    right.caption("Without a cache")
    boxes = {"border": True, "height": 190, "autoscroll": live}
    left.container(**boxes).text(run.settings.prompt + run.cached_text)
    right.container(**boxes).text(without_cache(run))


def without_cache(run: Run) -> str:
    if not run.comparison.is_sampled:
        return run.settings.prompt + run.uncached_text
    places = f"Computed at {run.comparison.uncached.measured} places of the reply on the left"
    if run.comparison.agreement.verdict == "identical":
        return f"{places}; each gave the token that stands there."
    return f"{places}."


def picture(run: Run) -> None:
    cached, uncached = run.comparison.cached.per_token, run.comparison.uncached.per_token
    takeaway = "Time for each new token, with the cache and without."
    if cached and uncached:
        takeaway = (
            f"With the cache a token takes {units.ms(cached.median)}; without, "
            f"{units.ms(uncached.median)} in the median, and more the longer the text."
        )
    times, growth = st.columns([3, 1])
    draw(
        charts.step_times,
        run_frames.step_times(run),
        alt=takeaway,
        slot=times,
        log=st.session_state.get("live_timing_log", True),
        sampled=run.comparison.is_sampled,
    )
    held = run.comparison.cached.steps[-1].cache_bytes
    draw(
        charts.cache_growth,
        run_frames.cache_growth(run),
        alt=f"The cache grows by the same amount with every token, to {units.gib(held)}.",
        slot=growth,
    )


def verdict(agreement: Agreement) -> str:
    if agreement.verdict is None:
        return "Nothing has been compared yet."
    numbers = (
        f"{agreement.compared:,} steps compared, all logits of each: the largest difference is "
        f"{agreement.largest_difference:.1e}, and the closest any runner-up came to being chosen "
        f"was {agreement.narrowest_gap:.1e}."
    )
    if agreement.verdict == "identical":
        return f"Token for token the same. {numbers}"
    at = f"They part at token {agreement.first_difference + 1:,}." if agreement.gap_there else ""
    if agreement.verdict == "rounding":
        return (
            f"{at} There the two best tokens were {agreement.gap_there:.1e} apart, closer than "
            "the order of arithmetic can tell. That is rounding, not approximation: neither reply "
            f"is the wrong one. {numbers}"
        )
    return (
        f"Something is wrong. {at} The difference is more than rounding can explain, so one of "
        f"the two ways computed something else. {numbers}"
    )


def speed_up(run: Run) -> None:
    ratios = run.comparison.speed_up()
    reached = run.comparison.tokens_until(GUIDE_FACTOR)
    where = (
        f"{GUIDE_FACTOR}× was reached after {reached:,} tokens on this machine."
        if reached
        else f"{GUIDE_FACTOR}× lies beyond these {len(ratios):,} tokens on this machine."
    )
    st.markdown(
        f"The factor is no constant: it grows with the reply. {where} Counting tokens alone "
        "promises more, because a cached step still has to read every weight for its one token."
    )
    draw(
        charts.speed_up,
        run_frames.speed_up(run),
        alt=f"The speed-up grows with the reply to {units.times(ratios[-1])}. {where}",
    )
    if run.comparison.is_sampled:
        st.caption(
            f"Drawn through {run.comparison.uncached.measured} measured uncached steps of "
            f"{run.comparison.cached.reached:,}; straight lines between."
        )


def details(run: Run) -> None:
    st.dataframe(
        run_frames.totals(run).rename(
            columns={"what": "", "with": "With the cache", "without": "Without a cache"}
        ),
        hide_index=True,
    )
    if run.comparison.cached.per_token is None:
        return
    st.markdown(
        "**Two phases, two limits.** Prefill runs all tokens of the prompt at once, so each weight "
        "that is read serves all of them: arithmetic is the limit. Decode runs one token, and "
        "reads every weight for it: memory bandwidth is the limit."
    )
    draw(
        charts.phases,
        run_frames.phases(run),
        alt="A token costs far less in prefill than in decode.",
    )
    if run.peer_notice:
        st.caption(run.peer_notice)


def arithmetic(run: Run) -> None:
    facts, last = run.facts, run.comparison.cached.steps[-1]
    n, prompt = run.comparison.cached.measured, facts.prompt_tokens
    held = last.cache_bytes // facts.cache_bytes_per_token
    lines = [
        f"tokens run without a cache: {prompt:,} + … + {prompt + n - 1:,} "
        f"= {sum(range(prompt, prompt + n)):,}",
        f"tokens run with it:         {prompt:,} + {n - 1:,} × 1 = {prompt + n - 1:,}",
        f"cache:                      {held:,} tokens × {facts.cache_bytes_per_token:,} B "
        f"= {last.cache_bytes:,} B (32 bits a number)",
    ]
    floor = run.floor_seconds(last.index)
    if floor is not None:
        read = facts.bytes_read + held * facts.cache_bytes_per_token
        lines += [
            f"read by the last step:      {facts.bytes_read:,} B of weights + "
            f"{held * facts.cache_bytes_per_token:,} B of cache = {read:,} B",
            f"floor:                      {read:,} B ÷ {run.bytes_per_second:,.0f} B/s "
            f"= {units.ms(floor)}; taken: {units.ms(last.seconds)}",
        ]
    st.code("\n".join(lines), language=None, wrap_lines=True)


def show(run: Run, whole: bool) -> None:
    """The figures and pictures of a run; the tabs only once it stands still."""
    if run.comparison is None or not run.pairs:
        return
    answer(run)
    texts(run, live=not whole)
    picture(run)
    if not whole:
        return
    names = ["Speed-up", "Same reply?", "Totals", "Arithmetic", "Sources and export"]
    speed, same, numbers, how, more = st.tabs(names)
    with speed:
        speed_up(run)
    with same:
        st.markdown(verdict(run.comparison.agreement))
        st.caption("Computed in 32 bits. In 16 bits identity cannot be promised: ties are common.")
    with numbers:
        details(run)
    with how:
        arithmetic(run)
    with more:
        sources(
            [
                "Times: measured here, both ways in turn, step by step, in one process.",
                "Floor: bytes a step must read, divided by how fast this machine reads the "
                "weights, measured before the run.",
                "16×: the figure the field guides quote; it belongs to one length on one machine.",
                "Attention and its keys and values: Vaswani et al. 2017, arXiv:1706.03762, 3.2.",
            ]
        )
        settings = {**asdict(run.settings), **run_frames.summary(run)}
        export_row("live_timing", run_frames.export(run), settings)
        share_link("live_timing")


@st.fragment(run_every=0.5)
def watch() -> None:
    """Draws what the job has appended; hands over to the whole page when it ends."""
    job = slot.job
    tell(job, job.about)
    notice(job.about)
    show(job.about, whole=False)
    if not job.active:
        st.rerun()


header(
    "Live timing",
    "The same model writes the same reply twice, step by step in turn: once with its KV cache, "
    "once without. Everything is measured on the machine that serves this page.",
)
check(
    {
        "live_timing_prompt": Text(MAX_PROMPT),
        "live_timing_model": Named({name: KNOWN[name].title for name in NAMES}),
        "live_timing_new_tokens": Number(1, MAX_NEW),
        "live_timing_mode": Choice((FULL, SAMPLED)),
        "live_timing_temperature": Choice(TEMPERATURES),
        "live_timing_seed": Number(0, 2**31 - 1),
        "live_timing_threads": Choice(THREADS),
        "live_timing_naive": Choice(("true", "false")),
        "live_timing_peer": Choice(("true", "false")),
    }
)
slot = session_job("live_timing")
side, main = st.columns([1, 2.4], gap="large")

with side:
    chosen = controls()
    buttons = st.container(horizontal=True)
    if buttons.button("Start", type="primary", disabled=slot.active, key="live_timing_start"):
        if chosen.prompt:
            start(chosen)
            st.rerun()
        refuse("The prompt is empty: type at least one character to go on from.")
    if buttons.button("Stop", disabled=not slot.active, key="live_timing_stop"):
        slot.stop()
    st.toggle(
        "Logarithmic time axis",
        True,
        key="live_timing_log",
        help="Shows both ways on one chart, though one is many times slower.",
    )

with main:
    if slot.active:
        watch()
    elif slot.job is not None:
        tell(slot.job, slot.job.about)
        notice(slot.job.about)
        show(slot.job.about, whole=True)
    if not slot.active and (slot.job is None or not slot.job.about.pairs):
        st.caption(str(recordings.read(RECORDING).label))
        disturbance(recorded())
        show(recorded(), whole=True)
