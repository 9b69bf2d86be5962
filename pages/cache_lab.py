"""The cache of a real model, one token at a time: memory, latency, prefix reuse, eviction."""

import pages.common.entry  # noqa: F401

# isort: split
from datetime import datetime

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvcore import eviction, units
from kvcore.charts import cache_lab as charts
from kvcore.decoding.known import KNOWN
from kvcore.decoding.shelf import SHELF
from kvcore.jobs import MEASUREMENTS
from kvcore.lab import frames
from kvcore.lab.player import Player, Wanted, recorded
from kvcore.lab.prompts import QUESTION, SYSTEM
from kvcore.lab.rack import rack_data
from kvcore.lab.run import Policy, Settings
from kvcore.lab.trace import Frame, Trace
from kvcore.prefix.scenarios import SCENARIOS
from pages.common.draw import draw
from pages.common.jobs import session_job
from pages.common.page import export_row, header, refuse, share_link, sources
from pages.common.query import Choice, Number, Rule, Text, check
from pages.common.rack import rack
from pages.common.text import as_text

POLICIES = {
    eviction.NONE: "Keep everything",
    eviction.WINDOW: "Sliding window",
    eviction.SINKS: "Sinks + window",
    eviction.HEAVY_HITTERS: "Heavy hitters",
}
BLOCK_SIZES = (1, 4, 8, 16, 32)
SPEEDS = {"1 a second": 1.0, "2 a second": 2.0, "5 a second": 5.0, "as fast as it goes": 1_000.0}
TIMES = ("not in the prompt", "at the top", "at the end")
YES = Choice(("true", "false"))
COLOURINGS = {"state": "Reusable work", "key_norm": "Norm of keys", "value_norm": "Norm of values"}

# What a link may set. Streamlit writes the label of a choice into the address.
RULES: dict[str, Rule] = {
    "lab_model": Choice(tuple(model.title for model in KNOWN.values())),
    "lab_system": Text(4_000),
    "lab_question": Text(2_000),
    "lab_time": Choice(TIMES),
    "lab_policy": Choice(tuple(POLICIES.values())),
    "lab_window": Number(2, 1_024),
    "lab_sinks": Number(0, 64),
    "lab_heavy": Number(0, 512),
    "lab_block": Choice(tuple(map(str, BLOCK_SIZES))),
    "lab_blocks": Number(3, 513),
    "lab_speed": Choice(tuple(SPEEDS)),
    "lab_colour": Choice(tuple(COLOURINGS.values())),
    "lab_open": YES,
    "lab_renumber": YES,
    "lab_scenario": Choice(tuple(scenario.title for scenario in SCENARIOS)),
}


def the_player() -> Player:
    if "cache_lab_player" not in st.session_state:
        st.session_state.cache_lab_player = recorded()
    return st.session_state.cache_lab_player


def controls(player: Player) -> Wanted:
    """The settings beside the picture; what they say applies from the next Ask on."""
    st.subheader("Ask", divider=False)
    model = st.selectbox(
        "Model",
        list(KNOWN),
        index=list(KNOWN).index("smollm2"),
        format_func=lambda name: KNOWN[name].title,
        key="lab_model",
        bind="query-params",
        help="SmolLM2 is at hand without a network; GPT-2 comes from the hub where there is one.",
    )
    system = st.text_area(
        "System prompt, shared by every question",
        SYSTEM,
        height=140,
        max_chars=4_000,
        key="lab_system",
        bind="query-params",
        help="It stands first, so that prompts that share it begin alike and can share blocks.",
    )
    question = st.text_area(
        "Question",
        QUESTION,
        height=80,
        max_chars=2_000,
        key="lab_question",
        bind="query-params",
        help="Ask the same twice, and all full blocks of the prompt are found in the pool.",
    )
    time = st.selectbox(
        "The time of day",
        TIMES,
        key="lab_time",
        bind="query-params",
        help="At the top it changes the first block, and with it the name of every block after.",
    )
    leave_open = st.toggle(
        "Leave the request before open",
        key="lab_open",
        bind="query-params",
        help="It goes on holding its blocks, and shares those with which both begin.",
    )
    asking = st.container(horizontal=True)
    policy = policy_controls()
    settings = pool_controls()
    now = f"{datetime.now():%H:%M:%S} on {datetime.now():%Y-%m-%d}"
    wanted = Wanted(
        model,
        system,
        question,
        policy,
        settings,
        time_first=now if time == TIMES[1] else None,
        time_last=now if time == TIMES[2] else None,
        leave_open=leave_open,
    )
    ask_row(asking, player, wanted)
    return wanted


