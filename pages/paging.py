"""Contiguous reservations against paging: where the memory goes, and what paging costs."""

import pages.common.entry  # noqa: F401

# isort: split
from collections.abc import Callable, Hashable, Iterator
from dataclasses import asdict

import streamlit as st

from kvcore import units
from kvcore.catalog import GPUS
from kvcore.charts import paging as charts
from kvcore.jobs import Job, Work
from kvcore.paging import POLICIES, Request, frames
from kvcore.paging.experiments import curve_points, curve_values
from kvcore.paging.explain import fit_table, paper_notes, pool_arithmetic
from kvcore.paging.hardware import named_pool, pooled_models
from kvcore.paging.outcome import LABELS, Outcome, outcome_of
from kvcore.paging.paper import (
    ALPACA_BATCHES,
    ALPACA_BEAM_SAVING,
    SHAREGPT_BEAM_SAVING,
    SHAREGPT_PARALLEL_SAVING,
)
from kvcore.paging.results import SimulationResult
from kvcore.paging.scenario import (
    ALPACA,
    LOGNORMAL,
    POISSON,
    QUEUE,
    RECORDED,
    SHAREGPT,
    TRACE,
    Scenario,
)
from kvcore.paging.sharing import Savings, savings, shared_runs
from kvcore.paging.simulation import PAPER_NUM_SLOTS
from kvcore.paging.snapshot import PoolState, pool_state
from kvcore.paging.traces import MAX_BYTES, Trace, TraceError, read_trace
from pages.common.draw import draw
from pages.common.jobs import progress, session_job
from pages.common.links import lab
from pages.common.page import export_row, header, refuse, share_link, sources
from pages.common.query import Choice, Named, Number, check
from pages.common.text import as_text

AT_ONCE = 7_200
MAP_REQUESTS = 400
CURVE_REQUESTS = 1_500
LAST_STEP = 4_000
SECONDS_A_FRAME = 0.6

SOURCES = {
    SHAREGPT: "The paper's ShareGPT lengths",
    ALPACA: "Short instructions (Alpaca's means)",
    LOGNORMAL: "Lognormal lengths of my own",
    TRACE: "A trace I upload",
}
ARRIVALS = {
    QUEUE: "All wait at the start",
    POISSON: "Poisson, at a load",
    RECORDED: "As the trace recorded them",
}
POOLS = {
    "paper": "The paper's: 12 GiB for OPT-13B",
    "slots": "So many slots",
    "model": "A model on a GPU",
}
COUNTS = [500, 1_000, 2_000, 4_000, 7_200, 20_000]
BLOCK_SIZES = [1, 4, 8, 16, 32, 64, 128, 256]
PAGE_KIB = [64, 128, 256, 2_048]
MAX_LENGTHS = [2_048, 4_096, 8_192, 16_384, 32_768, 131_072]
BUDDY_SLACK = {"external": "External (the paper)", "internal": "Internal"}
BLOCK_SLACK = {
    "strict": "Reserved if it will fill, else internal",
    "reservation": "All reserved",
    "internal": "All internal",
    "halved": "Half and half (the paper's bars)",
}
CURVES = {
    "block_size": "Block size",
    "watermark": "Watermark",
    "load": "Load",
    "num_slots": "Pool size",
}
CURVE_AXES = {
    "block_size": "Block size (tokens)",
    "watermark": "Watermark (share of all blocks)",
    "load": "Load (× what the policy can serve)",
    "num_slots": "Pool (slots)",
}
TABS = ["Memory map", "Curves", "Preemption", "Sharing", "Arithmetic", "Sources", "Export"]


def as_counts(numbers: list[int]) -> dict[int, str]:
    return {number: units.count(number) for number in numbers}


