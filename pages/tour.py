"""The story of the KV cache, in order, and the way into every lab."""

from pages.common.entry import through_app

through_app()

from datetime import date

import pandas as pd
import streamlit as st

from kvcore import recordings, tour, units
from kvcore.catalog import MODELS
from kvcore.charts import live_timing as timing_charts
from kvcore.charts import tour as charts
from kvcore.costs.workload import Workload
from kvcore.decoding import run_frames
from kvcore.decoding.explain import disturbance
from kvcore.decoding.run import RECORDING, recorded
from pages.common.draw import draw
from pages.common.links import lab
from pages.common.page import header
from pages.common.query import Choice, Number, check
from pages.common.text import as_text


def step_slider(key: str, label: str, value: int) -> int:
    return st.slider(
        label,
        1,
        tour.STEPS,
        value,
        key=key,
        help="Drag, or use the arrow keys: one step is one piece of the reply.",
        bind="query-params",
    )


def first_words() -> list[str]:
    return recordings.read(RECORDING).data["pieces"][: tour.STEPS]


@st.fragment
def one_piece_at_a_time() -> None:
    st.header("1. One piece at a time")
    st.markdown(
        "A language model does not write sentences. It looks at everything so far, picks one "
        "more piece (a word, or part of one; engineers say **token**), and starts over. A reply "
        "of a thousand pieces is a thousand such rounds."
    )
    written = step_slider("tour_piece", "Pieces written", 9)
    st.text(recordings.read(RECORDING).data["prompt"] + "".join(first_words()[:written]))
    st.caption(f"Piece {written} is “{first_words()[written - 1].strip()}”.")
    lab("live_timing", "Watch a model write")


@st.fragment
def cards() -> None:
    st.header("2. Every piece files a card")
    st.markdown(
        "In every layer of the model each piece leaves a **card** with two things on it: a "
        "**key**, by which later pieces find the card, and a **value**, which they read. While it "
        "is being worked on, the piece also asks a question of its own, the **query**. Nobody asks "
        "it again, so it is thrown away; the card is looked at by every piece that follows, so it "
        "is kept. The **drawer** in which a model keeps the cards of a text is the KV cache."
    )
    step = step_slider("tour_card", "Piece being worked on", 8)
    draw(
        charts.cards,
        tour.cards(step, first_words()),
        alt=f"At piece {step} each piece so far has a card on file, a key and a value; of {step} "
        f"queries one is asked now and {step - 1} are gone.",
    )
    lab("cache_lab", "Look into a real drawer")


@st.fragment
def with_and_without_notes() -> None:
    st.header("3. Twenty-four steps, without notes and with")
    st.markdown(
        "**Without notes** no card is kept, so every round runs **all** pieces so far through the "
        "model again. **With notes** it runs the newest piece only, files its card, and reads the "
        "cards of the others."
    )
    step = step_slider("tour_step", "Step", 12)
    counts = tour.pieces_run()
    now = counts[counts.step == step].set_index("way")
    left, right = st.columns(2)
    left.metric(
        "Without notes: pieces run so far",
        f"{now.loc[tour.WITHOUT, 'total']}",
        f"{now.loc[tour.WITHOUT, 'this_step']} in this step",
        delta_color="off",
        delta_arrow="off",
        border=True,
    )
    right.metric(
        "With notes: pieces run so far",
        f"{now.loc[tour.WITH, 'total']}",
        f"1 in this step, 1 card filed, {step - 1} read",
        delta_color="off",
        delta_arrow="off",
        border=True,
    )
    draw(
        charts.one_step,
        tour.one_step(step, first_words()),
        alt=f"Step {step}: without notes {step} pieces are run; with notes one is run and the "
        f"cards of {step - 1} are read.",
    )
    draw(
        charts.pieces_run,
        counts,
        alt="After 24 steps 300 pieces were run without notes and 24 with them.",
    )
    st.caption("Counted, not measured: step n runs n pieces, so n steps run n × (n + 1) ÷ 2.")


