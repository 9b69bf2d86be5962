"""Small pools and small requests, in which everything that can happen happens often."""

from __future__ import annotations

from hypothesis import strategies as st

from kvcore.paging import POLICIES, Request

policies = st.sampled_from(POLICIES)


@st.composite
def request_lists(draw, max_size: int = 25) -> list[Request]:
    return draw(st.lists(_requests(), max_size=max_size))


@st.composite
def _requests(draw) -> Request:
    prompt, output = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    arrival = draw(st.sampled_from([0.0, 0.0, 0.0, 3.5, 20.0, 200.0]))
    samples = draw(st.sampled_from([1, 1, 1, 2, 3]))
    content = draw(st.sampled_from(["none", "prefix", "tokens"]))
    if content == "prefix":
        shared = draw(st.integers(0, prompt))
        return Request(prompt, output, arrival, samples, draw(st.sampled_from("ab")), shared)
    if content == "tokens":
        first = draw(st.integers(0, 2))
        ids = [first] * (prompt + output)
        return Request(prompt, output, arrival, samples, token_ids=ids)
    return Request(prompt, output, arrival, samples)


@st.composite
def settings(draw) -> dict:
    return {
        "num_slots": draw(st.integers(33, 400)),
        "block_size": draw(st.sampled_from([1, 3, 4, 16])),
        "watermark": draw(st.sampled_from([0, 0.01, 0.1, 0.5])),
        "max_model_len": draw(st.sampled_from([20, 64, 80, 128])),
        "page_bytes": draw(st.sampled_from([4, 10, 64])),
        "tensor_bytes": draw(st.sampled_from([3, 10])),
        "look_ahead": draw(st.sampled_from([0, 0, 1, 5])),
        "preemption": draw(st.sampled_from(["recompute", "swap"])),
        "swap_slots": draw(st.sampled_from([None, 0, 40])),
        "max_batch": draw(st.sampled_from([None, None, 1, 4])),
    }