check(
    {
        "paging_source": Named(SOURCES),
        "paging_count": Named(as_counts(COUNTS)),
        "paging_mean_prompt": Number(1, 100_000),
        "paging_mean_output": Number(1, 100_000),
        "paging_variation": Number(0, 3, whole=False),
        "paging_arrivals": Named(ARRIVALS),
        "paging_load": Number(0.1, 2, whole=False),
        "paging_pace": Number(1, 1_000),
        "paging_pool": Named(POOLS),
        "paging_slots": Number(64, 2_000_000),
        "paging_model": Choice(pooled_models()),
        "paging_gpu": Choice(tuple(GPUS)),
        "paging_gpus": Choice(("1", "2", "4", "8")),
        "paging_max_len": Named(as_counts(MAX_LENGTHS)),
        "paging_block_size": Choice(tuple(str(size) for size in BLOCK_SIZES)),
        "paging_watermark": Number(0, 0.5, whole=False),
        "paging_preemption": Choice(("recompute", "swap")),
        "paging_look_ahead": Number(0, 64),
        "paging_page_kib": Choice(tuple(str(size) for size in PAGE_KIB)),
        "paging_seed": Number(0, 9_999),
        "paging_buddy_slack": Named(BUDDY_SLACK),
        "paging_block_slack": Named(BLOCK_SLACK),
        "paging_left": Named(LABELS),
        "paging_right": Named(LABELS),
        "paging_step": Number(0, LAST_STEP),
        "paging_follow": Number(0, MAP_REQUESTS - 1),
        "paging_fit_prompt": Number(1, 1_000_000),
        "paging_fit_output": Number(1, 1_000_000),
        "paging_curve": Named(CURVES),
        "paging_curve_policy": Named(LABELS),
        "paging_samples": Number(1, 6),
        "paging_prefix": Number(0, 2_048),
        "paging_tab": Choice(tuple(TABS)),
    }
)


# Controls


def choose_scenario() -> tuple[Scenario, Trace | None, str]:
    """The controls from top to bottom; the trace and what identifies it, if one is uploaded."""
    st.markdown("**Requests**")
    source = st.selectbox(
        "Lengths",
        list(SOURCES),
        format_func=SOURCES.get,
        key="paging_source",
        bind="query-params",
        help="Where the lengths of prompts and outputs come from.",
    )
    trace, file_id = upload() if source == TRACE else (None, "")
    choices = lognormal_lengths() if source == LOGNORMAL else {}
    choices["count"] = st.select_slider(
        "How many",
        COUNTS,
        4_000,
        format_func=units.count,
        key="paging_count",
        bind="query-params",
        help="Of a trace, the first so many. Averages are steady from about 4,000.",
    )
    if trace is not None and choices["count"] < len(trace.rows):
        st.caption(f"The first {units.count(choices['count'])} of the trace; move right for more.")
    choices |= choose_arrivals(source)
    st.markdown("**Pool**")
    choices |= choose_pool()
    with st.expander("Policies", key="paging_rules"):
        choices |= choose_rules()
        choices["seed"] = st.number_input(
            "Seed",
            0,
            9_999,
            0,
            key="paging_seed",
            bind="query-params",
            help="The same seed gives the same requests and the same run.",
        )
    return Scenario(source=source, **choices), trace, file_id


def upload() -> tuple[Trace | None, str]:
    file = st.file_uploader(
        "Trace",
        key="paging_trace",
        max_upload_size=MAX_BYTES // 2**20,
        help="Azure's CSV (TIMESTAMP, ContextTokens, GeneratedTokens) or Mooncake's JSON lines; "
        "either may be gzipped.",
    )
    if file is None:
        return None, ""
    if st.session_state.get("paging_read", ("",))[0] != file.file_id:
        st.session_state.paging_read = (file.file_id, *read_or_refuse(file.getvalue()))
    file_id, trace, problem = st.session_state.paging_read
    if trace is None:
        refuse(problem)
        return None, ""
    st.caption(
        f"{as_text(file.name, 60)}: {units.count(len(trace.rows))} requests in "
        f"{trace.format}'s form over {units.seconds(trace.seconds)}, the longest of "
        f"{units.count(trace.longest)} tokens."
    )
    return trace, file_id


def read_or_refuse(data: bytes) -> tuple[Trace | None, str]:
    try:
        return read_trace(data), ""
    except TraceError as problem:
        return None, str(problem)


def lognormal_lengths() -> dict[str, float]:
    numbers = {}
    for name, label, low, high, default in (
        ("mean_prompt", "Mean prompt (tokens)", 1, 100_000, 161),
        ("mean_output", "Mean output (tokens)", 1, 100_000, 338),
    ):
        numbers[name] = st.number_input(
            label,
            low,
            high,
            default,
            key=f"paging_{name}",
            bind="query-params",
            help="Lengths are cut so that a request fits the longest the model takes.",
        )
    numbers["variation"] = st.slider(
        "Coefficient of variation",
        0.0,
        3.0,
        1.0,
        0.1,
        key="paging_variation",
        bind="query-params",
        help="Standard deviation over mean, of both lengths. ShareGPT: 1.86 in, 0.84 out.",
    )
    return numbers


