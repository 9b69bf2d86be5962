"""A run as Arrow tables for charts and the screen, and as a frame for exports."""

from collections.abc import Sequence

import pandas as pd
import pyarrow as pa

from kvcore import units
from kvcore.charts.live_timing import CACHED, EXPECTED, FLOOR, MEASURED, PEER, UNCACHED
from kvcore.decoding.compare import expected_speed_up
from kvcore.decoding.run import Run
from kvcore.decoding.timeline import Spread, Timeline

MAX_POINTS = 250

STEP_TIMES = pa.schema([("token", pa.int64()), ("series", pa.string()), ("ms", pa.float64())])
SPEED_UP = pa.schema([("token", pa.int64()), ("series", pa.string()), ("ratio", pa.float64())])
PHASES = pa.schema([("phase", pa.string()), ("ms", pa.float64()), ("shown", pa.string())])
TOTALS = pa.schema([(name, pa.string()) for name in ("what", "with", "without")])


def step_times(run: Run) -> pa.Table:
    """Milliseconds for each new token. Columns: token (from 1), series, ms."""
    if run.comparison is None:
        return STEP_TIMES.empty_table()
    cached, uncached = run.comparison.cached.steps, run.comparison.uncached.steps
    rows = [(step.index + 1, UNCACHED, step.seconds * 1e3) for step in _thinned(uncached)]
    rows += [(step.index + 1, CACHED, step.seconds * 1e3) for step in _thinned(cached)]
    rows += [(index + 1, PEER, seconds * 1e3) for index, seconds in run.peer]
    floors = [(step.index, run.floor_seconds(step.index)) for step in _thinned(cached[1:])]
    rows += [(index + 1, FLOOR, floor * 1e3) for index, floor in floors if floor is not None]
    return _table(STEP_TIMES, rows)


def speed_up(run: Run) -> pa.Table:
    """Times faster so far, measured and from counts. Columns: token, series, ratio."""
    ratios = run.comparison.speed_up()
    expected = expected_speed_up(run.comparison.prompt_tokens, len(ratios))
    both = [(MEASURED, ratios), (EXPECTED, expected)]
    rows = [
        (token, name, ratio)
        for name, values in both
        for token, ratio in _thinned(list(enumerate(values, start=1)))
    ]
    return _table(SPEED_UP, rows)


def cache_growth(run: Run) -> pa.Table:
    """Cache after each token. Columns: token, mib."""
    steps = _thinned(run.comparison.cached.steps)
    return pa.table(
        {
            "token": [step.index + 1 for step in steps],
            "mib": [step.cache_bytes / units.MIB for step in steps],
        }
    )


def phases(run: Run) -> pa.Table:
    """Milliseconds for each token run, in prefill and in decode. Columns: phase, ms, shown."""
    timeline = run.comparison.cached
    first = timeline.time_to_first_token / timeline.prompt_tokens
    later = timeline.per_token.median
    rows = [
        (f"Prefill: {timeline.prompt_tokens:,} at once", first * 1000, units.ms(first)),
        ("Decode: one at a time", later * 1000, units.ms(later)),
    ]
    return _table(PHASES, rows)


def totals(run: Run) -> pa.Table:
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
    return _table(TOTALS, rows)


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


def _table(columns: pa.Schema, rows: Sequence[tuple]) -> pa.Table:
    return pa.table(list(zip(*rows, strict=True)) or [[]] * len(columns), schema=columns)


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