@st.fragment
def same_reply() -> None:
    st.header("4. The same reply, sooner")
    run = recorded()
    agreement, ratio = run.comparison.agreement, run.comparison.speed_up()[-1]
    st.markdown(
        f"A real model wrote the same {agreement.compared:,} pieces twice, step by step in turn. "
        "With the cards nothing is skipped and nothing is guessed: the same numbers are looked up "
        "instead of worked out again, so the reply is the same, piece for piece."
    )
    same, faster, difference = st.columns(3)
    same.metric(
        "Pieces the same",
        f"{agreement.compared:,} of {agreement.compared:,}",
        border=True,
        help="Every piece of both ways compared.",
    )
    faster.metric(
        "Faster with the cache",
        units.times(ratio),
        border=True,
        help="Time without the cache divided by time with it, for the whole reply.",
    )
    difference.metric(
        "Largest difference",
        f"{agreement.largest_difference:.0e}",
        border=True,
        help="Between any two of the numbers by which the next piece was chosen; rounding.",
    )
    draw(
        timing_charts.step_times,
        tour.recorded_times(),
        alt="With the cache the time for a piece stays level; without, it grows with the text.",
        log=True,
        sampled=False,
    )
    st.caption(str(recordings.read(RECORDING).label))
    st.caption(
        "Dotted: the least time in which this machine can read the weights. Orange dashes: the "
        f"same step by the transformers library. {disturbance(run) or ''}"
    )
    lab("live_timing", "Measure it here")


@st.fragment
def two_phases() -> None:
    st.header("5. Two phases, two bottlenecks")
    st.markdown(
        "Before the first piece comes **prefill**: the whole prompt goes through the model at "
        "once and all its cards are written. Each weight that is fetched from memory serves "
        "every piece of the prompt, so arithmetic is the limit. Then comes **decode**: one piece "
        "at a time, and for that single piece every weight and every card is fetched again. "
        "Memory is the limit. That is why the wait for the first word and the pace of the rest "
        "have different cures."
    )
    run = recorded()
    tokens = run.facts.prompt_tokens
    draw(
        timing_charts.phases,
        run_frames.phases(run),
        alt="A piece costs far less in prefill than in decode, because it shares the fetching.",
    )
    st.caption(
        f"From the recorded run: {tokens:,} pieces of prompt at once, then one after another. "
        f"{recordings.read(RECORDING).label}"
    )
    lab("live_timing", "See both phases timed")


@st.fragment
def the_drawer_grows() -> None:
    st.header("6. The drawer grows with every word")
    st.markdown(
        "Cards take room: two rows of numbers a layer for each piece, for as long as the chat "
        "lasts. How much is a matter of the model's build, not of its size."
    )
    left, right = st.columns([2, 3])
    with left:
        name = st.selectbox(
            "Model",
            tour.DRAWERS,
            index=tour.DRAWERS.index("Qwen2.5-7B-Instruct"),
            key="tour_model",
            help="Sized from its published config.json.",
            bind="query-params",
        )
        tokens = st.select_slider(
            "Tokens in the chat",
            LENGTHS,
            value=LENGTHS[-1],
            format_func=lambda count: f"{count:,}",
            key="tour_context",
            help="Tokens each user holds.",
        )
        users = tour.users_beside(name, tokens)
        st.metric(
            "One chat takes",
            units.gib(users.bytes_per_user),
            border=True,
            help="Keys and values of all its tokens, 16 bits a number.",
        )
        st.metric(
            f"Such chats on one {tour.GPU}",
            f"{users.total:,}",
            border=True,
            help="Beside the weights in 16 bits, with nothing set aside for the engine.",
        )
    frame = tour.bytes_per_token()
    growth = MODELS[name].architecture.growth_bytes()
    draw(
        charts.bytes_per_token,
        frame,
        alt=f"Each token adds {growth:,} bytes to the cache of {name}.",
        slot=right,
    )
    st.caption(
        "Computed from each model's config. OPT-13B's 800 KiB a token, and 1.6 GB for a request "
        "of 2,048, are the figures of Kwon et al. 2023 (section 3)."
    )
    lab(
        "calculator",
        "Size your own model",
        {"calculator_source": "A named model", "calculator_model": name},
    )


@st.fragment
def fixes() -> None:
    st.header("7. Five ways to need less")
    st.markdown(
        f"In each layer several readers look at the cards side by side; engineers call them query "
        f"heads. Take {tour.FIXED_MODEL} as it might have been, with a drawer for each of its "
        f"{tour.QUERY_HEADS} readers alone (together they are the drawer of step 2), and one "
        f"request of {tour.FIXED_TOKENS:,} tokens: "
        f"{units.gib(tour.before_fixes() * tour.USED_BEFORE)} of "
        f"cards, in a server where cards fill only {tour.USED_BEFORE:.1%} of the memory set aside "
        f"(Kwon et al. 2023, figure 2), so {units.gib(tour.before_fixes())} are held. Then apply "
        "what the field has learned since."
    )
    ways = {fix.name: fix for fix in tour.fixes()}
    chosen = st.pills(
        "Ways to need less",
        list(ways),
        selection_mode="multi",
        default=[name for name in ways if name != tour.WINDOW_NAME],
        key="tour_fixes",
        help="Each is applied on top of those before it.",
    )
    frame = tour.after_fixes(tour.before_fixes(), [ways[name] for name in ways if name in chosen])
    before, after = frame.num_bytes.iloc[0], frame.num_bytes.iloc[-1]
    draw(
        charts.after_fixes,
        frame,
        alt=f"One request goes from {units.gib(before)} to {units.gib(after)}.",
    )
    st.caption(
        "Paging: Kwon et al. 2023 found 20.4 to 38.2 % of the memory used before it, and report "
        "two to four times the throughput at the same latency (abstract, figure 2). Fewer cards "
        "and smaller ones cost quality, which can be measured; the others cost none."
    )
    if tour.WINDOW_NAME in chosen and tour.PREFIX_NAME in chosen:
        st.caption(
            "A window and a shared prefix hardly go together: the beginning is what a window "
            "drops. Take the last bar as a bound."
        )
    row = st.container(horizontal=True)
    with row:
        lab("gqa", "Share")
        lab("cache_quality", "Forget and round")
        lab("paging", "Page")
        lab("cache_lab", "Reuse a prefix")


