"""Archives that burst, JSON that nests, files that never end: a sentence each, at once."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import zipfile
import zlib

import pytest

from kvcore.config_json import ConfigError, pack, parse, unpack, unpack_text
from kvcore.config_json.identify import DEEPEST
from kvcore.costs import read_usage
from kvcore.engines.logs import LogError, read_log
from kvcore.paging.traces import MAX_BYTES, TraceError, read_trace

DEPTHS = (DEEPEST + 10, 500, 950, 5_000, 200_000)


def nested(depth: int, kind: str = "list") -> str:
    if kind == "list":
        return '{"model_type": "llama", "a": ' + "[" * depth + "]" * depth + "}"
    return '{"model_type": "llama", "a": ' + '{"a": ' * depth + "1" + "}" * depth + "}"


def packed(text: str) -> str:
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def zip_bomb(size: int = 60_000_000) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("usage.csv", b"0" * size)
    return held.getvalue()


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("kind", ["list", "object"])
@pytest.mark.parametrize("way_in", [parse, lambda text: unpack(packed(text))], ids=["text", "link"])
def test_deep_json_is_refused_as_a_config(depth, kind, way_in):
    with pytest.raises(ConfigError):
        way_in(nested(depth, kind))


def test_a_config_as_deep_as_any_real_one_is_kept():
    config = parse(nested(10))
    assert unpack(pack(config)) == config
    json.dumps(config, indent=2)


@pytest.mark.parametrize("digits", [4_301, 100_000])
@pytest.mark.parametrize("way_in", [parse, lambda text: unpack(packed(text))], ids=["text", "link"])
def test_endless_numbers_are_refused(digits, way_in):
    with pytest.raises(ConfigError):
        way_in('{"num_hidden_layers": ' + "9" * digits + "}")


def test_a_link_that_bursts_is_refused():
    bomb = packed("[" * 2_900_000)
    assert len(bomb) <= 4_000
    with pytest.raises(ConfigError, match="damaged"):
        unpack_text(bomb)


@pytest.mark.parametrize("squeeze", [zip_bomb, lambda: gzip.compress(b"0" * 60_000_000)])
def test_archives_of_usage_are_not_unpacked(squeeze):
    data = squeeze()
    assert len(data) < 1_000_000
    usage = read_usage(data, "usage.csv")
    assert len(usage.frame) == 0
    assert "archive" in usage.rejected[0][1]


@pytest.mark.parametrize("depth", [500, 950, 5_000, 200_000])
def test_deep_json_is_refused_as_usage_and_good_lines_still_count(depth):
    good = json.dumps(
        {
            "model": "claude-sonnet-4-5",
            "usage": {"input_tokens": 10, "output_tokens": 5},
            "timestamp": "2026-10-01T00:00:00Z",
        }
    )
    deep = '{"usage": ' + "[" * depth + "]" * depth + "}"
    usage = read_usage(f"{good}\n{deep}\n".encode(), "responses.jsonl")
    assert len(usage.frame) == 1
    assert [line for line, _ in usage.rejected] == [2]


def test_a_trace_that_bursts_is_refused():
    bomb = gzip.compress(b"0" * (MAX_BYTES + 1))
    assert len(bomb) < 1_000_000
    with pytest.raises(TraceError, match="MiB|MB"):
        read_trace(bomb)


def test_a_trace_in_another_archive_is_refused():
    for data in (zip_bomb(1_000_000), bz2.compress(b"0" * 1_000_000)):
        with pytest.raises(TraceError):
            read_trace(data)


@pytest.mark.parametrize("depth", [500, 950, 5_000])
def test_deep_json_is_refused_as_a_trace(depth):
    with pytest.raises(TraceError):
        read_trace(f'{{"timestamp": 0, "input_length": {"[" * depth}{"]" * depth}}}\n'.encode())


def test_a_log_without_end_is_refused():
    with pytest.raises(LogError, match="limit"):
        read_log("x" * 5_000_001)