def policy_controls() -> Policy:
    st.subheader("What the cache keeps", divider=False)
    name = st.selectbox(
        "Policy",
        list(POLICIES),
        format_func=POLICIES.get,
        key="lab_policy",
        bind="query-params",
        help="Applied to the real cache before each new token; budgets are in tokens.",
    )
    if name == eviction.NONE:
        return Policy()
    row = st.container(horizontal=True)
    budget = {}
    if name == eviction.SINKS:
        budget["sinks"] = number(row, "Sinks", "sinks", 0, 64, 4, "First positions that stay.")
    if name == eviction.HEAVY_HITTERS:
        budget["heavy"] = number(
            row, "Heavy", "heavy", 0, 512, 88, "Positions that received most attention so far."
        )
    part = "recent" if name == eviction.HEAVY_HITTERS else "window"
    label = "Recent" if part == "recent" else "Window"
    help = "The latest positions, the new one included."
    budget[part] = number(row, label, "window", 2, 1_024, 96, help)
    renumber = st.toggle(
        "Renumber what stays",
        key="lab_renumber",
        bind="query-params",
        persist_state="session",
        help="Number the positions kept 0, 1, 2 … as StreamingLLM does, instead of leaving them.",
    )
    return Policy(name, budget, renumber)


def pool_controls() -> Settings:
    st.subheader("The pool", divider=False)
    row = st.container(horizontal=True)
    block_size = row.selectbox(
        "Tokens a block",
        BLOCK_SIZES,
        index=BLOCK_SIZES.index(16),
        key="lab_block",
        bind="query-params",
        help="Only full blocks can be found again: the block is the smallest prefix to share.",
    )
    num_blocks = number(
        row, "Blocks", "blocks", 3, 513, 33, "Block 0 is the null block and never handed out."
    )
    return Settings(block_size, num_blocks)


def number(
    place: DeltaGenerator,
    label: str,
    name: str,
    low: int,
    high: int,
    value: int,
    help: str,
) -> int:
    return place.number_input(
        label,
        low,
        high,
        value,
        key=f"lab_{name}",
        bind="query-params",
        persist_state="session",
        help=help,
    )


def ask_row(row: DeltaGenerator, player: Player, wanted: Wanted) -> None:
    if row.button("Ask", type="primary", key="lab_ask", disabled=JOB.active):
        if not wanted.question.strip():
            player.error = "The question is empty; type one, or take the one that was there."
        else:
            run(player.ask(wanted, SHELF.take))
    if player.num_open and row.button(
        f"Close {player.num_open} earlier",
        key="lab_close",
        disabled=JOB.active,
        help="End the requests left open; their blocks become free and can still be found.",
    ):
        run(player.close_open())


def player_row(player: Player) -> None:
    row = st.container(horizontal=True, vertical_alignment="bottom")
    row.button(
        "Back",
        key="lab_back",
        disabled=JOB.active or player.cursor == 0,
        on_click=player.back,
        help="Look at the step before; nothing is computed.",
    )
    if row.button(
        "Step",
        key="lab_step",
        disabled=JOB.active or (player.at_end and not player.is_live),
        help="Run the token chosen last through the model and choose the next one.",
    ):
        run(player.step())
    if JOB.active:
        if row.button("Pause", key="lab_pause", help="Stop before the next step."):
            JOB.stop()
            MEASUREMENTS.wake()
            JOB.job.join(2)
            st.rerun()
    elif row.button("Play", key="lab_play", disabled=player.ended):
        run(player.play(SPEEDS[st.session_state.get("lab_speed") or "2 a second"]), wait=0)
    row.selectbox(
        "Speed",
        list(SPEEDS),
        index=1,
        key="lab_speed",
        bind="query-params",
        help="Steps a second while playing; a step takes as long as it takes.",
        width=180,
    )


