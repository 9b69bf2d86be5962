"""vLLM's rules: budget, groups, padding, states, ranks, versions, refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.architecture import Architecture, LayerGroup, LayerKind
from kvcore.catalog import MODELS
from kvcore.engines import vllm
from kvcore.engines.reference_models import CONFIGS, architecture
from kvcore.units import GIB

LLAMA = architecture("Llama-3.1-8B")
GEMMA = architecture("Gemma-3-27B")


class TestBudget:
    def test_is_the_share_of_the_total_less_everything_else(self):
        b = vllm.budget(80 * GIB, 20 * GIB, GIB, utilisation=0.9)
        assert b.requested_bytes == 72 * GIB
        assert b.available_bytes == 51 * GIB

    def test_rounds_the_share_up(self):
        assert vllm.budget(1001, 0, utilisation=0.5).requested_bytes == 501

    def test_counts_graphs_since_0_21_only(self):
        new = vllm.budget(80 * GIB, 20 * GIB, GIB, utilisation=0.9, version="0.21.0")
        old = vllm.budget(80 * GIB, 20 * GIB, GIB, utilisation=0.9, version="0.20.2")
        assert old.available_bytes - new.available_bytes == GIB
        assert not old.graphs_counted

    def test_default_utilisation_changed_in_0_33(self):
        assert vllm.default_utilisation("0.33") == 0.92
        assert vllm.default_utilisation("0.32.1") == 0.90

    @pytest.mark.parametrize("share", [0, -0.1, 1.01])
    def test_refuses_a_share_outside_zero_and_one(self, share):
        with pytest.raises(vllm.PlanError, match="between 0 and 1"):
            vllm.budget(GIB, 0, utilisation=share)


class TestGroups:
    def test_short_groups_are_padded_to_one_size(self):
        p = vllm.plan(GEMMA, 40 * GIB, 131_072)
        full = [g for g in p.groups if g.kind == "full"]
        sliding = [g for g in p.groups if g.kind == "sliding_window"]
        assert [g.layers for g in full] == [10]
        assert sorted(g.layers for g in sliding) == [8, 8, 9, 9, 9, 9]
        assert sum(g.padding_layers for g in p.groups) == 8
        assert {g.blocks_per_request for g in sliding} == {577}
        assert full[0].blocks_per_request == 8192

    def test_nearly_equal_kinds_share_the_larger_size(self):
        """12 sliding and 13 full layers: one group of 13 each, not two groups of 12."""
        a = mixed(full=13, sliding=12)
        p = vllm.plan(a, 10 * GIB, 8192)
        assert [g.layers + g.padding_layers for g in p.groups] == [13, 13]

    def test_one_and_a_half_times_as_many_is_split(self):
        p = vllm.plan(mixed(full=8, sliding=12), 10 * GIB, 8192)
        assert [g.layers for g in p.groups if g.kind == "sliding_window"] == [6, 6]
        assert sum(g.padding_layers for g in p.groups) == 4

    def test_full_layers_of_different_width_share_one_group(self):
        a = Architecture(
            "two widths",
            (full_layers(2, 8, 128, first=0), full_layers(2, 4, 128, first=2)),
            num_layers=4,
        )
        p = vllm.plan(a, GIB, 4096)
        assert len(p.groups) == 1
        assert p.bytes_per_block == 16 * a.growth_bytes()
        assert p.num_blocks == GIB // (16 * a.growth_bytes())

    def test_smaller_pages_get_more_tokens_per_block(self):
        """Gemma 4: the full layers' entries are half as wide, so their blocks hold 32 tokens."""
        p = vllm.plan(architecture("Gemma-4-31B"), 80 * GIB, 262_144)
        assert {g.kind: g.block_size for g in p.groups} == {"full": 32, "sliding_window": 16}
        assert len({g.bytes_per_block for g in p.groups}) == 1

    def test_pages_that_do_not_divide_are_padded(self):
        a = Architecture(
            "odd widths",
            (full_layers(2, 3, 128, first=0), windowed_layers(2, 4, 128, 1024, first=2)),
            num_layers=4,
        )
        p = vllm.plan(a, GIB, 8192)
        assert {g.bytes_per_block for g in p.groups} == {2 * 16 * 4 * 128 * 2 * 2}
        padded = {each.term: each.bytes for each in p.overheads}["pages padded to one size"]
        assert padded == 2 * 512 * 16 * (4 - 3) * 128 * 2 * 2

    def test_encoder_keys_are_a_group_of_their_own(self):
        p = vllm.plan(architecture("Whisper-large-v3"), 10 * GIB, 448, kv_format="fp16")
        assert {g.kind: g.blocks_per_request for g in p.groups} == {
            "full": 28,
            "cross_attention": 94,
        }

    def test_index_keys_are_fp8_beside_bf16_latents(self):
        a = architecture("DeepSeek-V3.2")
        assert vllm.plan(a, 10 * GIB, 8192).bytes_per_block == 16 * 61 * (576 * 2 + 132)
        fp8 = vllm.plan(a, 10 * GIB, 8192, kv_format="fp8")
        assert fp8.bytes_per_block == 16 * 61 * (656 + 132)

    @pytest.mark.parametrize("name", [n for n in CONFIGS if n != "GPT-2"])
    @pytest.mark.parametrize("prefix_caching", [True, False])
    def test_what_a_request_reserves_is_its_need_and_the_named_terms(self, name, prefix_caching):
        p = vllm.plan(
            architecture(name),
            None,
            30_000,
            num_blocks=1000,
            prefix_caching=prefix_caching,
            speculative_tokens=2,
            max_num_batched_tokens=2048,
        )
        assert p.bytes_per_request == p.needed_bytes + sum(each.bytes for each in p.overheads)
        assert all(each.bytes > 0 for each in p.overheads)
        assert p.bytes_per_request == p.bytes_per_block * p.blocks_per_request


