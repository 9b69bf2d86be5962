"""Timelines, speed-up, and the verdict on whether both ways gave the same reply."""

import pytest
import torch

from kvcore.decoding import Agreement, Comparison, Pair, Step, Timeline, compare
from kvcore.decoding.compare import expected_speed_up, max_difference, sample_positions
from kvcore.decoding.errors import PromptError
from tests.small_models import small_model

PROMPT = [5, 6, 7, 8]


def step(index, seconds=1.0, token=1, gap=1.0, tokens=1):
    return Step(index, token, seconds, tokens, 0, gap, "decode" if index else "prefill")


def pair(index, difference=1e-6, gap=1.0, tokens=(1, 1), logit=10.0):
    cached, uncached = (step(index, token=token, gap=gap) for token in tokens)
    return Pair(index, cached, uncached, difference, logit)


class Scripted:
    """A clock for `compare`: uncached steps take 2 s and 0.1 s a token, cached ones half a second.

    It cannot see which way is running, so it is told by the length of what was run last.
    """

    def __init__(self):
        self.now = 0.0
        self.began = True
        self.model = None

    def __call__(self):
        self.began = not self.began
        if self.began:
            self.now += 2 + 0.1 * self.last if self.last > 1 else 0.5
        return self.now


@pytest.fixture
def scripted(monkeypatch):
    """(model, clock): the number of tokens in a pass decides how long it took."""
    from kvcore.decoding import model as module

    clock = Scripted()
    run = module.forward

    def counted(model, token_ids, cache=None, **options):
        clock.last = len(token_ids) - len(cache or ())
        return run(model, token_ids, cache, **options)

    monkeypatch.setattr(module, "forward", counted)
    return small_model("gpt2"), clock


def run(scripted, count, samples=None):
    model, clock = scripted
    result = Comparison(len(PROMPT), count, samples)
    for made in compare(model, PROMPT, count, samples=samples, clock=clock):
        result.add(made)
    return result


def test_totals_first_token_and_rate(scripted):
    result = run(scripted, 11)
    assert result.cached.time_to_first_token == pytest.approx(2.4)
    assert result.cached.decode_seconds == pytest.approx(5.0)
    assert result.cached.total_seconds == pytest.approx(7.4)
    assert result.cached.per_token.median == pytest.approx(0.5)
    assert result.uncached.total_seconds == pytest.approx(sum(2 + 0.1 * n for n in range(4, 15)))
    assert (result.cached.tokens_processed, result.uncached.tokens_processed) == (14, 99)


def test_the_spread_is_between_the_tenth_and_ninetieth_percentile():
    timeline = Timeline(4, 12, [step(i, seconds=i / 10) for i in range(12)])
    spread = timeline.per_token
    assert (spread.median, spread.p10, spread.p90) == pytest.approx((0.6, 0.2, 1.0))


def test_speed_up_for_each_number_of_tokens_and_where_it_reaches_a_factor(scripted):
    result = run(scripted, 100)
    without = [2 + 0.1 * n for n in range(4, 104)]
    expected = [sum(without[: n + 1]) / (2.4 + 0.5 * n) for n in range(100)]
    assert result.speed_up() == pytest.approx(expected)
    first = next(n for n, ratio in enumerate(expected, 1) if ratio >= 5)
    assert result.tokens_until(5) == first
    assert result.tokens_until(1_000) is None


def test_expectation_from_counts():
    assert expected_speed_up(4, 3) == pytest.approx([1, 9 / 5, 15 / 6])
    # 16 prompt tokens, 1,000 new ones: 515,500 tokens against 1,015
    assert expected_speed_up(16, 1_000)[-1] == pytest.approx(515_500 / 1_015)


def test_a_sampled_run_measures_what_it_says_and_lands_on_the_full_total(scripted):
    full, sampled = run(scripted, 200), run(scripted, 200, samples=12)
    assert (sampled.uncached.measured, sampled.uncached.reached) == (12, 200)
    assert (sampled.is_sampled, full.is_sampled) == (True, False)
    assert sampled.cached.measured == 200
    assert sampled.uncached.total_seconds == pytest.approx(full.uncached.total_seconds)
    assert sampled.speed_up() == pytest.approx(full.speed_up())


def test_a_sampled_run_compares_logits_where_it_measures():
    model = small_model("llama")
    pairs = list(compare(model, PROMPT, 60, samples=7))
    agreement = Agreement.of(pairs)
    assert (agreement.compared, agreement.verdict) == (7, "identical")


def test_samples_are_spread_evenly_with_both_ends():
    assert sample_positions(1_000, 5) == [0, 250, 500, 749, 999]
    assert sample_positions(3, 24) == [0, 1, 2]


def test_time_left_shrinks_to_nothing(scripted):
    model, clock = scripted
    result, left = Comparison(len(PROMPT), 50), []
    for made in compare(model, PROMPT, 50, clock=clock):
        result.add(made)
        left.append(result.seconds_left())
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0
    rest = sum(2 + 0.1 * n for n in range(29, 54)) + 25 * 0.5
    assert left[24] == pytest.approx(rest, rel=0.3)


def test_nothing_compared_gives_no_verdict():
    assert Agreement.of([]).verdict is None
    assert Agreement.of([Pair(0, step(0), None, None, 1.0)]).verdict is None


@pytest.mark.parametrize(
    ("pairs", "verdict"),
    [
        ([pair(0), pair(1)], "identical"),
        # parted at a near tie: closer than twice the difference seen
        ([pair(0), pair(1, difference=1e-4, gap=1.5e-4, tokens=(1, 2))], "rounding"),
        # parted although the gap was wider than rounding explains
        ([pair(0), pair(1, difference=1e-4, gap=2.5e-4, tokens=(1, 2))], "wrong"),
        # another text in the cache: a large difference must not excuse a wide gap
        ([pair(0), pair(1, difference=0.8, gap=0.3, tokens=(1, 2))], "wrong"),
        # the same tokens by luck, but logits far apart
        ([pair(0), pair(1, difference=0.01)], "wrong"),
        ([pair(0), pair(1, difference=float("inf"))], "wrong"),
    ],
)
def test_verdicts(pairs, verdict):
    assert Agreement.of(pairs).verdict == verdict


def test_logits_that_are_no_numbers_agree_with_nothing():
    nothing = torch.tensor([1.0, float("nan")])
    assert max_difference(nothing, torch.tensor([1.0, 2.0])) == float("inf")
    assert max_difference(nothing, nothing) == float("inf")


def test_the_agreement_says_where_they_part_and_looks_no_further():
    pairs = [pair(0, gap=0.5), pair(1, 1e-4, gap=1e-4, tokens=(1, 2)), pair(2, None)]
    agreement = Agreement.of(pairs)
    assert (agreement.first_difference, agreement.gap_there) == (1, 1e-4)
    assert (agreement.compared, agreement.narrowest_gap) == (2, 1e-4)


def test_bad_input_is_refused_before_the_first_pair():
    model = small_model("gpt2")
    with pytest.raises(PromptError):
        compare(model, [], 5)
    with pytest.raises(ValueError, match="at least two"):
        compare(model, PROMPT, 5, samples=1)


def test_figures_are_worked_out_once_for_the_pairs_there_are():
    result = Comparison(len(PROMPT), 3)
    result.add(pair(0))
    first = result.agreement, result.speed_up()
    assert (result.agreement, result.speed_up()) == first
    assert result.agreement is first[0]
    result.add(pair(1, tokens=(1, 2)))
    assert len(result.speed_up()) == 2
    assert result.agreement.compared == 2
    assert result.agreement.first_difference == 1
