"""Requests: how many tokens come in, how many go out, and when.

Lengths come from the histogram of Kwon et al. (SOSP 2023, Figure 11a), from lognormal
distributions, or from a trace (`kvcore.paging.traces`). Everything here is seeded.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from statistics import NormalDist

import numpy as np

from kvcore.checks import is_finite, is_whole, whole

PAPER_MAX_MODEL_LEN = 2_048
# With this correlation the requests of Figure 11 imply the tokens per request that the bars of
# Figure 2 imply: E[prompt · output] / E[output] = 160 (the bars: 159.5).
PAPER_CORRELATION = 0.1


@dataclass(frozen=True, slots=True)
class Request:
    """`prompt` tokens in, `output` tokens out, arriving at step `arrival`.

    `samples` outputs are drawn from the one prompt, all of the same length (parallel sampling).
    `prefix_id` with `prefix_tokens` says that the prompt begins with a prefix others share.
    `token_ids` (prompt, then output) lets full blocks be hashed and found again; `hash_ids` are
    ready-made names of the prompt's blocks of `hash_block_size` tokens, as in Mooncake's traces.
    Raises ValueError for lengths below one token or a prefix longer than its prompt.
    """

    prompt: int
    output: int
    arrival: float = 0.0
    samples: int = 1
    prefix_id: Hashable | None = None
    prefix_tokens: int = 0
    token_ids: Sequence[int] | None = field(default=None, repr=False)
    hash_ids: Sequence[int] | None = field(default=None, repr=False)
    hash_block_size: int = 512

    def __post_init__(self) -> None:
        if not all(is_whole(length) and length >= 1 for length in (self.prompt, self.output)):
            raise ValueError("A request has at least one prompt token and one output token.")
        if not is_whole(self.samples) or self.samples < 1:
            raise ValueError("A request draws at least one sample.")
        if not is_finite(self.arrival) or self.arrival < 0:
            raise ValueError("A request cannot arrive before step 0, or never.")
        if not is_whole(self.prefix_tokens) or not 0 <= self.prefix_tokens <= self.prompt:
            raise ValueError("A shared prefix is at most as long as its prompt.")
        if self.token_ids is not None and len(self.token_ids) < self.prompt + self.output:
            raise ValueError("token_ids must name every token of the prompt and the output.")

    @property
    def length(self) -> int:
        """Tokens of one sample when it is complete, prompt included."""
        return self.prompt + self.output

    def at(self, arrival: float) -> Request:
        """The same request arriving at another step."""
        return replace(self, arrival=arrival)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of lengths in equal bins between `first` and `last` tokens."""

    first: int
    last: int
    counts: tuple[int, ...]

    def quantiles(self, shares: np.ndarray) -> np.ndarray:
        """The lengths below which these shares of the requests lie, whole tokens."""
        edges = np.linspace(self.first, self.last, len(self.counts) + 1)
        cumulative = np.concatenate([[0], np.cumsum(self.counts)]) / sum(self.counts)
        lengths = np.interp(shares, cumulative, edges)
        return np.clip(np.rint(lengths), self.first, self.last).astype(int)


@cache
def paper_histograms() -> tuple[Histogram, Histogram]:
    """Prompt and output lengths of ShareGPT: the bars of the paper's Figure 11a (CC BY 4.0)."""
    text = resources.files("kvcore").joinpath("data/sharegpt_lengths.json").read_text()
    document = json.loads(text)
    prompt, output = (
        Histogram(sides["first"], sides["last"], tuple(sides["counts"]))
        for sides in (document["input"], document["output"])
    )
    return prompt, output


def paper_requests(
    count: int,
    seed: int = 0,
    correlation: float = PAPER_CORRELATION,
    max_model_len: int = PAPER_MAX_MODEL_LEN,
) -> list[Request]:
    """`count` requests with the lengths of the paper's ShareGPT trace, all waiting at step 0.

    Prompts and outputs each follow Figure 11a to within one request per quantile. The figure
    says nothing about pairs, so they are joined by a Gaussian copula of `correlation`; a pair
    longer than `max_model_len` swaps outputs with another, which leaves both marginals exact
    (rejecting such pairs would drop the mean prompt from 161 to 149 tokens).

    Raises ValueError for a negative count, a correlation outside [-1, 1] or a `max_model_len`
    too short for the distribution.
    """
    if max_model_len < PAPER_MAX_MODEL_LEN:
        raise ValueError(
            f"The paper's requests need a max_model_len of {PAPER_MAX_MODEL_LEN:,} or more."
        )
    rng = _generator(seed)
    prompt_shares, output_shares = _paired_shares(count, correlation, rng)
    prompt_histogram, output_histogram = paper_histograms()
    prompts = prompt_histogram.quantiles(prompt_shares)
    outputs = output_histogram.quantiles(output_shares)
    _swap_outputs_until_short(prompts, outputs, max_model_len, rng)
    return _requests(prompts, outputs)


