"""The arithmetic in words, with the user's own numbers, and what the paper leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import pandas as pd
import pyarrow as pa

from kvcore.paging.buddy import buddy_roots, buddy_size
from kvcore.paging.contiguous import ContiguousPool
from kvcore.paging.outcome import LABELS, Outcome
from kvcore.paging.paged import PagedPool
from kvcore.paging.paper import (
    ALPACA_BATCHES,
    ALPACA_BEAM_SAVING,
    FIGURE_2,
    SHAREGPT_BEAM_SAVING,
    SHAREGPT_PARALLEL_SAVING,
    TABLE_1,
    closed_form_max,
    implied_tokens_per_request,
    tokens_per_request,
)
from kvcore.paging.policies import POLICIES, make_pool
from kvcore.paging.pool import Pool
from kvcore.paging.requests import Request, paper_requests
from kvcore.paging.scenario import Scenario
from kvcore.paging.simulation import PAPER_NUM_SLOTS
from kvcore.units import GIB


@cache
def paper_notes() -> tuple[str, ...]:
    """Where the paper's own figures do not agree, with the numbers that show it."""
    implied = {policy: implied_tokens_per_request(bar) for policy, bar in FIGURE_2.items()}
    paged = FIGURE_2["paged"]
    holds = 100 * paged.batch_size * tokens_of_figure_11() / TABLE_1[0].slots
    return (
        f"The paper does not agree with itself on vLLM. {paged.split.token_states} % of the pool "
        f"shared by {paged.batch_size} requests is {implied['paged']:.0f} tokens a request; its "
        f"three Orca bars imply {implied['contiguous-pow2']:.0f} to "
        f"{implied['contiguous-max']:.0f} and its lengths {tokens_of_figure_11():.0f}. "
        f"{paged.batch_size} such requests would fill {holds:.0f} %. Figures 2 and 13 were "
        "probably not averaged over the same steps.",
        "Its two thin vLLM segments, reserved and internal, are equal to the last digit (1.04 % "
        "each), so the empty slots of blocks were probably halved between them. Counted strictly "
        "nearly all of them will be filled.",
    )


def alpaca_note(outcomes: Sequence[Outcome]) -> str:
    """The paper's batches for Alpaca beside these."""
    pairs = ", ".join(
        f"{outcome.system} {ALPACA_BATCHES[outcome.policy]} ({outcome.batch_size:.2f} here)"
        for outcome in outcomes
        if outcome.policy in ALPACA_BATCHES
    )
    return (
        f"Requests at once in the paper, Alpaca at 30 requests/s (Figure 13b): {pairs}. Its "
        "lengths are known here by their means only, and here the queue never empties."
    )


def sharing_note() -> str:
    """What the paper prints on sharing, and how far it can be compared."""
    low, high = SHAREGPT_PARALLEL_SAVING
    beams = ", ".join(f"{saving} % with {width}" for width, saving in ALPACA_BEAM_SAVING.items())
    return (
        f"The paper prints {low} to {high} % for ShareGPT with 2 to 6 samples. Alpaca is drawn "
        "from its printed means only, so its curve need not meet the points. Beam search is "
        f"quoted, not simulated: the paper has {beams} beams (Alpaca) and "
        f"{SHAREGPT_BEAM_SAVING[0]} to {SHAREGPT_BEAM_SAVING[1]} % (ShareGPT); what it saves "
        "depends on which beams survive."
    )


@cache
def tokens_of_figure_11() -> float:
    """Tokens a running request holds on average, by the paper's own lengths."""
    return tokens_per_request(paper_requests(8_000))


