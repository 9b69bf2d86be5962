"""Where lengths come from, and that they are what they claim to be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from kvcore.paging import Request, lognormal_requests, paper_requests, with_poisson_arrivals
from kvcore.paging.requests import paper_histograms


@pytest.fixture(scope="module")
def lengths():
    requests = paper_requests(20_000, seed=0)
    return np.array([(request.prompt, request.output) for request in requests])


def test_the_histograms_have_the_papers_means():
    """161.31 and 337.99 in the legend of Figure 11; 79.73 thousand requests in 128 bins."""
    for histogram, mean in zip(paper_histograms(), (161.31, 337.99), strict=True):
        assert len(histogram.counts) == 128
        assert sum(histogram.counts) == pytest.approx(79_730, abs=5)
        edges = np.linspace(histogram.first, histogram.last, 129)
        middles = (edges[1:] + edges[:-1]) / 2
        assert np.average(middles, weights=histogram.counts) == pytest.approx(mean, abs=0.1)


@pytest.mark.parametrize(
    ("column", "mean", "sd", "quantiles", "size_biased"),
    [
        (0, 161.4, 299.6, {25: 15, 50: 36, 75: 133, 90: 508, 95: 864, 99: 1465}, 717.6),
        (1, 338.0, 283.9, {25: 128, 50: 271, 75: 458, 90: 754, 95: 900, 99: 1279}, 576.5),
    ],
)
def test_drawn_lengths_keep_the_marginals(lengths, column, mean, sd, quantiles, size_biased):
    drawn = lengths[:, column]
    assert drawn.mean() == pytest.approx(mean, abs=0.5)
    assert drawn.std() == pytest.approx(sd, abs=1)
    assert (drawn**2).mean() / drawn.mean() == pytest.approx(size_biased, abs=2)
    for percent, value in quantiles.items():
        assert np.percentile(drawn, percent) == pytest.approx(value, abs=4)


@pytest.mark.parametrize("correlation", [-0.5, 0, 0.1, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_prompt_and_output_fit_the_model(seed, correlation):
    requests = paper_requests(3_000, seed, correlation)
    assert max(request.length for request in requests) <= 2_048
    assert min(min(request.prompt, request.output) for request in requests) >= 1


@effort(max_examples=30)
@given(st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_any_number_of_requests_fits(count, seed):
    requests = paper_requests(count, seed)
    assert len(requests) == count
    assert all(request.length <= 2_048 for request in requests)


def test_seeds_differ_and_repeat():
    assert paper_requests(50, seed=1) == paper_requests(50, seed=1)
    assert paper_requests(50, seed=1) != paper_requests(50, seed=2)


def test_lognormal_lengths_have_the_means_asked_for():
    requests = lognormal_requests(20_000, 100, 300, 0.5, 0.8, max_model_len=100_000)
    prompts = np.array([request.prompt for request in requests])
    outputs = np.array([request.output for request in requests])
    assert prompts.mean() == pytest.approx(100, rel=0.01)
    assert outputs.mean() == pytest.approx(300, rel=0.01)
    assert prompts.std() / prompts.mean() == pytest.approx(0.5, rel=0.03)
    assert outputs.std() / outputs.mean() == pytest.approx(0.8, rel=0.03)


@effort(max_examples=40)
@given(st.floats(1, 5_000), st.floats(1, 5_000), st.floats(0, 3), st.integers(2, 4_096))
def test_lognormal_requests_fit_the_model(prompt, output, cv, max_model_len):
    for request in lognormal_requests(20, prompt, output, cv, cv, max_model_len=max_model_len):
        assert request.length <= max_model_len


def test_constant_lengths_are_a_variation_of_zero():
    requests = lognormal_requests(10, 161, 338, 0, 0)
    assert {(request.prompt, request.output) for request in requests} == {(161, 338)}


def test_poisson_arrivals_have_the_rate_and_the_spread():
    arriving = with_poisson_arrivals(paper_requests(5_000), 0.25, seed=3)
    gaps = np.diff([request.arrival for request in arriving])
    assert gaps.mean() == pytest.approx(4, rel=0.05)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
    assert gaps.min() >= 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt": 0, "output": 1}, "at least one prompt token"),
        ({"prompt": 1, "output": 0}, "at least one prompt token"),
        ({"prompt": 1, "output": 1, "samples": 0}, "at least one sample"),
        ({"prompt": 1, "output": 1, "arrival": -1}, "before step 0"),
        ({"prompt": 1, "output": 1, "prefix_tokens": 2}, "as long as its prompt"),
        ({"prompt": 2, "output": 1, "token_ids": [1, 2]}, "every token"),
    ],
)
def test_a_request_that_cannot_be_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Request(**arguments)


def test_sources_name_what_cannot_be():
    with pytest.raises(ValueError, match="cannot be negative"):
        paper_requests(-1)
    with pytest.raises(ValueError, match="correlation"):
        paper_requests(1, correlation=2)
    with pytest.raises(ValueError, match="max_model_len of 2,048 or more"):
        paper_requests(1, max_model_len=512)
    with pytest.raises(ValueError, match="Mean lengths"):
        lognormal_requests(1, 0, 5)
    with pytest.raises(ValueError, match="variation"):
        lognormal_requests(1, 5, 5, -1)
    with pytest.raises(ValueError, match="rate must be positive"):
        with_poisson_arrivals([], 0)