class TestStates:
    """Hybrids: 1.4 of the reference, and the block sizes its logs print."""

    @pytest.mark.parametrize(
        ("model", "kv_format", "ranks", "drafts", "block_size"),
        [
            ("Qwen3.5-27B", "bf16", 1, 0, 784),
            ("Qwen3.5-27B", "fp8", 1, 0, 1568),
            ("Qwen3.5-27B", "fp8", 2, 3, 1600),
            ("Qwen3.5-35B-A3B", "fp8", 1, 0, 2096),
        ],
    )
    def test_attention_blocks_grow_to_the_size_of_a_state(
        self, model, kv_format, ranks, drafts, block_size
    ):
        p = vllm.plan(
            architecture(model),
            20 * GIB,
            32_768,
            kv_format=kv_format,
            tensor_parallel=ranks,
            speculative_tokens=drafts,
        )
        assert p.block_size == block_size
        assert p.raised_block_size
        assert p.state_page_bytes >= p.state_page_used

    @pytest.mark.parametrize(
        ("prefix_caching", "drafts", "states"),
        [
            (False, 0, 1),
            (True, 0, 2),
            (False, 3, 4),
            (True, 3, 5),
        ],
    )
    def test_state_blocks_per_request(self, prefix_caching, drafts, states):
        p = vllm.plan(
            architecture("Qwen3.5-27B"),
            20 * GIB,
            32_768,
            prefix_caching=prefix_caching,
            speculative_tokens=drafts,
        )
        counts = {g.blocks_per_request for g in p.groups if g.kind == "recurrent"}
        assert counts == {states}
        assert p.state_slots == p.num_blocks // (3 * states)

    def test_the_models_own_draft_layer_joins_the_full_layers(self):
        """16 full layers and one of the drafter; 48 states then need three padding layers."""
        p = vllm.plan(
            architecture("Qwen3.5-27B"), 20 * GIB, 32_768, speculative_tokens=3, kv_format="fp8"
        )
        assert sorted((g.kind, g.layers) for g in p.groups) == [
            ("full", 17),
            ("recurrent", 16),
            ("recurrent", 16),
            ("recurrent", 16),
        ]
        assert p.padding == ((3, 48),)

    @pytest.mark.parametrize(("version", "block_size"), [("0.11", 960), ("0.28", 1024)])
    def test_latent_attention_aligns_to_longer_runs(self, version, block_size):
        """vllm-project/vllm#28228 prints 960; later kernels need whole runs of 128 tokens."""
        p = vllm.plan(
            architecture("Kimi-Linear-48B-A3B"),
            GIB,
            4096,
            tensor_parallel=2,
            version=version,
        )
        assert p.block_size == block_size

    def test_a_larger_block_size_is_the_grain_of_the_alignment(self):
        """A hybrid asked for 816 gets 1,632, the next multiple (vLLM 0.28.0)."""
        a = architecture("Qwen3.5-27B")
        smallest = vllm.plan(a, 20 * GIB, 4096).block_size
        assert vllm.plan(a, 20 * GIB, 4096, block_size=smallest - 16).block_size == 2 * (
            smallest - 16
        )

    def test_a_model_of_states_only(self):
        attention_free = Architecture(
            "states", tuple(g for g in architecture("Qwen3.5-27B").layers if g.state), num_layers=64
        )
        p = vllm.plan(attention_free, GIB, 32_768, prefix_caching=False)
        assert p.num_blocks == GIB // (48 * 3_207_168)
        assert p.blocks_per_request == 1