def choose_arrivals(source: str) -> dict[str, object]:
    arrivals = st.selectbox(
        "Arrivals",
        list(ARRIVALS),
        format_func=ARRIVALS.get,
        key="paging_arrivals",
        bind="query-params",
        help="The paper's bars need a queue that never empties.",
    )
    if arrivals == RECORDED and source != TRACE:
        st.caption("Only a trace has recorded arrivals; here all wait at the start.")
        return {"arrivals": QUEUE}
    chosen: dict[str, object] = {"arrivals": arrivals}
    if arrivals == POISSON:
        chosen["load"] = st.slider(
            "Load",
            0.1,
            2.0,
            0.9,
            0.1,
            key="paging_load",
            bind="query-params",
            help="Arrivals over what paging serves of these requests when they never run out.",
        )
    if arrivals == RECORDED:
        chosen["steps_per_second"] = st.number_input(
            "Decode steps a second",
            1,
            1_000,
            30,
            key="paging_pace",
            bind="query-params",
            help="How fast the server decodes; turns the trace's seconds into steps.",
        )
    return chosen


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


def choose_rules() -> dict[str, object]:
    block_size = st.select_slider(
        "Block size (tokens)",
        BLOCK_SIZES,
        16,
        key="paging_block_size",
        bind="query-params",
        help="Slots in one block of the paged pool; vLLM's default is 16.",
    )
    watermark = st.slider(
        "Watermark (share of blocks)",
        0.0,
        0.5,
        0.01,
        0.01,
        key="paging_watermark",
        bind="query-params",
        help="Blocks that must stay free when a request is let in. vLLM once used 0.01, now 0.",
    )
    preemption = st.segmented_control(
        "When the pool runs out",
        ["recompute", "swap"],
        default="recompute",
        required=True,
        key="paging_preemption",
        bind="query-params",
        help="The latest request is put out; its tokens are computed again or copied back.",
    )
    look_ahead = st.number_input(
        "Look past a blocked request",
        0,
        64,
        0,
        key="paging_look_ahead",
        bind="query-params",
        help="How many requests behind a blocked one may be tried. 0 is strict order.",
    )
    page_kib = st.select_slider(
        "Large page (KiB)",
        PAGE_KIB,
        2_048,
        key="paging_page_kib",
        bind="query-params",
        help="Page size of the fifth policy, for each layer's keys and for its values.",
    )
    return {
        "block_size": block_size,
        "watermark": watermark,
        "preemption": preemption,
        "look_ahead": look_ahead,
        "page_bytes": page_kib * 1024,
    }


def choose_definitions() -> tuple[str, str]:
    left, right = st.columns(2)
    buddy = left.segmented_control(
        "Slack of the buddy allocator counts as",
        list(BUDDY_SLACK),
        default="external",
        required=True,
        format_func=BUDDY_SLACK.get,
        key="paging_buddy_slack",
        bind="query-params",
        help="Slots added when a chunk is rounded up to a power of two. No token moves.",
    )
    block = right.selectbox(
        "Slack of blocks counts as",
        list(BLOCK_SLACK),
        format_func=BLOCK_SLACK.get,
        key="paging_block_slack",
        bind="query-params",
        help="Empty slots of blocks and large pages in use. No token moves.",
    )
    return buddy, block


# Runs


@st.cache_data(max_entries=24, show_spinner="Running the five policies")
def run_all(scenario: Scenario) -> list[Outcome]:
    requests = scenario.requests()
    return [scenario.run(policy, requests) for policy in POLICIES]


@st.cache_resource(max_entries=6, show_spinner="Recording where every request lies")
def recorded(
    scenario: Scenario, policy: str, file_id: str, _trace: Trace | None
) -> SimulationResult:
    return scenario.record(policy, scenario.requests(_trace))


@st.cache_data(max_entries=12, show_spinner="Running with and without sharing")
def sharing_runs(
    scenario: Scenario, samples: int, prefix: int, file_id: str, _trace: Trace | None
) -> dict[str, Outcome]:
    requests = scenario.requests(_trace)
    runs = shared_runs(requests, samples, prefix, scenario.max_model_len)
    return {name: scenario.run("paged", requests) for name, requests in runs.items()}


@st.cache_data(max_entries=12, show_spinner=False)
def sharing_saved(
    scenario: Scenario, samples: int, prefix: int, file_id: str, _trace: Trace | None
) -> Savings:
    return savings(scenario.requests(_trace), samples, prefix, scenario.block_size)


