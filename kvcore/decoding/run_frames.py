"""A run as frames for charts, tables and exports."""

import pandas as pd

from kvcore import units
from kvcore.charts.live_timing import CACHED, EXPECTED, FLOOR, MEASURED, PEER, UNCACHED
from kvcore.decoding.compare import expected_speed_up
from kvcore.decoding.run import Run
from kvcore.decoding.timeline import Spread, Timeline

MAX_POINTS = 250


def step_times(run: Run) -> pd.DataFrame:
    """Milliseconds for each new token. Columns: token (from 1), series, ms."""
    if run.comparison is None:
        return pd.DataFrame({"token": [], "series": [], "ms": []}).astype(
            {"token": "int64", "series": "str", "ms": "float64"}
        )
    cached, uncached = run.comparison.cached.steps, run.comparison.uncached.steps
    rows = [(step.index + 1, UNCACHED, step.seconds) for step in _thinned(uncached)]
    rows += [(step.index + 1, CACHED, step.seconds) for step in _thinned(cached)]
    rows += [(index + 1, PEER, seconds) for index, seconds in run.peer]
    floors = [(step.index, run.floor_seconds(step.index)) for step in _thinned(cached[1:])]
    rows += [(index + 1, FLOOR, floor) for index, floor in floors if floor is not None]
    frame = pd.DataFrame(rows, columns=["token", "series", "seconds"])
    frame["ms"] = frame.pop("seconds") * 1000
    return frame


def speed_up(run: Run) -> pd.DataFrame:
    """Times faster so far, measured and from counts. Columns: token, series, ratio."""
    ratios = run.comparison.speed_up()
    expected = expected_speed_up(run.comparison.prompt_tokens, len(ratios))
    both = [(MEASURED, ratios), (EXPECTED, expected)]
    rows = [
        (token, name, ratio)
        for name, values in both
        for token, ratio in _thinned(list(enumerate(values, start=1)))
    ]
    return pd.DataFrame(rows, columns=["token", "series", "ratio"])


def cache_growth(run: Run) -> pd.DataFrame:
    """Cache after each token. Columns: token, mib."""
    steps = _thinned(run.comparison.cached.steps)
    return pd.DataFrame(
        {
            "token": [step.index + 1 for step in steps],
            "mib": [step.cache_bytes / units.MIB for step in steps],
        }
    )


def phases(run: Run) -> pd.DataFrame:
    """Milliseconds for each token run, in prefill and in decode. Columns: phase, ms, shown."""
    timeline = run.comparison.cached
    first = timeline.time_to_first_token / timeline.prompt_tokens
    later = timeline.per_token.median
    rows = [
        (f"Prefill: {timeline.prompt_tokens:,} at once", first * 1000, units.ms(first)),
        ("Decode: one at a time", later * 1000, units.ms(later)),
    ]
    return pd.DataFrame(rows, columns=["phase", "ms", "shown"])


def totals(run: Run) -> pd.DataFrame:
    """Both ways side by side, as text. Columns: what, with, without."""
    cached, uncached = run.comparison.cached, run.comparison.uncached
    share = run.share_of_floor()
    rows = [
        ("Time in all", _seconds(cached.total_seconds), _seconds(uncached.total_seconds)),
        (
            "Time to first token (prefill)",
            _seconds(cached.time_to_first_token),
            _seconds(uncached.time_to_first_token),
        ),
        ("Decode, all later tokens", _seconds(cached.decode_seconds), _decode(uncached)),
        (
            "Time per later token, median (10th to 90th percentile)",
            _spread(cached.per_token),
            _spread(uncached.per_token),
        ),
        (
            "Tokens run through the model in the steps measured",
            units.count(cached.tokens_processed),
            units.count(uncached.tokens_processed),
        ),
        ("Steps measured", units.count(cached.measured), units.count(uncached.measured)),
        ("Share of the memory-bandwidth floor", units.percent(share) if share else "–", "–"),
    ]
    return pd.DataFrame(rows, columns=["what", "with", "without"])


def export(run: Run) -> pd.DataFrame:
    """A row for each new token, seconds unrounded."""
    rows = [
        {
            "token": pair.index + 1,
            "token_id": pair.cached.token_id,
            "text": piece,
            "cached_seconds": pair.cached.seconds,
            "uncached_seconds": pair.uncached.seconds if pair.uncached else None,
            "cached_tokens_run": pair.cached.tokens_processed,
            "uncached_tokens_run": pair.uncached.tokens_processed if pair.uncached else None,
            "cache_bytes": pair.cached.cache_bytes,
            "largest_logit_difference": pair.difference,
            "gap_to_second_best": pair.cached.gap,
        }
        for pair, piece in zip(run.pairs, run.pieces, strict=False)
    ]
    return pd.DataFrame(rows)


def summary(run: Run) -> dict[str, object]:
    """The figures above the charts, for the export."""
    comparison, agreement = run.comparison, run.comparison.agreement
    ratios = comparison.speed_up()
    return {
        "cached_seconds": comparison.cached.total_seconds,
        "uncached_seconds": comparison.uncached.total_seconds,
        "uncached_is_sampled": comparison.is_sampled,
        "uncached_steps_measured": comparison.uncached.measured,
        "speed_up": ratios[-1] if ratios else None,
        "time_to_first_token_seconds": comparison.cached.time_to_first_token,
        "verdict": agreement.verdict,
        "tokens_compared": agreement.compared,
        "largest_logit_difference": agreement.largest_difference,
        "narrowest_gap": agreement.narrowest_gap,
        "bytes_per_second_read": run.bytes_per_second,
        "share_of_floor": run.share_of_floor(),
        "weights": run.facts.source,
        "disturbed": run.was_disturbed,
    }


def _thinned(items: list) -> list:
    """At most about MAX_POINTS of the items, evenly spread, the last one among them."""
    every = -(-len(items) // MAX_POINTS)
    return items if every <= 1 else [*items[:-1][::every], items[-1]]


def _seconds(value: float | None) -> str:
    return "–" if value is None else units.seconds(value)


def _decode(timeline: Timeline) -> str:
    return units.seconds(timeline.decode_seconds) if timeline.measured > 1 else "–"


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    return f"{units.ms(spread.median)} ({units.ms(spread.p10)} to {units.ms(spread.p90)})"