def run(work: object, wait: float = 0.6) -> None:
    """Start a job; a short one is waited for, so that its result is drawn in the same run."""
    JOB.start(work, queue=None).join(wait)
    st.rerun()


def answer(player: Player) -> None:
    trace, frame, prefill = player.trace, player.frame, player.trace.prefill
    saved = prefill.saved_seconds
    row = st.container(horizontal=True)
    row.metric(
        "Cached tokens",
        f"{frame.cached_tokens:,} of {frame.num_tokens:,}",
        help="Tokens whose key and value the cache holds, of those in the text so far.",
        border=True,
    )
    row.metric(
        "KV memory",
        units.gib(trace.kv_bytes(frame)),
        help=f"Keys and values held, fp32. The {frame.blocks_held} blocks they lie in take "
        f"{units.gib(trace.block_bytes(frame))}.",
        border=True,
    )
    row.metric(
        "Prefill saved",
        "nothing" if saved is None else f"{units.ms(saved)}, {prefill.cached_tokens} tokens",
        help="Time to the first token without the pool less the time with it, both measured on "
        "this prompt; and the tokens that were not computed.",
        border=True,
    )
    row.metric(
        "Prefix hit rate",
        "unknown" if frame.hit_rate is None else f"{frame.hit_rate:.1%}",
        help="Tokens found over tokens asked for, each request counted once when it is admitted.",
        border=True,
    )


def said(player: Player) -> None:
    """What the model wrote so far, whose run this is, and what is being done."""
    if player.error:
        refuse(player.error)
    trace, frame = player.trace, player.frame
    title = KNOWN[trace.about.model].title if trace.about.model in KNOWN else trace.about.model
    st.markdown(f"**{title}:** {as_text(trace.text(frame), 3_000)}")
    if JOB.active:
        queued = f"Waiting, {player.ahead} ahead: one measurement runs at a time"
        st.caption(f"{queued if player.ahead else player.doing or 'Playing'} …")
    elif player.label:
        st.caption(
            f"A prepared run, nothing was loaded: {player.label} "
            f"Step through it, or press Ask to run your own."
        )
    else:
        st.caption(f"Running here. {as_text(player.notice or '', 400)}")
    policy = trace.about.policy
    st.caption(
        f"{trace.name.capitalize()}, step {player.cursor} of {len(trace.frames) - 1}; "
        f"{describe_policy(trace)}. " + (positions_note(trace) if policy != eviction.NONE else "")
    )


def describe_policy(trace: Trace) -> str:
    budget = trace.about.budget
    parts = " + ".join(f"{count} {part}" for part, count in budget.items())
    return POLICIES[trace.about.policy].lower() + (f" ({parts})" if parts else "")


def positions_note(trace: Trace) -> str:
    if not trace.about.renumber:
        return "Positions are kept as they were, so what stays keeps its true distance."
    if trace.about.model == "smollm2":
        return "What stays is renumbered from 0 and its keys are turned to the new places."
    return (
        "What stays is renumbered from 0. GPT-2 adds positions to its input, so keys already made "
        "keep theirs and only new tokens get the new numbers."
    )


def takeaway(trace: Trace, frame: Frame) -> str:
    gone = frame.num_tokens - frame.cached_tokens
    return (
        f"The cache of {trace.about.num_layers} layers holds {frame.cached_tokens} of "
        f"{frame.num_tokens} tokens in {frame.blocks_held} blocks; "
        f"{min(trace.prefill.cached_tokens, frame.num_tokens)} of the prompt came from the pool, "
        f"{gone} are evicted."
    )


def live() -> None:
    """Everything that moves with a step. The one fragment of the page."""
    player = the_player()
    with ANSWER.container():
        answer(player)
    trace, frame = player.trace, player.frame
    said(player)
    rack(rack_data(trace, frame), label=takeaway(trace, frame), key="cache_lab_rack")
    st.caption(
        "Shelves are layers, block numbers stand below, positions run to the right, height is the "
        "norm. Drag or use the arrow keys to turn the rack; Home turns it back."
    )
    draw(
        charts.heat_map,
        frames.heat_map(trace, frame),
        alt="The same as a flat map: " + takeaway(trace, frame),
        colour_by=st.session_state.get("lab_colour", "state"),
    )
    st.caption(f"The same picture flat. {charts.SIGN_LEGEND}.")
    blocks(trace, frame)
    draw(
        charts.latency,
        frames.steps(trace, player.cursor + 1),
        alt=f"Step {player.cursor} took {units.ms(frame.seconds)}; "
        f"the prefill took {units.ms(trace.frames[0].seconds)}.",
    )
    with EXPERIMENT.container():
        experiment_result(player)
    if was_active and not JOB.active:
        st.rerun()


