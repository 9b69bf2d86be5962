"""Configs and log lines in links."""

from __future__ import annotations

import base64
import gzip
import json
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.architecture import Architecture
from kvcore.config_json import ConfigError, pack, pack_text, unpack, unpack_text
from tests.shared_data import shared_data
from tests.test_architecture import BY_NAME


@pytest.mark.parametrize("name", BY_NAME)
def test_a_packed_config_reads_the_same(name):
    packed = pack(BY_NAME[name])
    assert packed
    original, copy = (Architecture.from_config(each) for each in (BY_NAME[name], unpack(packed)))
    assert copy.layers == original.layers


def test_every_real_config_fits_a_link_and_reads_the_same():
    real = json.loads(gzip.decompress(shared_data("model_configs.json.gz").read_bytes()))
    for name, config in real.items():
        packed = pack(config)
        assert packed, name
        copy, original = Architecture.from_config(unpack(packed)), Architecture.from_config(config)
        assert copy.layers == original.layers, name
        assert copy.kv_dtype == original.kv_dtype, name


def test_what_does_not_fit_is_not_packed():
    noise = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000))
    assert pack({"model_type": "llama", "noise": noise}) is None


@given(st.text(max_size=400))
def test_text_comes_back(text):
    packed = pack_text(text)
    expected = text.encode("utf-8", "replace").decode("utf-8")
    assert unpack_text(packed) == expected


@given(st.text(max_size=5000))
def test_any_link_is_text_or_a_refusal(packed):
    try:
        unpack(packed)
    except ConfigError as refusal:
        assert "link" in str(refusal) or "object" in str(refusal)


def test_a_cut_link_is_refused():
    packed = pack(BY_NAME["Gemma-3-27B"])
    with pytest.raises(ConfigError, match="cut off"):
        unpack(packed[:-8])


def test_a_bomb_is_refused():
    bomb = base64.urlsafe_b64encode(zlib.compress(b"0" * 2_000_000, 9)).decode()
    with pytest.raises(ConfigError, match="damaged"):
        unpack_text(bomb)
