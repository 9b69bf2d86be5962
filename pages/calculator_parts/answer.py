"""The answer, and the pictures that make it plain."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from kvcore import units
from kvcore.architecture import Architecture
from kvcore.calculator import Subject, memory_table, shares_table, users_table
from kvcore.capacity import Users, memory_shares, users_at
from kvcore.charts.calculator import memory_against_context, memory_bar, users_against_context
from pages.calculator_parts.hardware import Hardware, Request
from pages.common.draw import draw
from pages.common.text import as_text


def metrics(subject: Subject, request: Request, hardware: Hardware) -> Users:
    """Four figures on one request and one GPU, and a line that says more of each."""
    architecture, ranks = subject.architecture, hardware.deployment.tensor_parallel
    bounds = architecture.cache_range(request.tokens, request.kv_format, ranks)
    growth = architecture.growth_range(request.kv_format, ranks)
    users = users_at(hardware.deployment, request.tokens)
    per = " on each GPU" if ranks > 1 else ""
    row = st.container(horizontal=True)
    row.metric(
        f"Cache of one request{per}",
        _range(units.gib, bounds.low, bounds.high),
        help="Keys, values and state of one request at the full context.",
    )
    row.metric(
        f"Growth per token{per}",
        _range(units.gib, growth.low, growth.high),
        help="What every further token adds for ever.",
    )
    _users_metric(row, users, hardware)
    _free_metric(row, users, hardware)
    st.caption(
        f"One request: {_range(units.gb, bounds.low, bounds.high)}, at {request.tokens:,} tokens. "
        f"A further token: {_range(units.count, growth.low, growth.high)} bytes. "
        + _told_of_memory(users, hardware)
    )
    return users


def _range(write, low: int, high: int) -> str:  # noqa: ANN001 - a function from bytes to text
    return write(high) if low == high else f"{write(low)} to {write(high)}"


def _users_metric(row: DeltaGenerator, users: Users, hardware: Hardware) -> None:
    gpus = hardware.deployment.num_gpus
    known = hardware.weights_known
    row.metric(
        f"Users at once on {'one GPU' if gpus == 1 else f'{gpus} GPUs'}",
        units.count(users.total) if known else "unknown",
        help="Each with a full context. Nobody shares a prefix; see “Users” below."
        if known
        else "Needs the size of the weights.",
    )


def _free_metric(row: DeltaGenerator, users: Users, hardware: Hardware) -> None:
    if not hardware.weights_known:
        row.metric("Left for caches", "unknown")
        return
    short = users.free_bytes < 0
    row.metric(
        "Missing for the weights" if short else "Left for caches",
        units.gib(abs(users.free_bytes)),
        help="GPU memory after weights and overhead, on the GPU that fills first.",
    )


def _told_of_memory(users: Users, hardware: Hardware) -> str:
    if not hardware.weights_known:
        return "Type the weights' size to see how many users fit."
    weights = hardware.deployment.stages[users.stage].weights_bytes
    return (
        "Users: worst case, every request at its full length, after "
        f"{units.gib(weights)} of weights ({hardware.weights_note})."
    )


def notes(architecture: Architecture) -> None:
    """What the config leaves open, and what the reader should know."""
    for each in architecture.uncertain:
        st.warning(f"A range, because of “{as_text(each.key)}”: {as_text(each.reason)}.")
    for warning in architecture.warnings:
        st.caption(as_text(warning, 400))


def pictures(
    subjects: Sequence[Subject],
    request: Request,
    hardware: Hardware,
    users: Users,
    longest: int,
    shared_prefix: int,
) -> None:
    log = st.toggle(
        "Logarithmic axes",
        key="calculator_log",
        bind="query-params",
        help="Equal ratios look equal; small windows stay visible beside long contexts.",
    )
    _memory(subjects, request, hardware, longest, log)
    if not hardware.weights_known:
        st.info("The number of users needs the size of the weights.")
        return
    _bar(request, hardware, users)
    _users(request, hardware, longest, shared_prefix, log)


def _memory(
    subjects: Sequence[Subject], request: Request, hardware: Hardware, longest: int, log: bool
) -> None:
    ranks = hardware.deployment.tensor_parallel
    table = memory_table(subjects, longest, request.tokens, request.kv_format, ranks, log)
    first = subjects[0]
    size = units.gib(first.architecture.cache_bytes(request.tokens, request.kv_format, ranks))
    draw(
        memory_against_context,
        table,
        alt=f"One request of {request.tokens:,} tokens takes {size} with {first.name}; "
        "the cache grows with the context.",
        models=tuple(each.series for each in subjects),
        log=log,
        ranged=not all(each.architecture.exact for each in subjects),
    )


def _users(
    request: Request, hardware: Hardware, longest: int, shared_prefix: int, log: bool
) -> None:
    if not users_at(hardware.deployment, 1).total:
        st.info("Nobody fits: the weights and the overhead alone are more than the memory.")
        return
    table = users_table(hardware.deployment, longest, request.tokens, shared_prefix, log)
    count = users_at(hardware.deployment, request.tokens).total
    draw(
        users_against_context,
        table,
        alt=f"{count:,} users fit with {request.tokens:,} tokens each; fewer as contexts grow.",
        log=log,
    )


def _bar(request: Request, hardware: Hardware, users: Users) -> None:
    shown = max(1, users.per_copy)
    shares = memory_shares(hardware.deployment, shown, request.tokens)
    biggest = max(shares, key=lambda share: share.num_bytes)
    draw(
        memory_bar,
        shares_table(shares),
        alt=f"With {shown:,} users, {biggest.part} take the most memory: "
        f"{units.gib(biggest.num_bytes)}.",
    )
    sizes = {share.part: share.num_bytes for share in shares}
    if users.per_copy and "free" in sizes:
        plural = "cache takes" if shown == 1 else "caches take"
        st.caption(
            f"{shown:,} full {plural} {units.gib(sizes['caches'])} of the "
            f"{units.gib(users.free_bytes)} left for caches; the {units.gib(sizes['free'])} that "
            "remain are less than one more needs."
        )