@st.cache_data(max_entries=24, show_spinner=False)
def arithmetic(scenario: Scenario, file_id: str, _trace: Trace | None) -> list[str]:
    return pool_arithmetic(scenario, scenario.requests(_trace))


# Jobs: many requests under five policies, a curve point by point


def all_policies(scenario: Scenario, trace: Trace | None) -> Work:
    def work(job: Job) -> Iterator[Outcome]:
        job.total = len(POLICIES)
        requests = scenario.requests(trace)
        for policy in POLICIES:
            yield scenario.run(policy, requests)

    return work


def curve_work(scenario: Scenario, setting: str, policy: str, trace: Trace | None) -> Work:
    def work(job: Job) -> Iterator[tuple[float, Outcome]]:
        values = curve_values(setting, scenario)
        job.total = len(values)
        requests = scenario.requests(trace)
        for value, run in curve_points(requests, setting, values, policy, scenario):
            yield value, outcome_of(run)

    return work


def ensure_job(page: str, settings: Hashable, work: Work) -> Job:
    """The job of these settings; started anew when they are not those it was started for."""
    slot = session_job(page)
    if slot.job is None or st.session_state.get(f"{page}_settings") != settings:
        st.session_state[f"{page}_settings"] = settings
        slot.start(work, queue=None)
    return slot.job


def watch(page: str, show: Callable[[list], None]) -> None:
    """Draw what the job has; while it runs, twice a second and with a button to stop it."""
    slot = session_job(page)
    if slot.active:
        st.button("Stop", on_click=slot.stop, key=f"{page}_stop")
        st.fragment(follow, run_every=0.5)(page, show)
        return
    if slot.job.error is not None:
        progress(slot.job)
    elif slot.job.stopping:
        done = f"{len(slot.job.results)} of {slot.job.total or '?'}"
        st.caption(f"Stopped after {done}. What was finished is shown.")
        st.button("Run again", on_click=forget, args=(page,), key=f"{page}_again")
    show(list(slot.job.results))


def follow(page: str, show: Callable[[list], None]) -> None:
    job = session_job(page).job
    if not job.active:
        st.rerun()
    progress(job)
    show(list(job.results))


def forget(page: str) -> None:
    st.session_state.pop(f"{page}_settings", None)


# The answer and Figure 2


def show_answer(outcomes: list[Outcome]) -> None:
    by_policy = {outcome.policy: outcome for outcome in outcomes}
    paged, longest = by_policy["paged"], by_policy["contiguous-max"]
    if paged.runs_nothing:
        refuse("None of these requests can ever be served from this pool.")
        return
    row = st.columns(4)
    row[0].metric(
        "Memory that holds tokens, paged",
        f"{paged.split().token_states:.1f} %",
        help="Averaged over steps, the first and last 5 % of completions left out.",
    )
    row[1].metric(
        "The same, reserving the longest",
        "nothing fits" if longest.runs_nothing else f"{longest.split().token_states:.1f} %",
        help="One chunk of the longest length the model takes, for every request.",
    )
    row[2].metric(
        "Requests at once",
        f"{paged.batch_size:.1f}",
        None if longest.runs_nothing else f"{longest.batch_size:.1f} reserving the longest",
        delta_color="off",
        delta_arrow="off",
        help="Running per step, on average.",
    )
    row[3].metric(
        "Price of preemption",
        f"{paged.recomputed_per_generated:.2f} tokens",
        "computed again per token generated",
        delta_color="off",
        delta_arrow="off",
        help=f"Paged requests were put out {units.count(paged.preemptions)} times, "
        f"{paged.preemptions_per_request:.2f} times each on average. Full memory is not free.",
    )


def show_refused(outcomes: list[Outcome]) -> None:
    """Who can never be served: in one line if it is the same for all policies."""
    said = [(outcome.label, refused_sentence(outcome)) for outcome in outcomes if outcome.refused]
    if len(said) == len(outcomes) and len({sentence for _, sentence in said}) == 1:
        said = [("Every policy", said[0][1])]
    for label, sentence in said:
        st.caption(f"{label}: {sentence}")


def refused_sentence(outcome: Outcome) -> str:
    kinds = " and ".join(
        f"{units.count(number)} {kind}" for kind, number in outcome.refusals.items()
    )
    first = outcome.first_refusal
    return (
        f"{units.count(outcome.refused)} of {units.count(outcome.refused + outcome.completed)} "
        f"requests can never be served ({kinds}). Request {first.index}: {first.reason}"
    )


