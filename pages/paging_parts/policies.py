"""How the policies work, and what their slack is called."""

from __future__ import annotations

from typing import NamedTuple

import streamlit as st

from pages.common.query import Choice, Named, Number

BLOCK_SIZES = [1, 4, 8, 16, 32, 64, 128, 256]
PAGE_KIB = [64, 128, 256, 2_048]
BUDDY_SLACK = {"external": "External (the paper)", "internal": "Internal"}
BLOCK_SLACK = {
    "strict": "Reserved if it will fill, else internal",
    "reservation": "All reserved",
    "internal": "All internal",
    "halved": "Half and half (the paper's bars)",
}
RULES = {
    "paging_block_size": Choice(tuple(str(size) for size in BLOCK_SIZES)),
    "paging_watermark": Number(0, 0.5, whole=False),
    "paging_preemption": Choice(("recompute", "swap")),
    "paging_look_ahead": Number(0, 64),
    "paging_page_kib": Choice(tuple(str(size) for size in PAGE_KIB)),
    "paging_seed": Number(0, 9_999),
    "paging_buddy_slack": Named(BUDDY_SLACK),
    "paging_block_slack": Named(BLOCK_SLACK),
}


class Slack(NamedTuple):
    """What the unused slots of buddy chunks and of blocks count as (`SimulationResult.split`)."""

    buddy_slack: str
    block_slack: str


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


def choose_seed() -> int:
    return st.number_input(
        "Seed",
        0,
        9_999,
        0,
        key="paging_seed",
        bind="query-params",
        help="The same seed gives the same requests and the same run.",
    )


def choose_slack() -> Slack:
    row = st.container(horizontal=True)
    buddy = row.segmented_control(
        "Slack of the buddy allocator counts as",
        list(BUDDY_SLACK),
        default="external",
        required=True,
        format_func=BUDDY_SLACK.get,
        key="paging_buddy_slack",
        bind="query-params",
        help="Slots added when a chunk is rounded up to a power of two. No token moves.",
    )
    block = row.selectbox(
        "Slack of blocks counts as",
        list(BLOCK_SLACK),
        format_func=BLOCK_SLACK.get,
        key="paging_block_slack",
        bind="query-params",
        help="Empty slots of blocks and large pages in use. No token moves.",
    )
    return Slack(buddy, block)
