"""Which model to size: sliders, a name, or a config of one's own."""

from __future__ import annotations

import json

import streamlit as st

from kvcore.architecture import Architecture
from kvcore.calculator import Subject
from kvcore.catalog import MODELS
from kvcore.config_json import ConfigError, fetch_config, pack, parse, read_config, unpack
from kvcore.config_json.parameters import estimate_parameters
from pages.common.page import refuse

SLIDERS, NAMED, PASTED = "Sliders", "A named model", "Your config"
SOURCES = (SLIDERS, NAMED, PASTED)
DEFAULT_MODEL = "Llama-3.1-8B"
PASTE, LINK = "calculator_paste", "calculator_config"
PROBLEM = "calculator_paste_problem"


def choose_source() -> str:
    """Where the model comes from."""
    restore_config()
    return st.segmented_control(
        "Size",
        SOURCES,
        default=SLIDERS,
        required=True,
        key="calculator_source",
        bind="query-params",
        help="Play with sliders, pick a model by name, or paste any model's config.json.",
    )


def restore_config() -> None:
    """Put the config of a link into the text area, once, before the area exists."""
    packed = st.query_params.get(LINK)
    if packed is None or PASTE in st.session_state:
        return
    try:
        st.session_state[PASTE] = json.dumps(unpack(packed), indent=2)
    except ConfigError as damage:
        st.session_state[PASTE] = ""
        st.session_state[PROBLEM] = str(damage)
        st.query_params.pop(LINK)


def choose_subject(source: str) -> Subject | None:
    """The model chosen, None while there is none that can be read."""
    if source == SLIDERS:
        return _from_sliders()
    if source == NAMED:
        return _from_catalogue()
    return _from_config()


def _from_sliders() -> Subject:
    layers = st.slider(
        "Layers",
        8,
        128,
        32,
        key="calculator_layers",
        bind="query-params",
        help="Each layer keeps keys and values of its own.",
    )
    kv_heads = st.slider(
        "KV heads",
        1,
        64,
        8,
        key="calculator_kv_heads",
        bind="query-params",
        help="Heads that keep keys and values; several query heads may share one.",
    )
    head_dim = st.slider(
        "Head dimension",
        32,
        256,
        128,
        step=8,
        key="calculator_head_dim",
        bind="query-params",
        help="Numbers in one key, and in one value.",
    )
    name = f"{layers} layers, {kv_heads} KV heads of {head_dim}"
    architecture = Architecture.uniform(layers, kv_heads, head_dim, name)
    return Subject(architecture, origin="Your sliders.", series="Your sliders")


def _from_catalogue() -> Subject:
    name = st.selectbox(
        "Model",
        list(MODELS),
        index=list(MODELS).index(DEFAULT_MODEL),
        key="calculator_model",
        bind="query-params",
        help="Type to search. Values come from each model's own config.json.",
    )
    return named(name)


def named(name: str) -> Subject:
    """A model of the catalogue."""
    model = MODELS[name]
    return Subject(
        model.architecture,
        model.parameters,
        model.active_parameters,
        f"{model.source} ({model.date:%d %B %Y}).",
    )


def _from_config() -> Subject | None:
    _ways_in()
    text = st.text_area(
        "config.json",
        height=180,
        key=PASTE,
        persist_state="session",
        placeholder='{"model_type": "llama", "num_hidden_layers": 32, …}',
        help="The file beside a model's weights on the hub. It stays on this server.",
    )
    problem = st.session_state.pop(PROBLEM, None)
    if problem:
        refuse(problem)
    if not text.strip():
        st.caption("Paste a config.json, upload one, or fetch one by its repository id.")
        return None
    return _read(text)


def _ways_in() -> None:
    with st.popover("Upload or fetch", width="stretch"):
        st.file_uploader(
            "Upload a config.json",
            type=["json", "txt"],
            key="calculator_upload",
            on_change=_take_upload,
            max_upload_size=10,
            help="Read once, and shown in the text area where you can change it.",
        )
        st.text_input(
            "Repository on the Hugging Face hub",
            key="calculator_repository",
            placeholder="owner/name",
            help="Only config.json is read, from the official hub, within five seconds.",
        )
        st.button(
            "Fetch its config",
            key="calculator_fetch",
            on_click=_fetch,
            help="Asks the hub for this one file. Nothing of the repository is run.",
        )


def _take_upload() -> None:
    upload = st.session_state.get("calculator_upload")
    if upload is not None:
        _offer(lambda: parse(upload.getvalue()))


def _fetch() -> None:
    typed = st.session_state.get("calculator_repository") or ""
    _offer(lambda: fetch_config(typed))


def _offer(read) -> None:  # noqa: ANN001 - a function that gives a config or raises ConfigError
    """Put a config into the text area; where it cannot be read, what was typed stays."""
    try:
        st.session_state[PASTE] = json.dumps(read(), indent=2)
    except ConfigError as problem:
        st.session_state[PROBLEM] = str(problem)


def _read(text: str) -> Subject | None:
    assume = bool(st.session_state.get("calculator_assume", False))
    try:
        config = parse(text)
        architecture = read_config(config, name=_shown_name(config), assume_plain=assume)
    except ConfigError as problem:
        st.query_params.pop(LINK, None)
        refuse(str(problem))
        if problem.key.endswith("model_type"):
            _offer_assumption()
        return None
    if assume:
        _offer_assumption()
    _keep_in_link(config)
    estimate = estimate_parameters(config) if architecture.exact else None
    return Subject(
        architecture,
        estimate.parameters if estimate else None,
        estimate.active_parameters if estimate else None,
        "The config you gave.",
    )


def _offer_assumption() -> None:
    st.toggle(
        "Read it as an ordinary transformer",
        key="calculator_assume",
        bind="query-params",
        help="For model types unknown here: every layer attends to everything, or to its window.",
    )


def _shown_name(config: dict) -> str:
    name = config.get("_name_or_path")
    known = isinstance(name, str) and 0 < len(name) < 60 and not name.startswith(("/", "."))
    return name if known else "Your config"


def _keep_in_link(config: dict) -> None:
    packed = pack(config)
    if packed is None:
        st.query_params.pop(LINK, None)
        st.caption("This config is too long for a link; the address does not carry it.")
    elif st.query_params.get(LINK) != packed:
        st.query_params[LINK] = packed