class TestParallelism:
    def test_few_kv_heads_are_copied(self):
        """Qwen3-30B-A3B has four KV heads: TP4 and TP8 cost a rank the same."""
        a = architecture("Qwen3-30B-A3B")
        blocks = {
            ranks: vllm.plan(a, 10 * GIB, 8192, tensor_parallel=ranks).num_blocks
            for ranks in (1, 2, 4, 8)
        }
        assert blocks[4] == blocks[8] == 10 * GIB // (16 * 24_576)
        assert blocks[2] == 10 * GIB // (16 * 49_152)
        assert blocks[1] == 10 * GIB // (16 * 98_304)

    def test_latent_attention_is_whole_on_every_rank(self):
        a = architecture("DeepSeek-V3")
        one, eight = (vllm.plan(a, 10 * GIB, 8192, tensor_parallel=n) for n in (1, 8))
        assert one.num_blocks == eight.num_blocks == 10 * GIB // (16 * 70_272)
        assert eight.cluster_bytes_per_request == 8 * one.cluster_bytes_per_request

    def test_the_poorest_tensor_rank_decides(self):
        p = vllm.plan(LLAMA, [10 * GIB, 8 * GIB], 8192, tensor_parallel=2)
        assert p.num_blocks == 8 * GIB // (16 * 65_536) == 8192
        assert p.limiting_rank.tensor_rank == 1

    def test_uneven_pipeline_takes_the_minimum_over_stages(self):
        """48 layers over 10 and 20 GiB: half each wastes the larger GPU, 16 + 32 does not."""
        a = architecture("Qwen3-30B-A3B")
        even = vllm.plan(a, [10 * GIB, 20 * GIB], 8192, pipeline_parallel=2)
        split = vllm.plan(a, [10 * GIB, 20 * GIB], 8192, layers_per_stage=(16, 32))
        assert even.pipeline_parallel == split.pipeline_parallel == 2
        assert [rank.num_blocks for rank in even.ranks] == [13_653, 27_306]
        assert even.num_blocks == 13_653
        assert split.num_blocks == 20_480
        assert [rank.num_blocks for rank in split.ranks] == [20_480, 20_480]

    def test_more_memory_sizes_than_tensor_ranks_are_stages(self):
        p = vllm.plan(LLAMA, [8 * GIB] * 4, 8192, tensor_parallel=2)
        assert p.pipeline_parallel == 2
        assert [(rank.stage, rank.tensor_rank) for rank in p.ranks] == [
            (0, 0),
            (0, 1),
            (1, 0),
            (1, 1),
        ]
        assert p.num_blocks == 8 * GIB // (16 * 16 * 8 * 128 * 2)

    def test_groups_of_a_pipeline_are_formed_over_the_whole_model(self):
        """Gemma-3-27B over two stages: every stage has layers of every group."""
        p = vllm.plan(GEMMA, [10 * GIB, 10 * GIB], 32_768, pipeline_parallel=2)
        assert sum(rank.layers for rank in p.ranks) == 62
        assert all(rank.bytes_per_block == 5 * 16 * 8192 for rank in p.ranks)

    def test_a_pool_of_given_size_is_weighed_on_the_rank_that_limits(self):
        sizes = {"layers_per_stage": (10, 22), "num_blocks": 100}
        assert vllm.plan(LLAMA, [GIB, GIB], 8192, **sizes).limiting_rank.stage == 1
        unknown = vllm.plan(LLAMA, None, 8192, pipeline_parallel=2, **sizes)
        assert unknown.limiting_rank.stage == 1
        assert unknown.pool_bytes == 100 * 16 * 22 * 4096

    def test_a_stage_that_cannot_hold_one_request_does_not_fit(self):
        p = vllm.plan(LLAMA, [GIB, GIB // 4], 8192, pipeline_parallel=2)
        assert not p.fits
        assert vllm.plan(LLAMA, [GIB, GIB], 8192, pipeline_parallel=2).fits


class TestVersions:
    def test_the_token_count_changed_meaning(self):
        """Reference 1.4: 0.20.1rc1.dev16 old, 0.20.2rc1.dev129 new."""
        a = architecture("Qwen3.5-27B")
        settings = {"num_blocks": 1487, "prefix_caching": False}
        old = vllm.plan(a, None, 32_768, version="0.20.1rc1.dev16+gabc", **settings)
        new = vllm.plan(a, None, 32_768, version="v0.20.2rc1.dev129", **settings)
        assert old.kv_cache_tokens == 1487 // 4 * 784 == 290_864
        assert new.kv_cache_tokens == int(1487 / 45 * 32_768)
        assert old.max_concurrency == new.max_concurrency

    def test_two_batches_in_flight_need_more_beside_a_window(self):
        """vllm-project/vllm#49878: 45.79 GiB before, 70.79 GiB after."""
        a = architecture("Gemma-4-31B")

        def needed(batches: int) -> float:
            p = vllm.plan(
                a,
                None,
                262_144,
                num_blocks=1,
                max_num_batched_tokens=32_768,
                concurrent_batches=batches,
            )
            return p.bytes_per_request / GIB

        assert needed(1) == pytest.approx(45.79, abs=0.005)
        assert needed(2) == pytest.approx(70.79, abs=0.005)

    def test_the_cpu_backends_blocks_hold_128_tokens(self):
        """Measured with vLLM 0.32.0: 2 GiB, 23,040 bytes per token, 93,184 tokens, 22.75×."""
        a = Architecture.uniform(30, 3, 64)
        p = vllm.plan(
            a, 2 * GIB, 4096, block_size=vllm.CPU_BLOCK_SIZE, version="0.32", device="CPU"
        )
        assert (p.num_blocks, p.kv_cache_tokens, p.max_concurrency) == (728, 93_184, 22.75)
        assert vllm.startup_lines(p)[-1] == (
            "CPU KV cache size: 93,184 tokens, Maximum concurrency for 4,096 tokens per request: "
            "22.75x"
        )


class TestLines:
    def test_a_hybrids_lines(self):
        p = vllm.plan(
            architecture("Qwen3.5-35B-A3B"),
            int(5.98 * GIB),
            131_072,
            kv_format="fp8",
            version="0.24",
        )
        assert vllm.startup_lines(p) == [
            "Setting attention block size to 2096 tokens to ensure that attention page size is >= "
            "mamba page size.",
            "Available KV cache memory: 5.98 GiB",
            "GPU KV cache size: 567,978 tokens",
            "Maximum concurrency for 131,072 tokens per request: 4.33x",
        ]

    def test_padding_is_announced(self):
        lines = vllm.startup_lines(vllm.plan(GEMMA, 40 * GIB, 131_072))
        assert "Add 8 padding layers, may waste at most 15.38% KV cache memory" in lines

    def test_a_refusal_names_the_longest_context(self):
        longest = vllm.longest_context(LLAMA, GIB, 131_072)
        assert longest == 8192
        lines = vllm.startup_lines(vllm.plan(LLAMA, GIB, 131_072), longest)
        assert "(16.00 GiB KV cache is needed" in lines[-1]
        assert "memory (1.00 GiB)" in lines[-1]
        assert lines[-1].endswith("the estimated maximum model length is 8192.")

    def test_longest_context_is_the_last_that_fits(self):
        memory = 3 * GIB
        longest = vllm.longest_context(GEMMA, memory, 131_072)
        assert vllm.plan(GEMMA, memory, longest).fits
        assert not vllm.plan(GEMMA, memory, longest + 1).fits

    def test_longest_context_of_too_little_memory_is_zero(self):
        assert vllm.longest_context(LLAMA, 1000, 4096) == 0


class TestRefusals:
    @pytest.mark.parametrize(
        ("available", "settings", "message"),
        [
            (0, {}, "No memory is left"),
            (-5 * GIB, {}, r"No memory is left for the cache \(-5.00 GiB\)"),
            (GIB, {"max_model_len": 0}, "max_model_len must be"),
            (GIB, {"tensor_parallel": 0}, "tensor_parallel must be"),
            (GIB, {"block_size": True}, "block_size must be"),
            (GIB, {"speculative_tokens": -1}, "Speculative tokens"),
            (GIB, {"version": "main"}, "is not a version"),
            (GIB, {"tensor_parallel": 10**9}, "ranks"),
            ([GIB] * 3, {"tensor_parallel": 2}, "ranks need as many memory sizes"),
            (GIB, {"pipeline_parallel": 40}, "cannot be split"),
            ([GIB, GIB], {"layers_per_stage": (10, 10)}, "must share 32 layers"),
            (None, {}, "memory for the cache is missing"),
        ],
    )
    def test_say_what_is_wrong(self, available, settings, message):
        with pytest.raises(vllm.PlanError, match=message):
            vllm.plan(LLAMA, available, **{"max_model_len": 8192, **settings})

    def test_a_model_without_a_cache(self):
        empty = Architecture("none", (LayerGroup(LayerKind.NONE, 4),), num_layers=4)
        with pytest.raises(vllm.PlanError, match="keeps no cache"):
            vllm.plan(empty, GIB, 4096)

    def test_compressed_attention_is_not_guessed(self):
        group = LayerGroup(LayerKind.LATENT, 4, latent_rank=512, tokens_per_entry=4)
        with pytest.raises(vllm.PlanError, match="layout of its own"):
            vllm.plan(Architecture("v4", (group,), num_layers=4), GIB, 4096)


@given(
    name=st.sampled_from(sorted(CONFIGS)),
    memory=st.integers(1, 2**44),
    length=st.integers(1, 2_000_000),
    batch=st.integers(1, 65_536),
    ranks=st.sampled_from([1, 2, 3, 4, 8]),
    kv_format=st.sampled_from(["bf16", "fp8", "nvfp4", "int4_per_token_head"]),
    drafts=st.integers(0, 5),
    prefix_caching=st.booleans(),
    version=st.sampled_from(["0.6", "0.19", "0.33"]),
)
def test_any_plan_is_sound(
    name, memory, length, batch, ranks, kv_format, drafts, prefix_caching, version
):
    a = architecture(name)
    p = vllm.plan(
        a,
        memory,
        length,
        kv_format=kv_format,
        tensor_parallel=ranks,
        max_num_batched_tokens=batch,
        speculative_tokens=drafts,
        prefix_caching=prefix_caching,
        version=version,
    )
    for value in (p.num_blocks, p.kv_cache_tokens, p.bytes_per_request, p.bytes_per_block):
        assert isinstance(value, int)
        assert value >= 0
    assert p.pool_bytes <= memory < (p.num_blocks + 1) * p.bytes_per_block
    assert p.bytes_per_request >= p.needed_bytes > 0
    assert p.max_concurrency == p.num_blocks / p.blocks_per_request
    assert p.fits is (p.max_concurrency >= 1)
    draft_layers = len(p.groups[0].kind.split(" + ")) * a.draft_layers if drafts else 0
    stored = sum(g.count for g in a.layers if g.kind not in (LayerKind.SHARED, LayerKind.NONE))
    assert sum(g.layers for g in p.groups) >= stored
    assert sum(g.layers for g in p.groups) <= stored + max(draft_layers, 2 * a.draft_layers)
    assert vllm.startup_lines(p)


def full_layers(count: int, heads: int, width: int, first: int) -> LayerGroup:
    return LayerGroup(
        LayerKind.FULL, count, heads, width, width, layer_ids=tuple(range(first, first + count))
    )


def windowed_layers(count: int, heads: int, width: int, window: int, first: int) -> LayerGroup:
    return LayerGroup(
        LayerKind.SLIDING_WINDOW,
        count,
        heads,
        width,
        width,
        window=window,
        layer_ids=tuple(range(first, first + count)),
    )


def mixed(full: int, sliding: int) -> Architecture:
    return Architecture(
        "mixed",
        (full_layers(full, 8, 64, 0), windowed_layers(sliding, 8, 64, 128, full)),
        num_layers=full + sliding,
    )


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Gemma-3-27B", "DeepSeek-V3", "Qwen3.5-27B"])
@pytest.mark.parametrize("stages", [1, 2, 5])
@pytest.mark.parametrize("drafts", [0, 2])
def test_what_a_stage_reserves_is_its_need_and_the_terms_that_add_to_it(name, stages, drafts):
    planned = vllm.plan(
        MODELS[name].architecture,
        200 * GIB,
        32_768,
        pipeline_parallel=stages,
        speculative_tokens=drafts,
    )
    assert all(each.bytes > 0 for each in planned.overheads)
    added = sum(each.bytes for each in planned.overheads)
    assert planned.needed_bytes + added == planned.bytes_per_request
    if not drafts:
        assert vllm.SPECULATION not in {each.term for each in planned.overheads}
