"""What fits, how many users, and the ceilings of bandwidth and compute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.architecture import Architecture
from kvcore.capacity import (
    WEIGHT_BITS,
    Bound,
    CapacityError,
    Deployment,
    Limit,
    Work,
    attention_operations,
    ceilings,
    memory_shares,
    shareable_bytes,
    state_slots_that_fit,
    users_at,
    users_with_prefix,
    weight_bytes,
)
from kvcore.catalog import GPUS, MODELS

GB = 10**9
GIB = 2**30
GUIDE = Architecture.uniform(32, 8, 128)


def on_80_gb(**more: object) -> Deployment:
    settings = {"architecture": GUIDE, "memory_bytes": 80 * GB, "weights_bytes": 16 * GB}
    return Deployment(**{**settings, **more})


def test_the_field_guides_61_users():
    users = users_at(on_80_gb(), 8000)
    assert users.total == 61
    assert users.bytes_per_user == 1_048_576_000
    assert users.limit is Limit.MEMORY


def test_eight_bits_double_the_users():
    assert users_at(on_80_gb(kv_format="fp8"), 8000).total == 122


def test_weights_that_do_not_fit_leave_nobody():
    users = users_at(on_80_gb(weights_bytes=81 * GB), 8000)
    assert users.total == 0
    assert not users.fits


def test_overhead_is_taken_before_users():
    """gpt-oss-120b on an H100 at 0.95: 65.965 GiB of weights and 7.48 of overhead leave 1.71."""
    deployment = Deployment(
        MODELS["gpt-oss-120b"].architecture,
        memory_bytes=int(79.11 * GIB),
        weights_bytes=int(65.965 * GIB),
        overhead_bytes=int(7.48 * GIB),
        utilisation=0.95,
    )
    assert deployment.stages[0].free_bytes / GIB == pytest.approx(1.71, abs=0.005)


def test_tensor_parallel_shares_weights_and_heads():
    two = on_80_gb(tensor_parallel=2)
    assert two.stages[0].weights_bytes == 8 * GB
    assert users_at(two, 8000).total == (72 * GB) // 524_288_000
    assert two.num_gpus == 2


def test_more_ranks_than_kv_heads_buy_no_cache():
    """Qwen3-30B-A3B has 4 KV heads: a user costs a rank as much at 8 as at 4."""
    model = MODELS["Qwen3-30B-A3B"].architecture
    each = [
        users_at(Deployment(model, 80 * GB, 0, tensor_parallel=ranks), 32_768).bytes_per_user
        for ranks in (4, 8)
    ]
    assert each == [24_576 * 32_768] * 2


def test_data_parallel_beats_tensor_parallel_for_latent_attention():
    """vllm#51454: eight copies of one latent head against eight caches."""
    model = MODELS["DeepSeek-V3"].architecture
    tensor = users_at(Deployment(model, 100 * GB, 0, tensor_parallel=8), 8192)
    data = users_at(Deployment(model, 100 * GB, 0, data_parallel=8), 8192)
    assert data.total == 8 * tensor.total


def test_pipeline_over_uneven_gpus_is_bound_by_the_fullest_stage():
    """32 layers over an 80 GB and a 24 GB card, 22 and 10 layers.

    Weights 11 and 5 GB; free 69 and 19 GB; a user 720,896,000 and 327,680,000 bytes: 95 and 57.
    """
    deployment = on_80_gb(
        pipeline_parallel=2, layers_per_stage=(22, 10), stage_memory_bytes=(80 * GB, 24 * GB)
    )
    users = users_at(deployment, 8000)
    assert [stage.free_bytes for stage in deployment.stages] == [69 * GB, 19 * GB]
    assert (users.total, users.stage) == (57, 1)


def test_an_even_split_over_uneven_gpus_wastes_the_larger():
    deployment = on_80_gb(pipeline_parallel=2, stage_memory_bytes=(80 * GB, 24 * GB))
    assert users_at(deployment, 8000).total == 16 * GB // 524_288_000


def test_a_shared_prefix_is_stored_once():
    shared = users_with_prefix(on_80_gb(), 8000, 6000)
    assert shared.shared_bytes == 6000 * 131_072
    assert shared.total == (64 * GB - 6000 * 131_072) // (2000 * 131_072)
    assert shared.total > users_at(on_80_gb(), 8000).total


def test_windows_and_state_are_not_shared():
    gemma = MODELS["Gemma-3-27B"].architecture
    assert shareable_bytes(gemma, 10_000) == 10_000 * 81_920
    qwen = MODELS["Qwen3.5-27B"].architecture
    assert shareable_bytes(qwen, 10_000) == 10_000 * 65_536


def test_state_slots_cap_the_users_of_a_hybrid():
    hybrid = Deployment(MODELS["Qwen3.5-27B"].architecture, 140 * GB, 54 * GB, state_slots=40)
    users = users_at(hybrid, 1024)
    assert (users.total, users.limit) == (40, Limit.STATE_SLOTS)
    assert state_slots_that_fit(hybrid) == 86 * GB // 153_944_064
    assert state_slots_that_fit(on_80_gb()) is None


def test_state_slots_do_not_cap_an_ordinary_model():
    assert users_at(on_80_gb(state_slots=3), 8000).total == 61