@st.fragment
def between_messages() -> None:
    st.header("8. Keep the drawer between messages")
    recording = recordings.read("cache_lab")
    asked = pd.DataFrame(
        [
            {
                "order": order,
                "how": each["how"].capitalize(),
                "ms": each["prefill"]["seconds"] * 1000,
                "shown": units.ms(each["prefill"]["seconds"]),
                "found": charts.FOUND if each["prefill"]["cached_tokens"] else charts.NOT_FOUND,
            }
            for order, each in enumerate(recording.data["experiment"])
        ]
    )
    st.markdown(
        "Filling the drawer is the slow part. Whoever keeps it can answer the next message "
        "sooner, and whoever rents a model can pay less: providers sell prompt tokens that they "
        "find in their cache at a fraction of the price."
    )
    draw(
        charts.waits,
        asked,
        alt="Asked again, the first token comes sooner; with the time at the top it does not.",
    )
    st.caption(str(recording.label))
    model = tour.hosted(date.today())
    st.markdown(
        f"For a hosted model ({as_text(model.model)}), a prompt of which "
        f"{Workload().prefix_tokens:,} tokens are always the same, and "
        f"{Workload().requests_per_hour:.0f} requests an hour in working hours:"
    )
    st.info(as_text(model.sentence, 400))
    st.caption(
        "List prices of today from the genai-prices package. A lifetime in brackets is how long "
        "the provider keeps a prompt after it was last used."
    )
    lab("prompt_caching", "Work it out for your traffic")


@st.fragment
def where_it_breaks() -> None:
    st.header("9. Where it breaks")
    st.markdown(
        "- **While a reply is written, memory runs out before compute.** See step 5.\n"
        "- **The whole chat is billed at every turn.** A provider finds your cards in its "
        "cache or works every piece out again.\n"
        "- **Change anything early and the cards are worthless.** A date at the top makes every "
        "piece after it new.\n"
        "- **What a window has dropped is gone.** The text still flows; the fact is not there."
    )
    turns = st.slider(
        "Turns of a chat",
        1,
        40,
        12,
        key="tour_turns",
        help="Each turn sends everything said so far again.",
        bind="query-params",
    )
    frame = tour.chat(turns)
    sent, new = frame.tokens.sum(), frame[frame.what == tour.NEW].tokens.sum()
    draw(
        charts.chat,
        frame,
        alt=f"{turns} turns send {sent:,} prompt tokens, of which {new:,} are new.",
    )
    st.caption(
        f"Counted for 2,000 tokens of instructions, questions of 150 and replies of 350: "
        f"{sent:,} prompt tokens are billed, and {new:,} of them are new."
    )
    row = st.container(horizontal=True)
    with row:
        lab("prompt_caching", "What breaks my cache?")
        lab("cache_quality", "What a window forgets")
        lab("whiteboard", "Could you explain it?")


LENGTHS = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000)

header(
    "It does not reread your whole chat",
    "A model that writes files a card for every piece of text it has read, and looks things up "
    "there. The drawer with these cards is the KV cache: why replies are fast, why long chats "
    "need big GPUs, and why prompt caching is on the bill. Nine short steps; every number says "
    "whether it was measured, computed or quoted.",
)
check(
    {
        **{key: Number(1, tour.STEPS) for key in ("tour_piece", "tour_card", "tour_step")},
        "tour_turns": Number(1, 40),
        "tour_model": Choice(tour.DRAWERS),
    }
)
with st.container(horizontal=True):
    lab("prompt_caching", "I pay the bill")
    lab("calculator", "I size the GPUs")
    lab("live_timing", "I want to see it run")

one_piece_at_a_time()
cards()
with_and_without_notes()
same_reply()
two_phases()
the_drawer_grows()
fixes()
between_messages()
where_it_breaks()