def show_figure(outcomes: list[Outcome], definitions: tuple[str, str], with_paper: bool) -> None:
    if not outcomes:
        return
    shares = ", ".join(f"{o.system} {o.split().token_states:.0f} %" for o in outcomes)
    draw(
        charts.figure_2,
        frames.bars(outcomes, with_paper, *definitions),
        alt=f"Share of the pool that holds tokens: {shares}.",
    )
    st.caption(
        "Tokens: keys and values. Reserved: for tokens that will come. Internal: given to a "
        "request and never used. External: between requests, free or lost in rounding up. Right "
        "of each bar: requests that run at once."
    )


def show_gaps(outcomes: list[Outcome], definitions: tuple[str, str]) -> None:
    st.markdown("**Here minus the paper**, in points; requests at once in percent")
    st.dataframe(
        frames.gaps(outcomes, *definitions),
        hide_index=True,
        alt="Gap between simulation and paper for each labelled segment of Figure 2.",
    )
    for note in paper_notes():
        st.caption(note)


def show_alpaca_batches(outcomes: list[Outcome]) -> None:
    pairs = ", ".join(
        f"{outcome.system} {ALPACA_BATCHES[outcome.policy]} ({outcome.batch_size:.2f} here)"
        for outcome in outcomes
        if outcome.policy in ALPACA_BATCHES
    )
    st.caption(
        f"Requests at once in the paper, Alpaca at 30 requests/s (Figure 13b): {pairs}. Its "
        "lengths are known here by their means only, and here the queue never empties."
    )


# Tabs


def show_map_tab(scenario: Scenario, trace: Trace | None, file_id: str) -> None:
    first = scenario.first(MAP_REQUESTS)
    st.caption(
        f"The first {units.count(first.count)} requests under two policies, at the same step. "
        "Click a request to follow it."
    )
    row = st.columns([2, 2, 2, 1])
    sides = [
        row[0].selectbox(
            "Left",
            POLICIES,
            POLICIES.index("contiguous-oracle"),
            format_func=LABELS.get,
            key="paging_left",
            bind="query-params",
            help="Policy of the map on the left.",
        ),
        row[1].selectbox(
            "Right",
            POLICIES,
            POLICIES.index("paged"),
            format_func=LABELS.get,
            key="paging_right",
            bind="query-params",
            help="Policy of the map on the right.",
        ),
    ]
    if "paging_resume" in st.session_state:
        st.session_state.paging_step = st.session_state.pop("paging_resume")
    row[2].slider(
        "Step",
        0,
        LAST_STEP,
        500,
        key="paging_step",
        bind="query-params",
        help="Each running request gains one token a step.",
    )
    row[3].number_input(
        "Follow request",
        0,
        MAP_REQUESTS - 1,
        None,
        key="paging_follow",
        bind="query-params",
        help="Its slots are framed in both maps.",
    )
    playing = st.session_state.get("paging_playing", False)
    buttons = st.container(horizontal=True, vertical_alignment="bottom")
    buttons.button("Pause" if playing else "Play", on_click=toggle_play, key="paging_play")
    buttons.segmented_control(
        "Steps a frame",
        [1, 5, 25],
        default=5,
        required=True,
        key="paging_pace_map",
        help="How far Play moves at a time.",
    )
    runs = [recorded(first, policy, file_id, trace) for policy in sides]
    every = SECONDS_A_FRAME if playing else None
    st.fragment(show_maps, run_every=every)(runs)
    show_fit(scenario)


def toggle_play() -> None:
    playing = not st.session_state.get("paging_playing", False)
    st.session_state.paging_playing = playing
    if playing:
        st.session_state.paging_frame = st.session_state.paging_step
    else:
        st.session_state.paging_resume = st.session_state.paging_frame


def step_to_show(last: int) -> int:
    """The slider's step, or the next frame while playing; at the end playing stops."""
    if not st.session_state.get("paging_playing"):
        return min(st.session_state.paging_step, last)
    frame = st.session_state.paging_frame
    if frame >= last:
        toggle_play()
        st.rerun()
    st.session_state.paging_frame = min(last, frame + st.session_state.paging_pace_map)
    return frame


def show_maps(runs: list[SimulationResult]) -> None:
    if st.session_state.pop("paging_clicked", False):
        st.rerun()
    last = min(LAST_STEP, max(run.steps for run in runs))
    step = step_to_show(last)
    st.markdown(f"**Step {units.count(step)}** of {units.count(last)}")
    for side, (column, run) in enumerate(zip(st.columns(2), runs, strict=True)):
        with column:
            show_map(run, min(step, run.steps), side)
    st.caption(
        "Solid: holds a token. Faint: reserved for a token to come. Hatched: will never "
        "hold one. Empty: free. Colours only tell requests apart; hover for request, tokens and "
        "block."
    )


