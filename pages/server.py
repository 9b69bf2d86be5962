"""The workbench's measurements on a real serving engine, wherever it runs."""

from pages.common.entry import through_app

through_app()

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import streamlit as st

from kvcore.jobs import Job, State
from kvcore.serving import (
    Budget,
    Client,
    Key,
    Plan,
    Reserved,
    Runner,
    Sample,
    ServedModel,
    ServingError,
    Timeouts,
    ask_reserved,
)
from kvcore.serving.experiments import Experiment
from kvcore.serving.recorded import (
    RESERVED,
    TIMED,
    EngineRun,
    architecture_names,
    likely_architecture,
    recorded,
)
from pages.common.fragments import runs_alone
from pages.common.jobs import progress, session_job
from pages.common.page import header, refuse
from pages.common.query import Choice, check
from pages.common.text import as_text
from pages.serving import reserve, results, settings
from pages.serving.connect import Found, choose_model, connection, operator_policy

EXPERIMENTS = (*TIMED, RESERVED)


@dataclass(frozen=True)
class Measurement:
    """What a job measures, for those who watch. It holds no key."""

    kind: str
    server: str
    model: str
    experiment: Experiment | None = None

    @property
    def settings(self) -> dict[str, object]:
        chosen = asdict(self.experiment) if self.experiment else {}
        return {"server": self.server, "model": self.model, **chosen}


def start_experiment(
    found: Found,
    model: ServedModel,
    key: Key,
    kind: str,
    experiment: Experiment,
    agreed: Plan,
    patience: float,
) -> None:
    def work(job: Job) -> Iterator[Sample]:
        job.total = agreed.requests
        with Client(found.target, key, Timeouts(silence=patience)) as client:
            runner = Runner(
                client,
                model.name,
                Budget(agreed),
                owner=model.owner,
                stopped=lambda: job.stopping,
            )
            yield from runner.samples(experiment)

    slot.start(work, about=Measurement(kind, found.target.origin, model.name, experiment))


def start_asking(found: Found, model: ServedModel, key: Key) -> None:
    def work(job: Job) -> Iterator[Reserved]:
        with Client(found.target, key, Timeouts(silence=15.0)) as client:
            yield ask_reserved(client, model)

    slot.start(work, queue=None, about=Measurement(RESERVED, found.target.origin, model.name))


def tell(job: Job) -> None:
    """Where the job stands, and what ended it, in one sentence."""
    if job.state is State.FAILED:
        if isinstance(job.error, ServingError):
            refuse(as_text(job.error, 400))
        else:
            refuse(f"The run ended early: {type(job.error).__name__}.")
        if job.results:
            st.caption("What was measured before that is below.")
        return
    progress(job)
    if job.state is State.STOPPED:
        st.caption(f"Stopped after {len(job.results):,} requests. What was measured is below.")


def show_example(kind: str) -> None:
    """The recorded example: the same experiment, on an engine as it was started then."""
    label, runs = recorded()
    titles = [run.title for run in runs]
    if len(runs) > 1:
        st.segmented_control(
            "Recorded example",
            titles,
            default=titles[0],
            required=True,
            key="server_example",
            bind="query-params",
            help="The same engine and model, started twice.",
        )
    run = runs[titles.index(st.session_state.get("server_example", titles[0]))]
    st.caption(f"Example: {run.engine}. {label}")
    if kind == RESERVED:
        example_reserved(run)
        return
    about = {"server": run.engine, "recorded": label.date}
    results.show(kind, run.samples[kind], whole=True, settings=about)


def example_reserved(run: EngineRun) -> None:
    reserve.show_reserved(run.facts, None, run.log, run.architecture, None)
    if not run.log:
        return
    st.caption("The lines of its log that hold figures")
    st.code(run.log, language=None, wrap_lines=True)


@st.fragment
def choose_timed(kind: str, found: Found | None, model: ServedModel | None) -> None:
    """What to measure next: the results on show do not depend on it, so it reruns alone."""
    experiment = settings.choose(kind)
    with st.expander("More settings"):
        patience = float(settings.patience())
    agreed = settings.tell_plan(experiment, found, model)
    buttons(
        found is not None and agreed is not None,
        lambda key: start_experiment(found, model, key, kind, experiment, agreed, patience),
    )
    if runs_alone() and st.session_state.get(results.TAB) == results.EXPORT:
        st.rerun()  # The link in that tab tells of what was just chosen.


def buttons(ready: bool, start: Callable[[Key], None]) -> None:
    """Start and Stop."""
    row = st.container(horizontal=True)
    if row.button("Start", type="primary", disabled=slot.active or not ready, key="server_start"):
        try:
            start(Key(st.session_state.get("server_key", "")))
        except ServingError as problem:
            refuse(as_text(problem, 400))
        else:
            st.rerun()
    if row.button("Stop", disabled=not slot.active, key="server_stop"):
        slot.stop()
        st.rerun()


@st.fragment(run_every=1.0)
def watch() -> None:
    """Draws what the job has appended; hands over to the whole page when it ends."""
    job = slot.job
    tell(job)
    if job.about.kind in TIMED:
        results.show(job.about.kind, list(job.results), whole=False, settings={})
    if not job.active:
        st.rerun()


header(
    "Your own server",
    "The same measurements on the engine you really run: vLLM, SGLang, llama.cpp or any hosted "
    "API of OpenAI's kind. This page starts none itself and calls only what its operator allows.",
)
_, example_runs = recorded()
check(
    {
        **settings.RULES,
        "server_experiment": Choice(EXPERIMENTS),
        "server_architecture": Choice(architecture_names()),
        "server_example": Choice(tuple(run.title for run in example_runs)),
    }
)
slot = session_job("server")
allowed = operator_policy()
side, main = st.columns([1, 2.4], gap="large")
told: Reserved | None = None

with side:
    kind = st.selectbox(
        "Experiment",
        EXPERIMENTS,
        key="server_experiment",
        bind="query-params",
        help="Three are timed; the last asks what the engine holds and computes the rest.",
    )
    st.markdown("**Server**")
    if allowed.is_off:
        st.info(as_text(allowed.why, 400) + " How: see “Point it at your cluster” in the README.")
    found = connection(allowed)
    model = choose_model(found) if found else None
    st.markdown("**What to measure**")
    log_text = ""
    if kind == RESERVED:
        likely = likely_architecture(model.name) if model else None
        name, memory, log_text = reserve.controls(likely)
        st.markdown("It asks for three documents and spends no tokens.")
        buttons(found is not None, lambda key: start_asking(found, model, key))
    else:
        choose_timed(kind, found, model)

with main:
    job = slot.job
    mine = job is not None and job.about.kind == kind
    if slot.active:
        watch()
    elif mine:
        tell(job)
        if kind in TIMED:
            results.show(kind, list(job.results), whole=True, settings=job.about.settings)
        elif job.results:
            told = job.results[0]
    if kind == RESERVED and not slot.active and (told is not None or log_text.strip()):
        facts, log = (told.facts, told.log) if told else ((), None)
        reserve.show_reserved(facts, log, log_text, name, memory)
    elif not slot.active and not (mine and job.results):
        show_example(kind)