def blocks(trace: Trace, frame: Frame) -> None:
    st.subheader("Blocks")
    if frame.evicted:
        given = ", ".join(map(str, frame.freed))
        gone = "1 token" if len(frame.evicted) == 1 else f"{len(frame.evicted):,} tokens"
        st.markdown(
            f"This step evicted {gone} and "
            + (f"gave back block {given}." if given else "freed no block: others in them stay.")
        )
    slots = frames.block_slots(trace, frame)
    draw(charts.block_map, slots, alt=f"{frame.blocks_held} blocks of the request and their tokens")
    st.caption(
        f"The free list, {len(frame.free_list)} of {trace.about.num_blocks - 1} blocks, next to be "
        "taken first. Bold: old contents that can still be found. Ring: freed in this step."
    )
    free = frames.free_list(frame.free_list, set(frame.free_findable), set(frame.freed))
    if len(free):
        draw(charts.free_list, free, alt=f"Next to be taken: {frame.free_list[:8]}")


def experiment_result(player: Player) -> None:
    rows = player.experiment
    if player.experiment_label:
        st.caption(player.experiment_label)
    if not rows:
        return
    draw(
        charts.experiment,
        frames.experiment(rows),
        alt="; ".join(f"{row.how}: {row.prefill.hit_rate:.0%} found" for row in rows),
    )
    if len(rows) > 3:
        cold, again, top = (row.prefill for row in rows[:3])
        st.markdown(
            f"Asked again, {again.cached_tokens} of {again.prompt_tokens} tokens were found, and "
            f"the first token came after {units.ms(again.seconds)} instead of "
            f"{units.ms(cold.seconds)}. With the time at the top the hit rate fell to "
            f"{top.hit_rate:.0%}: {units.ms(top.seconds)}. The name of a block is a hash of its "
            "tokens and of the block before it, so a new first block renames all that follow."
        )


def scenario_tab() -> None:
    by_key = {scenario.key: scenario for scenario in SCENARIOS}
    chosen = st.pills(
        "Scenario",
        list(by_key),
        default=SCENARIOS[0].key,
        format_func=lambda key: by_key[key].title,
        key="lab_scenario",
        bind="query-params",
        required=True,
    )
    scenario = by_key[chosen or SCENARIOS[0].key]
    outcome = scenario.run()
    st.markdown(scenario.story)
    table = frames.checks(outcome)
    st.dataframe(table, hide_index=True, width="stretch")
    agree = sum(check.holds for check in outcome.checks)
    st.caption(
        f"{agree} of {len(outcome.checks)} agree; computed just now. Expected: {scenario.source}."
    )
    if outcome.pool is None:
        return
    for name, table in outcome.tables.items():
        st.markdown(f"Blocks of {name}: {', '.join(map(str, table.block_ids))}")
    pool = outcome.pool
    findable = {block.block_id for block in pool.blocks if block.hash is not None}
    free = frames.free_list(pool.free_list, findable)
    if len(free):
        st.caption("The free list at the end, next to be taken first")
        draw(charts.free_list, free, alt=f"Free blocks in order: {pool.free_list}")


