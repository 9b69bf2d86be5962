"""Charts of the server page: drawn from frames as the samples give them, empty ones included."""

import pytest

from kvcore.charts import server as charts
from kvcore.charts.theme import spec
from kvcore.serving import Sample, frames
from kvcore.serving.experiments import AGAIN, CHANGED, COLD, CONTEXT, FIRST, LEVEL, WARM

SAMPLES = [
    Sample(COLD, 100, prompt_tokens=110, first_token_seconds=1.0, cached_tokens=0),
    Sample(WARM, 100, prompt_tokens=110, first_token_seconds=0.5, cached_tokens=64),
    Sample(COLD, 200, prompt_tokens=210, first_token_seconds=2.0, cached_tokens=0),
    Sample(WARM, 200, prompt_tokens=210, first_token_seconds=0.6),
    Sample(COLD, 400, problem="It broke."),
    Sample(FIRST, 100, first_token_seconds=1.0, cached_tokens=0),
    Sample(AGAIN, 100, first_token_seconds=0.2, cached_tokens=64),
    Sample(CHANGED, 100, first_token_seconds=1.1, cached_tokens=0),
    Sample(CONTEXT, 100, seconds_per_token=0.05, prompt_tokens=99),
    Sample(LEVEL, 100, concurrency=1, seconds_per_token=0.05, output_tokens=8, wave_seconds=1.0),
]


def test_points_and_trends_of_the_first_token():
    frame = frames.first_token_points(SAMPLES)
    assert list(frame[frame.kind == "measured"].reused) == [
        "0 tokens",
        "64 tokens",
        "0 tokens",
        "not said",
    ]
    trend = frame[(frame.kind == "trend") & (frame.series == COLD)]
    assert list(trend.tokens) == [110, 210]
    assert list(trend.seconds) == pytest.approx([1.0, 2.0])


def test_bars_say_seconds_and_tokens():
    frame = frames.early_change_bars(SAMPLES)
    assert list(frame.label) == [
        "1.00 s, 0 tokens reused",
        "0.20 s, 64 tokens reused",
        "1.10 s, 0 tokens reused",
    ]


def test_loads_say_what_is_not_known():
    (row,) = frames.load_points(SAMPLES).itertuples()
    assert (row.ms, row.tokens_per_second) == (50, 8)
    assert (row.usage, row.preemptions) == ("not said", "not said")


@pytest.mark.parametrize("samples", [SAMPLES, []])
@pytest.mark.parametrize(
    ("chart", "frame"),
    [
        (charts.first_token, frames.first_token_points),
        (charts.early_change, frames.early_change_bars),
        (charts.context_time, frames.token_time_points),
        (charts.load_time, frames.load_points),
        (charts.throughput, frames.load_points),
    ],
)
def test_every_chart_draws(chart, frame, samples):
    assert spec(chart(frame(samples)))
