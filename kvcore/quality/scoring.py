"""Perplexity, divergence and unchanged tokens of a treated cache, against the full one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcore.quality.texts import too_short
from kvcore.quality.treatments import REFERENCE, Treatment

if TYPE_CHECKING:
    from torch import Tensor

    from kvcore.decoding.model import Model

LEAST_SCORED = 64
"""Fewest tokens past the budget that give a perplexity worth showing."""

ROWS_AT_ONCE = 128
"""Logits of so many tokens are held at a time: 25 MB with a vocabulary of 49,152."""


@dataclass(frozen=True)
class Score:
    """One treatment on one text.

    Everything is taken over the same tokens: those whose prediction had more than `scored_from`
    tokens before it, where the budgets of all treatments are full.

    perplexity: e to the mean negative log-likelihood of the text's own next token.
    divergence: mean Kullback-Leibler divergence from the full cache's next-token distribution, in
        nats.
    unchanged: share of tokens at which the most likely next token is the full cache's.
    cache_bytes: keys and values held at the end of the text, scales included.
    """

    treatment: Treatment
    tokens: int
    scored_from: int
    cache_bytes: int
    perplexity: float
    divergence: float
    unchanged: float
    seconds: float


def compare(
    model: Model,
    token_ids: Sequence[int],
    treatments: Sequence[Treatment],
    scored_from: int | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[Score]:
    """The reference first, then each treatment, on the same tokens of the same text.

    scored_from: the first token whose prediction counts; by default the largest budget there is.
    Ends early, between two layers, once `stopping()` is true.
    Raises TextError for a text that leaves fewer than `LEAST_SCORED` tokens to score, and what the
    decoder raises for one longer than the model's context.
    """
    from kvcore.quality.reader import Stopped

    start = largest_budget(treatments) if scored_from is None else scored_from
    if len(token_ids) < start + LEAST_SCORED + 1:
        raise too_short(len(token_ids), start + LEAST_SCORED + 1)
    try:
        began = time.perf_counter()
        full = _hidden(model, token_ids, REFERENCE, stopping)
        yield _score(model, token_ids, REFERENCE, start, full, full, began)
        for treatment in treatments:
            began = time.perf_counter()
            hidden = _hidden(model, token_ids, treatment, stopping)
            yield _score(model, token_ids, treatment, start, hidden, full, began)
    except Stopped:
        return


def largest_budget(treatments: Sequence[Treatment]) -> int:
    """Tokens after which every budget is full; 1 where nothing is ever forgotten."""
    return max((t.budget.total or 1 for t in treatments), default=1)


def _hidden(
    model: Model,
    token_ids: Sequence[int],
    treatment: Treatment,
    stopping: Callable[[], bool],
) -> Tensor:
    from kvcore.quality.reader import Reader

    return Reader(model, treatment, len(token_ids), stopping).read(token_ids)


def _score(
    model: Model,
    token_ids: Sequence[int],
    treatment: Treatment,
    start: int,
    hidden: Tensor,
    full: Tensor,
    began: float,
) -> Score:
    """Compare the predictions made at tokens `start` - 1 … last - 1 for the tokens after them."""
    import torch

    targets = torch.tensor(token_ids[start:])
    surprise = divergence = unchanged = 0.0
    with torch.inference_mode():
        for first in range(0, len(targets), ROWS_AT_ONCE):
            rows = slice(start - 1 + first, start - 1 + min(first + ROWS_AT_ONCE, len(targets)))
            log_p = model.network.logits(full[rows]).log_softmax(dim=-1)
            log_q = log_p
            if hidden is not full:
                log_q = model.network.logits(hidden[rows]).log_softmax(dim=-1)
            wanted = targets[first : first + ROWS_AT_ONCE, None]
            surprise -= log_q.gather(1, wanted).sum().item()
            divergence += (log_p.exp() * (log_p - log_q)).sum().item()
            unchanged += (log_p.argmax(dim=1) == log_q.argmax(dim=1)).sum().item()
    c = model.config
    return Score(
        treatment=treatment,
        tokens=len(token_ids),
        scored_from=start,
        cache_bytes=treatment.cache_bytes(c.num_layers, c.num_kv_heads, c.head_dim, len(token_ids)),
        perplexity=math.exp(surprise / len(targets)),
        divergence=max(0.0, divergence / len(targets)),
        unchanged=unchanged / len(targets),
        seconds=time.perf_counter() - began,
    )