def arithmetic_tab(player: Player) -> None:
    about, frame, prefill = player.trace.about, player.frame, player.trace.prefill
    reusable = (prefill.prompt_tokens - 1) // about.block_size * about.block_size
    hit = "unknown" if frame.hit_rate is None else f"{frame.hit_rate:.1%}"
    naive = "unknown" if frame.naive_hit_rate is None else f"{frame.naive_hit_rate:.1%}"
    lines = [
        "bytes a token = 2 (key, value) × layers × KV heads × head dimension × 4 (fp32)",
        f"              = 2 × {about.num_layers} × {about.num_kv_heads} × {about.head_dim} × 4 "
        f"= {about.bytes_per_token:,} B",
        f"KV memory     = {frame.cached_tokens:,} tokens × {about.bytes_per_token:,} B "
        f"= {frame.cached_tokens * about.bytes_per_token:,} B",
        f"in blocks     = {frame.blocks_held} × {about.block_size} × {about.bytes_per_token:,} B "
        f"= {player.trace.block_bytes(frame):,} B",
        f"most reusable = floor((prompt - 1) / block) × block = floor(({prefill.prompt_tokens} - 1)"
        f" / {about.block_size}) × {about.block_size} = {reusable} tokens",
        f"this request  = {prefill.cached_tokens} / {prefill.prompt_tokens} tokens found "
        f"= {prefill.hit_rate:.1%}",
        f"hit rate      = found / asked, each admitted request once = {hit}; "
        f"with retries and returns counted: {naive}",
    ]
    if prefill.cold_seconds is not None:
        lines.append(
            f"prefill saved = {units.ms(prefill.cold_seconds)} cold - {units.ms(prefill.seconds)} "
            f"warm = {units.ms(prefill.saved_seconds)}; largest difference of the logits "
            f"{prefill.largest_difference:.1e}, same token: {'yes' if prefill.same_token else 'no'}"
        )
    st.code("\n".join(lines), language=None, wrap_lines=True)
    st.markdown(
        "Blocks that fill up after the first eviction are not offered for reuse: their keys and "
        "values were computed without the evicted tokens. With heavy hitters, tokens taken from "
        "the pool start with no attention received, since the queries that looked at them are gone."
    )


def table_tab(player: Player) -> None:
    trace, frame = player.trace, player.frame
    st.dataframe(frames.block_table(trace, frame), hide_index=True, width="stretch")
    st.dataframe(frames.tokens(trace, frame), hide_index=True, width="stretch", height=320)


def export_tab(player: Player) -> None:
    about = player.trace.about
    settings = {"model": about.model, "weights": about.source, "policy": about.policy}
    settings |= {"budget": about.budget, "block_size": about.block_size, "blocks": about.num_blocks}
    export_row("cache_lab", frames.steps(player.trace), settings)
    share_link("lab_")


header(
    "Cache lab",
    "A real model answers one token at a time, and you see what its cache holds, what it was "
    "spared and what it lets go.",
)
check(RULES)
JOB = session_job("cache_lab")
was_active = JOB.active
current = the_player()

ANSWER = st.empty()
left, right = st.columns([1, 2.6], gap="medium")
with left:
    wanted = controls(current)
with right:
    player_row(current)
    stage = st.container()

st.subheader("Ask twice, then with the time in the prompt")
if st.button("Ask in six ways", key="lab_try", disabled=JOB.active):
    run(current.try_times(wanted, SHELF.take), wait=0)
EXPERIMENT = st.empty()

with stage:
    speed = SPEEDS[st.session_state.lab_speed]
    st.fragment(live, run_every=max(0.15, min(0.5, 1 / speed)) if was_active else None)()

names = ["Known answers", "Arithmetic", "Table", "Colours", "Sources", "Export and link"]
tabs = st.tabs(names, key="lab_tab", on_change="rerun")
if tabs[0].open:
    with tabs[0]:
        scenario_tab()
if tabs[1].open:
    with tabs[1]:
        arithmetic_tab(current)
if tabs[2].open:
    with tabs[2]:
        table_tab(current)
with tabs[3]:
    st.segmented_control(
        "Colour the flat map by",
        list(COLOURINGS),
        default="state",
        format_func=COLOURINGS.get,
        key="lab_colour",
        bind="query-params",
    )
with tabs[4]:
    sources(
        [
            "Blocks, hashes, free list, null block: vLLM 0.33, v1/core; the order of the free list "
            "since vllm-project/vllm#42656 (May 2026).",
            "Sinks: Xiao et al. 2023, arXiv:2309.17453. Heavy hitters: Zhang et al. 2023, "
            "arXiv:2306.14048; here one ranking for all layers and heads.",
            "Times, memory and norms: measured here, or in the recording named above.",
        ]
    )
if tabs[5].open:
    with tabs[5]:
        export_tab(current)
