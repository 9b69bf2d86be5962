"""Which servers may be called, and the connection to one: address, key, its list of models."""

from __future__ import annotations

import os
from dataclasses import dataclass

import streamlit as st

from kvcore.serving import (
    SETTING,
    AddressError,
    Client,
    Key,
    Policy,
    ServedModel,
    ServingError,
    Target,
    Timeouts,
    app_is_local,
    policy,
)
from pages.common.page import refuse
from pages.common.text import as_text

DEFAULT_ADDRESS = "http://127.0.0.1:8000/v1"
WHILE_CONNECTING = Timeouts(connect=5.0, silence=10.0, answer=20.0)
FOUND = "server_found"


@dataclass(frozen=True)
class Found:
    """A server that answered: what was typed, the target behind it, what it serves."""

    typed: str
    target: Target
    models: tuple[ServedModel, ...]


def operator_policy() -> Policy:
    """What whoever runs this app allows: `SETTING` in the environment or in the secrets.

    Streamlit puts secrets that stand at the top of the file into the environment.
    """
    local = app_is_local(st.get_option("server.address"), dict(st.context.headers))
    try:
        return policy(os.environ.get(SETTING), app_is_local=local)
    except AddressError as problem:
        return Policy(why=f"Its setting cannot be read: {problem}")


def connection(allowed: Policy) -> Found | None:
    """The fields, and the server behind them once Connect was pressed."""
    typed = st.text_input(
        "Address",
        DEFAULT_ADDRESS,
        max_chars=500,
        key="server_address",
        bind="query-params",
        disabled=allowed.is_off,
        help="Root of an OpenAI-compatible API; most end in /v1.",
    )
    key = st.text_input(
        "Key",
        type="password",
        max_chars=500,
        key="server_key",
        autocomplete="off",
        persist_state="session",
        disabled=allowed.is_off,
        help="Sent to this server alone, kept for this session alone, shown nowhere. Leave it "
        "empty where the server wants none.",
    )
    if st.button("Connect", key="server_connect", disabled=allowed.is_off):
        connect(allowed, typed, key)
    found = st.session_state.get(FOUND)
    if found is not None and found.typed != typed:
        st.caption("The address has changed: connect again.")
        return None
    if found is None:
        if not allowed.is_off:
            st.caption(as_text(allowed.why, 400))
        return None
    if found.target.sends_in_clear and key:
        st.warning("This address is not encrypted: the key travels in the clear.")
    return found


def connect(allowed: Policy, typed: str, key: str) -> None:
    """Ask the server what it serves, and remember it; else say why not."""
    st.session_state.pop(FOUND, None)
    try:
        target = allowed.target(typed)
        with (
            st.spinner("Asking the server what it serves"),
            Client(target, Key(key), WHILE_CONNECTING) as client,
        ):
            models = tuple(client.models())
    except ServingError as problem:
        refuse(as_text(problem, 400))
        return
    if not models:
        refuse("The server answers, but serves no model.")
        return
    st.session_state[FOUND] = Found(typed, target, models)


def choose_model(found: Found) -> ServedModel:
    """One of the models the server lists."""
    by_name = {model.name: model for model in found.models}
    name = st.selectbox(
        "Model",
        list(by_name),
        key="server_model",
        help="From the server's own list. An engine with one model serves just that.",
    )
    return by_name[name]