def pool_arithmetic(scenario: Scenario, requests: Sequence[Request]) -> list[str]:
    """Formulas with this scenario's numbers, one a line."""
    slots, longest = scenario.num_slots, scenario.max_model_len
    lines = []
    if slots == PAPER_NUM_SLOTS:
        model = TABLE_1[0]
        lines.append(
            f"Slots = {model.kv_memory_gb} GiB ÷ (2 × {model.hidden_size:,} × {model.num_layers} × "
            f"2 B) = {model.kv_memory_gb * GIB:,} ÷ {model.bytes_per_token:,} = "
            f"{model.slots:,.2f}"
        )
    roots = " + ".join(f"{size:,}" for _, size in buddy_roots(slots))
    lines.append(f"Buddy roots of {slots:,} slots = {roots}")
    served = [request for request in requests if request.length <= longest]
    if served:
        lines += _max_in_closed_form(served, slots, longest)
    num_blocks = slots // scenario.block_size
    lines.append(
        f"Blocks = ⌊{slots:,} ÷ {scenario.block_size}⌋ = {num_blocks:,}; the watermark keeps "
        f"⌊{scenario.watermark:g} × {num_blocks:,}⌋ = {int(scenario.watermark * num_blocks):,}"
    )
    if served:
        lines.append(_slack_line(served, scenario))
    return lines


def _max_in_closed_form(served: Sequence[Request], slots: int, longest: int) -> list[str]:
    split, batch = closed_form_max(served, slots, longest)
    tokens = tokens_per_request(served)
    return [
        f"Reserve the longest: {batch:,} chunks of {buddy_size(longest):,} fit, so {batch:,} "
        "requests run at once while the queue lasts",
        "Tokens a running request holds = E[p·o] ÷ E[o] + E[o²] ÷ 2E[o] + ½ = "
        f"{tokens:,.1f} (a long output is seen in more steps)",
        f"Memory that holds tokens = {batch:,} × {tokens:,.1f} ÷ {slots:,} = "
        f"{split.token_states:.2f} %, reserved {split.reservation:.2f} %, never used "
        f"{split.internal:.2f} %, between requests {split.external:.2f} %",
    ]


def _slack_line(served: Sequence[Request], scenario: Scenario) -> str:
    tokens, block = tokens_per_request(served), scenario.block_size
    slack = (block - 1) / 2
    share = 100 * slack / (tokens + slack)
    return (
        f"Empty slots in a request's last block = (B − 1) ÷ 2 = {slack:g} of about "
        f"{tokens + slack:,.0f}, or {share:.1f} % of what it is given"
    )


@lru_cache(maxsize=64)
def fit_rows(request: Request, scenario: Scenario) -> pa.Table:
    """What each policy gives one request in an empty pool, and whether it can ever be served."""
    return pa.Table.from_pylist([_fit_row(policy, request, scenario) for policy in POLICIES])


def fit_table(request: Request, scenario: Scenario) -> pd.DataFrame:
    """`fit_rows` as a frame."""
    return fit_rows(request, scenario).to_pandas()


def _fit_row(policy: str, request: Request, scenario: Scenario) -> dict[str, object]:
    settings = scenario.settings
    pool = make_pool(
        policy,
        **{
            name: settings[name]
            for name in (
                "num_slots",
                "block_size",
                "watermark",
                "max_model_len",
                "page_bytes",
                "tensor_bytes",
            )
        },
    )
    first, last = _given(pool, request)
    problem = pool.why_never(request)
    if request.length > scenario.max_model_len:
        problem = (
            f"Its {request.length:,} tokens are more than the {scenario.max_model_len:,} the model "
            "takes."
        )
    return {
        "Policy": LABELS[policy],
        "Slots when let in": first,
        "Slots at the end": last,
        "Never used": last - request.samples * request.length,
        "Can it run": problem or "Yes, alone in the pool at least",
    }


def _given(pool: Pool, request: Request) -> tuple[float, float]:
    if isinstance(pool, ContiguousPool):
        size = request.samples * buddy_size(pool.reserved(request))
        return size, size
    assert isinstance(pool, PagedPool)
    return (
        pool.needed_blocks(request, request.prompt + 1) * pool.block_slots,
        pool.needed_blocks(request, request.length) * pool.block_slots,
    )