@pytest.mark.parametrize(
    ("dtype", "num_bytes"),
    [("bf16", 16_000), ("fp8", 8_000), ("q4_0", 4_500), ("nvfp4", 4_500), ("mxfp4", 4_250)],
)
def test_weights_by_dtype(dtype, num_bytes):
    assert weight_bytes(8_000, dtype) == num_bytes


def test_q4_k_takes_4_5_bits_a_weight():
    assert WEIGHT_BITS["q4_K"] == 4.5


def test_decode_ceiling_is_bytes_over_bandwidth():
    """16 GB of weights and one cache of 1,048,576,000 bytes at 3,350 GB/s."""
    found = ceilings(on_80_gb(), 1, 8000, 1000, Work(bandwidth=3350 * GB))
    assert found.bytes_per_step == 17_048_576_000
    assert found.decode_seconds == pytest.approx(17.048576 / 3350)
    assert found.tokens_per_second_per_user == pytest.approx(3350 / 17.048576)
    assert found.decode_bound is Bound.BANDWIDTH
    assert found.bandwidth_bound_from == 16


def test_decode_in_all_grows_with_users_and_each_slows():
    work = Work(bandwidth=3350 * GB)
    one, many = (ceilings(on_80_gb(), users, 8000, 1000, work) for users in (1, 61))
    assert many.tokens_per_second_total > one.tokens_per_second_total
    assert many.tokens_per_second_per_user < one.tokens_per_second_per_user


def test_decode_turns_compute_bound_with_many_short_users():
    work = Work(bandwidth=3350 * GB, flops=10**14, parameters=8 * GB, active_parameters=8 * GB)
    found = ceilings(on_80_gb(), 400, 100, 100, work)
    assert found.decode_bound is Bound.COMPUTE
    assert found.decode_seconds == pytest.approx(2 * 8e9 * 400 / 1e14)


def test_a_pipeline_keeps_each_users_pace_and_multiplies_the_total():
    work = Work(bandwidth=1000 * GB)
    one, two = (
        ceilings(on_80_gb(pipeline_parallel=stages), 4, 8000, 1000, work) for stages in (1, 2)
    )
    assert two.tokens_per_second_per_user == pytest.approx(one.tokens_per_second_per_user)
    assert two.tokens_per_second_total == pytest.approx(2 * one.tokens_per_second_total)


def test_experts_are_read_as_they_are_drawn():
    work = Work(bandwidth=GB, parameters=100, active_parameters=10)
    one, many = (ceilings(on_80_gb(), users, 1, 1, work) for users in (1, 500))
    assert one.weights_read == pytest.approx(1.6 * GB, rel=1e-6)
    assert many.weights_read == pytest.approx(16 * GB, rel=1e-6)


def test_prefill_ceiling():
    model = MODELS["Llama-3.1-8B"]
    deployment = Deployment(model.architecture, 80 * GB, 16 * GB)
    gpu = GPUS["H100 80 GB SXM"]
    work = Work(gpu.bandwidth, gpu.flops, model.parameters, model.active_parameters)
    found = ceilings(deployment, 1, 8192, 8192, work)
    attention = 32 * 4 * 32 * 128 * (8192 * 8192 // 2)
    assert attention_operations(model.architecture, 8192) == attention
    expected = (2 * model.parameters * 8192 + attention) / 989e12
    assert found.prefill_seconds == pytest.approx(expected)


def test_unknown_figures_give_no_ceiling():
    found = ceilings(on_80_gb(), 1, 8000, 1000, Work())
    assert found.decode_seconds is None
    assert found.prefill_seconds is None
    assert found.bytes_per_step


def test_memory_shares_add_up():
    deployment = on_80_gb(overhead_bytes=2 * GB, utilisation=0.9)
    shares = {each.part: each.num_bytes for each in memory_shares(deployment, 10, 8000)}
    assert sum(shares.values()) == 80 * GB
    assert shares["caches"] == 10 * 1_048_576_000
    assert shares["held back"] == 8 * GB


def test_memory_shares_name_what_is_missing():
    shares = memory_shares(on_80_gb(weights_bytes=100 * GB), 1, 8000)
    assert shares[-1].part == "missing"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tensor_parallel": 0}, "tensor_parallel"),
        ({"utilisation": 1.5}, "utilisation"),
        ({"weights_bytes": -1}, "weights_bytes"),
        ({"pipeline_parallel": 2, "layers_per_stage": (32,)}, "layers_per_stage"),
    ],
)
def test_impossible_settings_are_named(change, says):
    with pytest.raises(CapacityError, match=says):
        on_80_gb(**change)


def test_a_prefix_longer_than_the_sequence_is_refused():
    with pytest.raises(CapacityError, match="prefix"):
        users_with_prefix(on_80_gb(), 100, 200)


def test_unknown_weight_formats_are_refused():
    with pytest.raises(CapacityError, match="nvfp4"):
        weight_bytes(10, "int3")


@given(
    st.sampled_from(sorted(MODELS)),
    st.integers(1, 200_000),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
)
def test_the_users_fit_and_one_more_does_not(name, tokens, ranks, stages):
    deployment = Deployment(
        MODELS[name].architecture,
        180 * GB,
        40 * GB,
        tensor_parallel=ranks,
        pipeline_parallel=stages,
    )
    users = users_at(deployment, tokens)
    assert users.per_copy * users.bytes_per_user <= users.free_bytes
    assert (users.per_copy + 1) * users.bytes_per_user > users.free_bytes
