"""Langfuse observations: usage under free keys, so aliases are mapped and totals say what adds up.

Langfuse's own integrations store classes that add up (`input` is what was not cached); some
gateways store the inclusive count. The stated `total` tells them apart where there is one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from kvcore.costs.exports.layout import Format, Layout, NotUsage, Record, RowProblem, first
from kvcore.costs.exports.text import parsed_cell

_INPUT = ("input", "prompt_tokens", "input_tokens", "promptTokens", "inputTokens", "prompt")
_OUTPUT = (
    "output",
    "completion_tokens",
    "output_tokens",
    "completionTokens",
    "outputTokens",
    "completion",
)
_TOTAL = ("total", "total_tokens", "totalTokens")
_READ = re.compile(r"(?i)cache.?_?(read|hit)|cached(?!.*(creat|writ))")
_WRITE = re.compile(r"(?i)cache.*(creat|writ)|(creat|writ).*cache|ephemeral_(5m|1h)")
_LONG = re.compile(r"(?i)1h|12h|60m|long")
_SPLIT = re.compile(r"(?i)5m|30m|1h|12h|ephemeral")


def _rows(row: Record) -> Iterable[Record]:
    usage = parsed_cell(first(row, "usageDetails", "usage_details", "usagedetails", "usage"))
    if not isinstance(usage, Mapping) or not usage:
        if str(row.get("type", "GENERATION")).upper() != "GENERATION":
            raise NotUsage("not a call of a model")
        usage = {
            "input": first(row, "promptTokens", "inputUsage", "prompt_tokens", "input_tokens"),
            "output": first(row, "completionTokens", "outputUsage", "completion_tokens"),
        }
        if usage["input"] is None and usage["output"] is None:
            raise NotUsage("an observation without usage")
    counts = additive_counts(usage)
    costs = parsed_cell(first(row, "costDetails", "cost_details", "costdetails"))
    cost = costs.get("total") if isinstance(costs, Mapping) else None
    yield {
        **counts,
        "at": first(row, "startTime", "start_time", "starttime", "timestamp"),
        "model": first(
            row,
            "model",
            "providedModelName",
            "provided_model_name",
            "providedmodelname",
            "internalModelId",
        ),
        "cost": cost if cost is not None else first(row, "totalCost", "calculatedTotalCost"),
        "identity": row.get("id"),
        "session": first(row, "sessionId", "session_id", "traceId", "trace_id", "traceid"),
    }


def additive_counts(usage: Mapping[str, object]) -> dict[str, object]:
    """Exclusive counts from Langfuse's free keys; keys of no known kind follow their direction.

    Raises RowProblem where a count is no whole number or where more is cached than was sent.
    """
    sums: Counter[str] = Counter()
    for key, value in usage.items():
        if value is not None:
            sums[_kind(str(key))] += _number(value)
    if sums["write"] > sums["write_short"] + sums["write_long"]:
        sums["write_short"] = sums["write"] - sums["write_long"]
    held = _held_in_input(sums, plain_names="prompt_tokens" in usage)
    if held > sums["input"]:
        raise RowProblem(f"cache reads and writes ({held:,}) exceed the input ({sums['input']:,})")
    return {
        "input": sums["input"] - held + sums["more_input"] if "input" in sums else None,
        "cache_read": sums["cache_read"],
        "write_short": sums["write_short"],
        "write_long": sums["write_long"],
        "output": sums["output"] + _output_beside(sums) if "output" in sums else None,
    }


def _kind(key: str) -> str:
    if key in _INPUT:
        return "input"
    if key in _OUTPUT:
        return "output"
    if key in _TOTAL:
        return "total"
    if _WRITE.search(key):
        if not _SPLIT.search(key):
            return "write"
        return "write_long" if _LONG.search(key) else "write_short"
    if _READ.search(key):
        return "cache_read"
    return "more_output" if key.startswith(("output", "completion")) else "more_input"


def _held_in_input(sums: Mapping[str, int], plain_names: bool) -> int:
    """How much of the stated input was read from or written to the cache.

    A total says it: nothing where all parts add up to it, all where input and output alone do,
    the writes where only they are counted twice. Without a total, an API's own name for its
    inclusive count says it.
    """
    read, written = sums["cache_read"], sums["write_short"] + sums["write_long"]
    if "total" not in sums:
        return read + written if plain_names else 0
    rest = sums["total"] - sums["input"] - sums["output"] - sums["more_input"]
    for beside, held in ((read + written, 0), (0, read + written), (read, written)):
        if rest in (beside, beside + sums["more_output"]):
            return held
    return 0


def _output_beside(sums: Mapping[str, int]) -> int:
    """Output counted apart, such as reasoning, unless the total shows that `output` holds it."""
    if "total" not in sums:
        return sums["more_output"]
    parts = ("input", "cache_read", "write_short", "write_long", "more_input", "output")
    without = sum(sums[part] for part in parts)
    return 0 if sums["total"] in (without, sums["input"] + sums["output"]) else sums["more_output"]


def _number(value: object) -> int:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise RowProblem("a usage count is not a number")
    if value < 0 or value == float("inf") or (isinstance(value, float) and value % 1):
        raise RowProblem("a usage count is negative or not a whole number")
    return int(value)


OBSERVATIONS = Layout(
    Format.LANGFUSE,
    table_signs=(
        frozenset({"usagedetails"}),
        frozenset({"usage_details"}),
        frozenset({"traceid", "totalcost"}),
    ),
    object_sign=lambda row: (
        "usageDetails" in row or "usage_details" in row or ("traceId" in row and "startTime" in row)
    ),
    records=_rows,
    array="data",
)


LAYOUTS = (OBSERVATIONS,)