def show_map(run: SimulationResult, step: int, side: int) -> None:
    state = pool_state(run, step)
    st.markdown(f"**{LABELS[run.policy]}**")
    frame, shown = frames.memory_map(state, st.session_state.get("paging_follow"))
    draw(
        charts.memory_map,
        frame,
        alt=f"{len(state.running)} requests in the pool, {state.free:,.0f} slots free.",
        key=f"paging_map_{side}",
        on_select=lambda: follow_click(f"paging_map_{side}"),
    )
    if shown < run.num_slots:
        st.caption(f"The first {shown:,.0f} of {run.num_slots:,} slots.")
    st.markdown(free_sentence(run, state))
    st.markdown(head_sentence(state))
    followed = st.session_state.get("paging_follow")
    if followed is not None:
        st.markdown(followed_sentence(run, state, followed))
    draw(
        charts.free_space,
        frames.free_over_time([outcome_of(run)], LAST_STEP),
        alt=f"At step {step} {state.free:,.0f} slots are free, {largest(run, state):,.0f} usable.",
        step=step,
    )


def follow_click(key: str) -> None:
    picked = st.session_state[key].selection.get("follow", [])
    if not picked or picked[0].get("request", -1) < 0:
        return
    st.session_state.paging_follow = int(picked[0]["request"])
    st.session_state.paging_clicked = True


def largest(run: SimulationResult, state: PoolState) -> float:
    """Slots one request could be given: any free block, or one chunk."""
    return state.largest_free if run.policy.startswith("contiguous") else state.usable


def free_sentence(run: SimulationResult, state: PoolState) -> str:
    free = f"Free: **{state.free:,.0f} slots**."
    if run.policy.startswith("contiguous"):
        return f"{free} Largest chunk: **{state.largest_free:,.0f}**; nothing longer can come in."
    return (
        f"{free} Longest row of free neighbours: {state.largest_free:,.0f}, which does not matter: "
        f"any free block will do, **{state.usable:,.0f}** slots of them."
    )


def head_sentence(state: PoolState) -> str:
    if state.head is None:
        return f"{len(state.running)} run and nobody waits."
    head = state.head
    return (
        f"{len(state.running)} run, {units.count(state.num_waiting)} wait. First in line is "
        f"request **{head.index}**, for {units.count(head.waited)} steps. {head.reason}"
    )


def followed_sentence(run: SimulationResult, state: PoolState, index: int) -> str:
    if index >= len(run.requests):
        return f"There is no request {index}."
    request = run.requests[index]
    what = f"Request {index} ({request.prompt:,} tokens in, {request.output:,} out)"
    if index in state.running:
        return f"{what} runs and holds {state.running[index]:,} tokens."
    refused = next((refusal for refusal in run.refused if refusal.index == index), None)
    if refused is not None:
        return f"{what} can never be served. {refused.reason}"
    finished = run.finished_at[index]
    if finished is not None and finished <= state.step:
        return f"{what} finished before step {finished:,}."
    return f"{what} waits." if request.arrival <= state.step else f"{what} has not arrived."


def show_fit(scenario: Scenario) -> None:
    st.markdown("**Would a request fit?**")
    left, right = st.columns(2)
    prompt = left.number_input(
        "Prompt (tokens)",
        1,
        1_000_000,
        1_002,
        key="paging_fit_prompt",
        bind="query-params",
        help="Asked of an empty pool under every policy.",
    )
    output = right.number_input(
        "Output (tokens)",
        1,
        1_000_000,
        100,
        key="paging_fit_output",
        bind="query-params",
        help="What it turns out to be; only “know the output” knows it beforehand.",
    )
    st.dataframe(
        fit_table(Request(prompt, output), scenario),
        hide_index=True,
        column_config={
            name: st.column_config.NumberColumn(format="%,.0f")
            for name in ("Slots when let in", "Slots at the end", "Never used")
        },
        alt="What each policy gives this request and whether it can ever run.",
    )