def lognormal_requests(
    count: int,
    mean_prompt: float,
    mean_output: float,
    cv_prompt: float = 1.0,
    cv_output: float = 1.0,
    seed: int = 0,
    max_model_len: int = PAPER_MAX_MODEL_LEN,
) -> list[Request]:
    """Independent lognormal lengths with these means and coefficients of variation.

    Lengths are cut so that each request fits `max_model_len`. Raises ValueError for means below
    one token, a negative variation or a negative count.
    """
    if mean_prompt < 1 or mean_output < 1:
        raise ValueError("Mean lengths must be at least one token.")
    if cv_prompt < 0 or cv_output < 0:
        raise ValueError("A coefficient of variation cannot be negative.")
    rng = _generator(seed)
    prompt_shares, output_shares = _paired_shares(count, 0.0, rng)
    prompts = _lognormal(prompt_shares, mean_prompt, cv_prompt)
    outputs = _lognormal(output_shares, mean_output, cv_output)
    prompts = np.clip(prompts, 1, max_model_len - 1)
    outputs = np.clip(outputs, 1, max_model_len - prompts)
    return _requests(prompts, outputs)


def with_poisson_arrivals(
    requests: Sequence[Request], requests_per_step: float, seed: int = 0
) -> list[Request]:
    """The same requests arriving as a Poisson process of that rate, in the order given.

    Raises ValueError for a rate that is not positive.
    """
    if not requests_per_step > 0:
        raise ValueError("The arrival rate must be positive.")
    gaps = _generator(seed).exponential(1 / requests_per_step, len(requests))
    arrivals = np.cumsum(gaps)
    return [request.at(float(arrival)) for request, arrival in zip(requests, arrivals, strict=True)]


def _generator(seed: int) -> np.random.Generator:
    whole("seed", seed, 0)
    return np.random.default_rng(seed)


def _paired_shares(
    count: int, correlation: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Two sets of evenly spread shares in (0, 1), in orders with that Gaussian correlation."""
    if not is_whole(count) or count < 0:
        raise ValueError(f"The number of requests is whole and cannot be negative, not {count!r}.")
    if not -1 <= correlation <= 1:
        raise ValueError("A correlation lies between -1 and 1.")
    first = rng.standard_normal(count)
    second = correlation * first + np.sqrt(1 - correlation**2) * rng.standard_normal(count)
    return _stratified(first, rng), _stratified(second, rng)


def _stratified(scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One share from each of len(scores) equal strata, ranked as the scores are."""
    ranks = scores.argsort().argsort()
    return (ranks + rng.random(len(scores))) / max(1, len(scores))


def _swap_outputs_until_short(
    prompts: np.ndarray, outputs: np.ndarray, max_length: int, rng: np.random.Generator
) -> None:
    for index in np.flatnonzero(prompts + outputs > max_length):
        fits = (prompts[index] + outputs <= max_length) & (prompts + outputs[index] <= max_length)
        partners = np.flatnonzero(fits)
        if len(partners):
            partner = rng.choice(partners)
            outputs[[index, partner]] = outputs[[partner, index]]
        else:
            outputs[index] = max(1, max_length - prompts[index])


def _lognormal(shares: np.ndarray, mean: float, cv: float) -> np.ndarray:
    sigma = np.sqrt(np.log1p(cv**2))
    normal = np.array([NormalDist().inv_cdf(share) for share in np.clip(shares, 1e-12, 1 - 1e-12)])
    lengths = np.exp(np.log(mean) - sigma**2 / 2 + sigma * normal)
    return np.maximum(1, np.rint(lengths)).astype(int)


def _requests(prompts: np.ndarray, outputs: np.ndarray) -> list[Request]:
    pairs = zip(prompts.tolist(), outputs.tolist(), strict=True)
    return [Request(prompt, output) for prompt, output in pairs]
