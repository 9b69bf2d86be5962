"""Figures of Kwon et al. (SOSP 2023, arXiv:2309.06180) and the arithmetic behind them.

Numbers of the paper are quoted with the place they stand in; everything else is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvcore.paging.buddy import buddy_roots, buddy_size
from kvcore.paging.requests import PAPER_MAX_MODEL_LEN, Request
from kvcore.paging.results import Split
from kvcore.units import GIB


@dataclass(frozen=True, slots=True)
class PaperBar:
    """A bar of Figure 2 in percent and the batch of Figure 13a (ShareGPT, 2 requests/s).

    For vLLM only `token_states` is printed; the other segments were read off the vector figure.
    """

    policy: str
    system: str
    split: Split
    batch_size: float
    labelled: tuple[str, ...]


ALL_SEGMENTS = ("token_states", "reservation", "internal", "external")

FIGURE_2 = {
    bar.policy: bar
    for bar in (
        PaperBar("contiguous-max", "Orca (Max)", Split(20.4, 13.3, 57.3, 8.9), 7.00, ALL_SEGMENTS),
        PaperBar(
            "contiguous-pow2", "Orca (Pow2)", Split(26.8, 17.9, 13.6, 41.6), 9.81, ALL_SEGMENTS
        ),
        PaperBar(
            "contiguous-oracle", "Orca (Oracle)", Split(38.2, 25.2, 0.0, 36.6), 13.62, ALL_SEGMENTS
        ),
        PaperBar("paged", "vLLM", Split(96.3, 1.04, 1.04, 1.65), 30.42, ("token_states",)),
    )
}

# Figure 13b: requests batched on Alpaca at 30 requests/s.
ALPACA_BATCHES = {
    "contiguous-max": 7.00,
    "contiguous-pow2": 43.24,
    "contiguous-oracle": 72.75,
    "paged": 132.44,
}

# Figure 15: blocks saved by sharing, percent of the blocks without it.
ALPACA_PARALLEL_SAVING = {2: 6.09, 4: 8.53, 6: 9.79}
ALPACA_BEAM_SAVING = {2: 37.56, 4: 53.13, 6: 55.16}
# Section 6.3, the same on ShareGPT, for 2 to 6 samples.
SHAREGPT_PARALLEL_SAVING = (16.2, 30.5)
SHAREGPT_BEAM_SAVING = (44.3, 66.3)
# Figure 11b: mean lengths of Alpaca's prompts and outputs.
ALPACA_MEAN_PROMPT, ALPACA_MEAN_OUTPUT = 19.31, 58.45


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A column of Table 1. Memory as printed, in GB; the KV slots follow only if it is GiB."""

    name: str
    hidden_size: int
    num_layers: int
    kv_memory_gb: int
    printed_slots: str

    @property
    def bytes_per_token(self) -> int:
        """K and V, 2 bytes each, for every layer: 2 x hidden x layers x 2 B."""
        return 2 * self.hidden_size * self.num_layers * 2

    @property
    def slots(self) -> float:
        """Tokens that fit; a fraction, as the paper's pool of 15,728.64 slots is."""
        return self.kv_memory_gb * GIB / self.bytes_per_token


TABLE_1 = (
    ServedModel("OPT-13B", 5_120, 40, 12, "15.7K"),
    ServedModel("OPT-66B", 9_216, 64, 21, "9.7K"),
    ServedModel("OPT-175B", 12_288, 96, 264, "60.1K"),
)


def never_used_slots(reserved: int, prompt: int, output: int) -> int:
    """Slots of a reservation that no token will ever fill (Figure 3's internal fragmentation).

    Raises ValueError when the request is longer than its reservation.
    """
    if prompt + output > reserved:
        raise ValueError("The request does not fit its reservation.")
    return reserved - prompt - output


def tokens_per_request(requests: Sequence[Request]) -> float:
    """Tokens a running request holds, averaged over steps: long outputs are seen more often.

    E[po]/E[o] + E[o^2]/2E[o] + 1/2: a request with output o runs o steps with p + 1 to p + o
    tokens.
    """
    steps = sum(request.output for request in requests)
    held = sum(
        request.output * request.prompt + request.output * (request.output + 1) / 2
        for request in requests
    )
    return held / steps


def closed_form_max(
    requests: Sequence[Request], num_slots: int, max_model_len: int = PAPER_MAX_MODEL_LEN
) -> tuple[Split, int]:
    """The bar of contiguous-max and its batch under a queue that never empties, unsimulated.

    As many requests run as the pool has chunks of `max_model_len` rounded up to a power of two.
    Raises ValueError without requests.
    """
    if not requests:
        raise ValueError("The closed form needs at least one request.")
    size = buddy_size(max_model_len)
    batch = sum(root // size for _, root in buddy_roots(num_slots))
    steps = sum(request.output for request in requests)
    final = sum(request.output * request.length for request in requests) / steps
    tokens = tokens_per_request(requests)
    percent = 100 * batch / num_slots
    split = Split(
        token_states=tokens * percent,
        reservation=(final - tokens) * percent,
        internal=(max_model_len - final) * percent,
        external=100 - max_model_len * percent,
    )
    return split, batch


def implied_tokens_per_request(bar: PaperBar, num_slots: float = TABLE_1[0].slots) -> float:
    """Tokens per request that a bar and its batch size imply: bar x slots / batch.

    Max, Pow2 and Oracle agree within 4 %, vLLM's 498 does not: Figures 2 and 13 were probably
    not averaged alike.
    """
    return bar.split.token_states / 100 * num_slots / bar.batch_size


def equal_share_waste(layers: Sequence[tuple[int, int]]) -> float:
    """Share of KV memory wasted when all layers get room for the longest need, 0 to 1.

    `layers` is (how many, tokens each needs). vllm-project/vllm#11382: Gemma-2 25 %, Ministral
    56.25 %. Raises ValueError without layers or tokens.
    """
    if not layers or max(tokens for _, tokens in layers) < 1:
        raise ValueError("There must be layers that need at least one token.")
    given = sum(count for count, _ in layers) * max(tokens for _, tokens in layers)
    return 1 - sum(count * tokens for count, tokens in layers) / given