def show_curves_tab(scenario: Scenario, trace: Trace | None, file_id: str) -> None:
    left, right = st.columns(2)
    setting = left.segmented_control(
        "Move",
        list(CURVES),
        default="watermark",
        required=True,
        format_func=CURVES.get,
        key="paging_curve",
        bind="query-params",
        help="One setting is moved, all others stay as chosen.",
    )
    policy = right.selectbox(
        "Policy",
        POLICIES,
        POLICIES.index("paged"),
        format_func=LABELS.get,
        key="paging_curve_policy",
        bind="query-params",
        help="Block size and watermark concern the paged policies.",
    )
    first = scenario.first(CURVE_REQUESTS)
    st.caption(f"The first {units.count(first.count)} requests for each point.")
    ensure_job(
        "paging_curve",
        (first, setting, policy, file_id),
        curve_work(first, setting, policy, trace),
    )
    chosen = float(getattr(scenario, setting))
    watch("paging_curve", lambda points: show_curve(points, setting, chosen))


def show_curve(points: list[tuple[float, Outcome]], setting: str, chosen: float) -> None:
    frame = frames.curve(points)
    options = {
        "x_title": CURVE_AXES[setting],
        "x_log": setting in ("block_size", "num_slots"),
        "chosen": chosen,
    }
    for column, (field, title) in zip(
        st.columns(2) * 2,
        (
            ("tokens", "Memory that holds tokens (%)"),
            ("batch", "Requests at once"),
            ("preemptions", "Preemptions per request"),
            ("recomputed", "Recomputed per generated token"),
        ),
        strict=True,
    ):
        with column:
            values = ", ".join(
                f"{value:g}: {y:.2f}" for value, y in zip(frame["value"], frame[field], strict=True)
            )
            draw(
                charts.curve,
                frame,
                alt=f"{title} against {CURVE_AXES[setting]}. {values}",
                column=field,
                y_title=title,
                **options,
            )


def show_preemption_tab(outcomes: list[Outcome]) -> None:
    paged = next(outcome for outcome in outcomes if outcome.policy == "paged")
    if not paged.preemptions:
        st.markdown("Nobody was put out: the pool never ran full while requests grew.")
        return
    st.markdown(
        f"{units.count(paged.preemptions)} times the latest request was put out so that an older "
        f"one could go on; the unluckiest {paged.most_preempted} times. "
        f"**{units.count(paged.recomputed_tokens)} tokens were computed again** for "
        f"{units.count(paged.generated_tokens)} generated"
        + (
            f", and {units.count(paged.swapped_tokens)} copied out and back."
            if paged.swapped_tokens
            else "."
        )
    )
    st.caption(
        "Oldest requests are never put out, so there is always progress. Nobody new is let in "
        "while someone put out waits."
    )
    log = frames.preemption_log(paged)
    st.dataframe(log, hide_index=True, alt="Every preemption: step, victim, cause, tokens lost.")
    if paged.preemptions > len(log):
        st.caption(f"The first {len(log)} of {units.count(paged.preemptions)}.")


def show_sharing_tab(scenario: Scenario, trace: Trace | None, file_id: str) -> None:
    left, right = st.columns(2)
    samples = left.slider(
        "Samples of each prompt",
        1,
        6,
        4,
        key="paging_samples",
        bind="query-params",
        help="Outputs drawn from one prompt; its full blocks are held once.",
    )
    prefix = right.number_input(
        "Common prefix (tokens)",
        0,
        2_048,
        0,
        key="paging_prefix",
        bind="query-params",
        help="Before every prompt. The paper translates with 80 (one example) and 341 (five).",
    )
    first = scenario.first(CURVE_REQUESTS)
    found = sharing_runs(first, samples, prefix, file_id, trace)
    shared, apart = found["shared"], found["apart"]
    if shared.runs_nothing:
        refuse("With that prefix no request is short enough for the model; shorten the prefix.")
        return
    saved = sharing_saved(first, samples, prefix, file_id, trace)
    row = st.columns(4)
    row[0].metric(
        "Blocks saved by samples",
        f"{saved.by_samples:.1f} %",
        help="In closed form: blocks the samples share, over the blocks they would take apart.",
    )
    row[1].metric(
        "Blocks saved by the prefix",
        f"{saved.by_prefix:.1f} %",
        help="In closed form: of each request's blocks, those that hold the common prefix.",
    )
    row[2].metric(
        "Samples at once, shared",
        f"{shared.batch_size * samples:.1f}",
        f"{apart.batch_size:.1f} without sharing",
        delta_color="off",
        delta_arrow="off",
        help="Simulated: the same requests, once as samples of one prompt, once on their own.",
    )
    row[3].metric(
        "Blocks copied on write",
        units.count(shared.copied_blocks),
        help="The half-filled last block of a prompt, copied when its samples part.",
    )
    draw(
        charts.savings,
        saved.table,
        alt="Blocks saved by two to six samples, computed and as the paper prints them.",
    )
    low, high = SHAREGPT_PARALLEL_SAVING
    beams = ", ".join(f"{saving} % with {width}" for width, saving in ALPACA_BEAM_SAVING.items())
    st.caption(
        f"The paper prints {low} to {high} % for ShareGPT with 2 to 6 samples. Alpaca is drawn "
        "from its printed means only, so its curve need not meet the points. Beam search is "
        f"quoted, not simulated: the paper has {beams} beams (Alpaca) and "
        f"{SHAREGPT_BEAM_SAVING[0]} to {SHAREGPT_BEAM_SAVING[1]} % (ShareGPT); what it saves "
        "depends on which beams survive."
    )
    lab("cache_lab", "Watch one prompt's blocks being found and shared in the cache lab")


