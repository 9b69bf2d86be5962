"""The frames and sentences behind the calculator page."""

from __future__ import annotations

import json

import pytest

from kvcore.architecture import Architecture, LayerKind
from kvcore.calculator import (
    OWN_CACHE,
    SHARED_PREFIX,
    Subject,
    arithmetic,
    conformance_frame,
    entry_formula,
    layer_numbers,
    layers_frame,
    memory_frame,
    ranks_frame,
    sample_points,
    shares_frame,
    sources_frame,
    stages_frame,
    users_arithmetic,
    users_frame,
)
from kvcore.capacity import Deployment, users_at
from kvcore.catalog import MODELS
from kvcore.charts.calculator import memory_against_context, memory_bar, users_against_context
from kvcore.charts.theme import spec
from kvcore.engines import conformance
from kvcore.formats import FORMATS
from tests.test_architecture import BY_NAME, llama

GB = 10**9
GUIDE = Architecture.uniform(32, 8, 128, "Guide")
GEMMA = MODELS["Gemma-3-27B"].architecture


def deployment(architecture: Architecture = GUIDE, **more: object) -> Deployment:
    return Deployment(architecture, 80 * GB, 16 * GB, **more)


@pytest.mark.parametrize("log", [False, True])
def test_points_hold_the_ends_the_bends_and_the_choice(log):
    points = sample_points([GEMMA], 128_000, 8_000, log)
    assert points == sorted(set(points))
    assert {1, 1024, 8_000, 128_000} <= set(points)
    assert len(points) < 60


def test_points_reach_a_choice_beyond_the_axis():
    assert sample_points([GUIDE], 1_000, 5_000)[-1] == 5_000


def test_memory_frame_is_the_cache_at_every_point():
    frame = memory_frame([Subject(GUIDE), Subject(GEMMA)], 128_000, 8_000, "bf16")
    for row in frame.itertuples():
        architecture = GUIDE if row.model == "Guide" else GEMMA
        assert row.gib * 2**30 == pytest.approx(architecture.cache_bytes(row.tokens))
        assert row.low == row.gib
    assert frame[frame.here].tokens.tolist() == [8_000, 8_000]


def test_memory_frame_carries_a_range():
    unsaid = Architecture.from_config(llama(4, 8, model_type="mistral"))
    frame = memory_frame([Subject(unsaid)], 20_000, 20_000, "bf16")
    last = frame.iloc[-1]
    assert last.low * 20_000 == pytest.approx(last.gib * 4096)


def test_users_frame():
    frame = users_frame(deployment(), 128_000, 8_000, shared_prefix=4_000)
    own = frame[frame.series == OWN_CACHE].set_index("tokens").users
    shared = frame[frame.series == SHARED_PREFIX].set_index("tokens").users
    assert own[8_000] == 61
    assert shared.index.min() > 4_000
    assert (shared >= own[shared.index]).all()
    assert own.is_monotonic_decreasing


def test_shares_frame_is_laid_end_to_end():
    frame = shares_frame(deployment(overhead_bytes=2 * GB), 10, 8_000)
    assert frame.start.tolist() == pytest.approx([0, *frame.gib.cumsum()[:-1]])
    assert frame.gib.sum() * 2**30 == pytest.approx(80 * GB)


def test_layers_frame():
    frame = layers_frame(GEMMA, 8_000, "bf16")
    assert frame["layers"].tolist() == [52, 10]
    assert frame["grows by, bytes a token"].tolist() == [0, 81_920]
    assert frame["bytes at 8,000 tokens"].sum() == GEMMA.cache_bytes(8_000)


def test_layer_numbers_are_short():
    assert layer_numbers(GUIDE.layers[0]) == "0–31"
    full = next(group for group in GEMMA.layers if group.kind is LayerKind.FULL)
    assert layer_numbers(full) == "5, 11, 17, 23, 29, 35 … 59"


def test_sources_frame_names_key_and_kind_of_source():
    frame = sources_frame(Architecture.from_config(BY_NAME["Llama-4-Scout"]))
    row = frame[(frame.group == "Chunked attention") & (frame.field == "KV heads")].iloc[0]
    assert (row.value, row.source, row["where"]) == (
        "8",
        "config",
        "text_config.num_key_value_heads",
    )
    assert "class default" in set(frame.source)


def test_arithmetic_spells_out_the_field_guide():
    lines = arithmetic(GUIDE, 8_000, "bf16")
    assert lines == [
        "Full attention: 32 layers × 2 × 8 KV heads × 128 × 2 bytes × 8,000 tokens "
        "= 1,048,576,000 bytes",
        "1,048,576,000 ÷ 2³⁰ = 0.98 GiB (1.05 GB)",
        "each further token: 131,072 bytes (128.0 KiB)",
    ]


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("kv_format", ["bf16", "fp8", "nvfp4"])
def test_arithmetic_adds_up_for_every_model(name, kv_format):
    architecture = Architecture.from_config(BY_NAME[name])
    lines = arithmetic(architecture, 9_000, kv_format, 2)
    parts = [line.rsplit("= ", 1)[1] for line in lines if ": " in line and "= " in line]
    numbers = [int(part.removesuffix(" bytes").replace(",", "")) for part in parts]
    assert sum(numbers) == architecture.cache_bytes(9_000, kv_format, 2)


def test_formulas_by_format():
    group = GUIDE.layers[0]
    assert entry_formula(group, FORMATS["fp8"]) == "2 × 8 KV heads × 128 × 1 byte"
    assert entry_formula(group, FORMATS["nvfp4"]) == "1,152 bytes in nvfp4"
    latent = MODELS["DeepSeek-V3"].architecture.layers[0]
    assert entry_formula(latent, FORMATS["bf16"]) == "(512 + 64) × 2 bytes"


def test_users_arithmetic():
    lines = users_arithmetic(users_at(deployment(), 8_000), deployment())
    assert lines[-1] == "64,000,000,000 ÷ 1,048,576,000 bytes a user = 61.03, so 61 users"
    tight = Deployment(GUIDE, GB, 16 * GB)
    assert "do not fit" in users_arithmetic(users_at(tight, 8_000), tight)[-1]


def test_stages_frame_shows_the_tightest_stage():
    uneven = deployment(
        pipeline_parallel=2, layers_per_stage=(22, 10), stage_memory_bytes=(80 * GB, 24 * GB)
    )
    assert stages_frame(uneven, 8_000)["requests"].tolist() == [95, 57]


def test_ranks_frame_counts_copies():
    frame = ranks_frame(MODELS["Qwen3-30B-A3B"].architecture, 1_000, "bf16", (1, 4, 8))
    assert frame["copies"].tolist() == [1, 1, 2]


def test_conformance_frame_puts_failures_first():
    frame = conformance_frame(conformance.run())
    failed = (frame.agrees == "no").sum()
    assert failed
    assert (frame.agrees[:failed] == "no").all()
    assert frame.note[:failed].str.len().min() > 0


def test_charts_name_roles_and_no_colours():
    subjects = [Subject(GUIDE), Subject(GEMMA)]
    memory = memory_frame(subjects, 128_000, 8_000, "bf16")
    drawn = [
        memory_against_context(memory, ("Guide", "Gemma-3-27B"), log=True, ranged=True),
        memory_bar(shares_frame(deployment(), 61, 8_000)),
        users_against_context(users_frame(deployment(), 128_000, 8_000, 4_000)),
    ]
    for chart in drawn:
        text = json.dumps(spec(chart))
        assert "#" not in text
        assert "(GiB)" in text or "tokens" in text
