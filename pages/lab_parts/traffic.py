"""Recorded traffic of one's own, and what a prefix cache would have found in it."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from kvcore import units
from kvcore.charts import cache_lab as charts
from kvcore.lab.traffic import Found, Traffic, found_by_capacity, found_table, read_traffic
from kvcore.paging.traces import MAX_BYTES, MOONCAKE_BLOCK_SIZE, TraceError
from pages.common.draw import draw
from pages.common.page import export_row, refuse
from pages.common.text import as_text

UPLOAD, READ = "lab_traffic", "lab_traffic_read"


@dataclass(frozen=True)
class Outcome:
    """What came of a file; it stays when the tab is closed. problem: why it cannot be read."""

    file: str
    traffic: Traffic | None = None
    found: tuple[Found, ...] = ()
    problem: str = ""


def tab() -> None:
    upload = st.file_uploader(
        "Trace with block names",
        key=UPLOAD,
        on_change=forget,
        max_upload_size=MAX_BYTES // 2**20,
        help="Mooncake's JSON lines (timestamp, input_length, output_length, hash_ids), plain or "
        "gzipped. It is read once and kept for this session alone.",
    )
    if upload is not None and READ not in st.session_state:
        with st.spinner("Replaying the trace"):
            st.session_state[READ] = replayed(upload.name, upload.getvalue())
    outcome = st.session_state.get(READ)
    if outcome is None:
        st.caption(
            "How much of real traffic a prefix cache would have found, by its size. Mooncake's "
            "published traces are in this form."
        )
    elif outcome.traffic is None:
        refuse(outcome.problem)
    else:
        show(outcome.file, outcome.traffic, outcome.found)


def forget() -> None:
    st.session_state.pop(READ, None)


def replayed(name: str, data: bytes) -> Outcome:
    try:
        traffic = read_traffic(data)
    except TraceError as problem:
        return Outcome(name, problem=str(problem))
    return Outcome(name, traffic, found_by_capacity(traffic))


def show(name: str, traffic: Traffic, found: tuple[Found, ...]) -> None:
    unlimited = found[-1].replay
    row = st.container(horizontal=True)
    row.metric(
        "Blocks found, no limit",
        f"{unlimited.block_hit_rate:.1%}",
        help="Blocks found over blocks asked for, where the cache never has to let one go.",
    )
    row.metric(
        "Tokens found, no limit",
        "unknown" if unlimited.token_hit_rate is None else f"{unlimited.token_hit_rate:.1%}",
        help="Prompt tokens found over prompt tokens; the last block of a prompt may be short.",
    )
    row.metric(
        "Different blocks",
        units.count(traffic.num_distinct),
        help=f"Of {MOONCAKE_BLOCK_SIZE} tokens each: a cache with room for all never evicts.",
    )
    kept = len(traffic.lengths)
    cut = f", the first of {traffic.num_in_file:,}" if kept < traffic.num_in_file else ""
    st.caption(
        f"{as_text(name, 60)}: {kept:,} requests{cut}, {unlimited.block_references:,} blocks, "
        "replayed just now, one request after another. A block is found when it and all before it "
        "in its prompt are there; the least recently used goes first, a prompt's end before its "
        "beginning."
    )
    table = found_table(traffic, found)
    smallest = found[0]
    draw(
        charts.found_by_capacity,
        table,
        alt=f"A cache of {table['blocks'][0].as_py():,} blocks finds "
        f"{smallest.replay.block_hit_rate:.1%} of the blocks, one without a limit "
        f"{unlimited.block_hit_rate:.1%}.",
    )
    share = st.column_config.NumberColumn(format="percent")
    whole = st.column_config.NumberColumn(format="localized")
    st.dataframe(
        table.rename_columns([column.replace("_", " ") for column in table.column_names]),
        hide_index=True,
        column_config={"block hit rate": share, "token hit rate": share}
        | dict.fromkeys(("blocks", "tokens", "evictions"), whole),
    )
    export_row("lab_traffic", table.to_pandas(), {"file": name, "requests": kept})