def show_sources() -> None:
    sources(
        [
            "Bars, batches, lengths and Table 1: Kwon et al., *Efficient Memory Management for "
            "Large Language Model Serving with PagedAttention*, SOSP 2023, "
            "[arXiv:2309.06180](https://arxiv.org/abs/2309.06180), Figures 2, 3, 11, 13 and 15 "
            "(CC BY 4.0). The lengths are the 2 × 128 bars of Figure 11a; they are paired with "
            "a rank correlation of 0.1, which the bars of Figure 2 imply.",
            "Large pages: Prabhu et al., *vAttention*, 2024, "
            "[arXiv:2405.04437](https://arxiv.org/abs/2405.04437); page sizes of its code.",
            "Watermark and the order of preemption: vLLM's scheduler and block manager; the "
            "falling curve was also measured on a GPU in vllm-project/vllm#44594.",
            "Traces: Azure/AzurePublicDataset (CC BY 4.0) and kvcache-ai/Mooncake (Apache-2.0).",
            "Everything labelled “here” is simulated when the page runs. A step gives each "
            "running request one token; prefill takes no time.",
        ]
    )


# The page

header(
    "Paging",
    "Give each request its memory in one piece and most of it holds nothing. "
    "Give it out in blocks as tokens come, and almost all of it holds tokens, at a price.",
)
answer = st.container()
controls, picture = st.columns([1, 3], gap="large")
with controls:
    scenario, trace, file_id = choose_scenario()

with picture:
    definitions = choose_definitions()
    if scenario.source == TRACE and trace is None:
        st.markdown("Upload a trace to see what each policy would make of it.")
        st.stop()
    if scenario.source != TRACE and scenario.count <= AT_ONCE:
        outcomes = run_all(scenario)
        show_figure(outcomes, definitions, scenario.is_the_papers)
    else:
        job = ensure_job("paging_runs", (scenario, file_id), all_policies(scenario, trace))
        watch("paging_runs", lambda done: show_figure(done, definitions, scenario.is_the_papers))
        if job.active or len(job.results) < len(POLICIES):
            st.stop()
        outcomes = list(job.results)
    show_refused(outcomes)
    if scenario.is_the_papers:
        show_gaps(outcomes, definitions)
    if scenario.source == ALPACA and scenario.num_slots == PAPER_NUM_SLOTS:
        show_alpaca_batches(outcomes)

with answer:
    show_answer(outcomes)

tabs = st.tabs(TABS, key="paging_tab", on_change="rerun", bind="query-params")
named = dict(zip(TABS, tabs, strict=True))
if named["Memory map"].open:
    with named["Memory map"]:
        show_map_tab(scenario, trace, file_id)
if named["Curves"].open:
    with named["Curves"]:
        show_curves_tab(scenario, trace, file_id)
if named["Preemption"].open:
    with named["Preemption"]:
        show_preemption_tab(outcomes)
if named["Sharing"].open:
    with named["Sharing"]:
        show_sharing_tab(scenario, trace, file_id)
if named["Arithmetic"].open:
    with named["Arithmetic"]:
        for line in arithmetic(scenario, file_id, trace):
            st.code(line, language=None, wrap_lines=True)
if named["Sources"].open:
    with named["Sources"]:
        show_sources()
if named["Export"].open:
    with named["Export"]:
        table = frames.table(outcomes, *definitions)
        st.dataframe(table, hide_index=True, alt="Every number of every policy.")
        export_row(
            "paging",
            table,
            asdict(scenario) | dict(zip(("buddy_slack", "block_slack"), definitions, strict=True)),
        )
        share_link("paging_")
