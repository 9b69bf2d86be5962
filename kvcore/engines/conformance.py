"""The reference set: figures that engines printed, and what the rules here predict for them.

Every case runs live. Most must agree within what printing rounds away; a few are known not to be
reproduced, and say so. Sources are public issues, by repository and number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from kvcore.architecture import Architecture
from kvcore.engines import llamacpp, sglang, vllm
from kvcore.engines.reference_models import architecture
from kvcore.units import GIB, MIB

TWO_DECIMALS = 0.005
THREE_DECIMALS = 0.0005


class Basis(StrEnum):
    """Where the figure to be reproduced comes from."""

    LOG = "engine log"
    ARCHITECTURE = "architecture"
    DERIVED = "derived from the rules"


class Expected(StrEnum):
    """What a case is expected to do."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"


@dataclass(frozen=True)
class Case:
    """One figure to reproduce.

    source: repository#issue, or the config the values come from. plain: what memory ÷ bytes per
    token, without the engine's rules, would say; None where that is the prediction itself.
    """

    name: str
    engine: str
    basis: Basis
    source: str
    model: str
    setting: str
    figure: str
    unit: str
    logged: float
    tolerance: float
    predict: Callable[[], float]
    plain: Callable[[], float] | None = None
    expected: Expected = Expected.REPRODUCED
    note: str = ""


@dataclass(frozen=True)
class Result:
    """A case after it ran: agrees says whether prediction and log are within tolerance."""

    case: Case
    predicted: float | None
    plain: float | None
    agrees: bool
    seconds: float
    error: str = ""

    @property
    def as_expected(self) -> bool:
        return self.agrees is (self.case.expected is Expected.REPRODUCED)


def run(cases: tuple[Case, ...] | None = None) -> list[Result]:
    """Run the cases (all by default). A prediction that fails is a result, not an exception."""
    return [_run(case) for case in (CASES if cases is None else cases)]


def _run(case: Case) -> Result:
    start = time.perf_counter()
    try:
        predicted = case.predict()
        plain = case.plain() if case.plain else None
    except Exception as error:  # a broken rule must show as a failed row
        return Result(case, None, None, False, time.perf_counter() - start, str(error))
    agrees = abs(predicted - case.logged) <= case.tolerance + 1e-9
    return Result(case, predicted, plain, agrees, time.perf_counter() - start)


def _pool_gib(a: Architecture, **settings: object) -> float:
    """GiB of a pool with a given number of blocks."""
    return vllm.plan(a, None, **settings).pool_bytes / GIB


def _blocks(a: Architecture, gib: float, length: int, **settings: object) -> vllm.Plan:
    """A plan from memory as printed."""
    return vllm.plan(a, int(gib * GIB), length, **settings)


def _request_gib(a: Architecture, length: int, **settings: object) -> float:
    return vllm.plan(a, None, length, num_blocks=1, **settings).bytes_per_request / GIB


def _plain_gib(a: Architecture, tokens: int, kv_format: str = "bf16") -> float:
    return a.cache_bytes(tokens, kv_format) / GIB


def _log(row: int | str, engine: str, source: str, model: str, setting: str) -> Callable[..., Case]:
    """A maker of cases that share a source: one log, several figures."""

    def case(
        figure: str,
        unit: str,
        logged: float,
        tolerance: float,
        predict: Callable[[], float],
        **more: object,
    ) -> Case:
        return Case(
            f"{row} {figure}",
            engine,
            Basis.LOG,
            source,
            model,
            setting,
            figure,
            unit,
            logged,
            tolerance,
            predict,
            **more,
        )

    return case


def _vllm_cases() -> Iterator[Case]:
    llama = architecture("Llama-3.1-8B")
    for row, length, blocks, pool, users, peak in (
        (1, 20_000, 1952, 3.81, 1.56, 17.06),
        (2, 29_000, 1478, 2.89, 0.82, 17.98),
    ):
        case = _log(
            row,
            "vLLM",
            "vllm-project/vllm#10517",
            "Llama-3.1-8B",
            f"fp16, RTX 3090 (23.58 GiB), utilisation 0.90, length {length:,}",
        )
        yield case(
            "memory budget",
            "GiB",
            pool,
            TWO_DECIMALS,
            lambda peak=peak: (
                vllm.budget(
                    int(23.58 * GIB), int((peak + 0.35) * GIB), utilisation=0.9, version="0.6"
                ).available_bytes
                / GIB
            ),
        )
        yield case(
            "pool of the printed blocks",
            "GiB",
            pool,
            TWO_DECIMALS,
            lambda blocks=blocks, length=length: _pool_gib(
                llama, max_model_len=length, num_blocks=blocks
            ),
        )
        yield case(
            "concurrency",
            "×",
            users,
            TWO_DECIMALS,
            lambda blocks=blocks, length=length: (
                vllm.plan(llama, None, length, num_blocks=blocks).max_concurrency
            ),
        )

    case = _log(3, "vLLM", "LMCache/LMCache#1739", "Qwen3-14B", "bf16, TP1, length 32,768")
    qwen14 = architecture("Qwen3-14B")
    yield case("tokens", "tokens", 42_656, 0, lambda: _blocks(qwen14, 6.51, 32_768).kv_cache_tokens)
    yield case(
        "concurrency",
        "×",
        1.30,
        TWO_DECIMALS,
        lambda: _blocks(qwen14, 6.51, 32_768).max_concurrency,
    )

    case = _log(
        4,
        "vLLM",
        "vllm-project/vllm#12569",
        "Llama-3.1-70B",
        "w8a8, utilisation 0.98, length 2,048",
    )
    llama70 = architecture("Llama-3.1-70B")
    yield case(
        "concurrency",
        "×",
        10.79,
        TWO_DECIMALS,
        lambda: vllm.plan(llama70, None, 2048, num_blocks=1381).max_concurrency,
    )
    yield case(
        "pool of the printed blocks",
        "GiB",
        6.743,
        THREE_DECIMALS,
        lambda: _pool_gib(llama70, max_model_len=2048, num_blocks=1381),
    )

    case = _log(5, "vLLM", "vllm-project/vllm#13596", "not stated", "127,626 blocks, length 2,048")
    yield case(
        "tokens",
        "tokens",
        2_042_016,
        0,
        lambda: vllm.plan(llama, None, 2048, num_blocks=127_626).kv_cache_tokens,
    )
    yield case(
        "concurrency",
        "×",
        997.08,
        TWO_DECIMALS,
        lambda: vllm.plan(llama, None, 2048, num_blocks=127_626).max_concurrency,
    )

    case = _log(6, "vLLM", "vllm-project/vllm#17327", "Qwen3", "198,784 tokens, length 8,192")
    yield case(
        "concurrency",
        "×",
        24.27,
        TWO_DECIMALS,
        lambda: vllm.plan(qwen14, None, 8192, num_blocks=198_784 // 16).max_concurrency,
    )

    case = _log(7, "vLLM", "OpenRLHF/OpenRLHF#336", "Llama-3-70B", "378 blocks")
    yield case(
        "tokens",
        "tokens",
        6048,
        0,
        lambda: vllm.plan(llama70, None, 2048, num_blocks=378, version="0.4").kv_cache_tokens,
    )

    case = _log(11, "vLLM", "vllm-project/vllm#34076", "Qwen3-Coder-30B-A3B", "length 262,144")
    yield case(
        "one request",
        "GiB",
        24.0,
        TWO_DECIMALS,
        lambda: _request_gib(architecture("Qwen3-30B-A3B"), 262_144),
    )

    case = _log(
        12,
        "vLLM",
        "vllm-project/vllm#10927",
        "DeepSeek-V2-Lite before MLA",
        "H100 (79.10 GiB), utilisation 0.90, heads padded to 256, length 8,192",
    )
    padded = Architecture.uniform(27, 16, 256, name="DeepSeek-V2-Lite, heads padded to 256")
    yield case(
        "memory budget",
        "GiB",
        35.42,
        TWO_DECIMALS,
        lambda: (
            vllm.budget(
                int(79.10 * GIB), int((30.56 + 5.21) * GIB), utilisation=0.9, version="0.6"
            ).available_bytes
            / GIB
        ),
    )
    yield case(
        "pool of the printed blocks",
        "GiB",
        35.42,
        TWO_DECIMALS,
        lambda: _pool_gib(padded, max_model_len=8192, num_blocks=5373),
        plain=lambda: 5373 * 16 * 27 * 16 * (192 + 128) * 2 / GIB,
        note="Keys of 192 and values of 128 were both stored as 256.",
    )
    yield case(
        "concurrency",
        "×",
        10.49,
        TWO_DECIMALS,
        lambda: vllm.plan(padded, None, 8192, num_blocks=5373).max_concurrency,
    )

    case = _log(13, "vLLM", "vllm-project/vllm#15871", "DeepSeek-V2-Lite", "MLA, length 32,768")
    yield case(
        "one request",
        "GiB",
        0.95,
        TWO_DECIMALS,
        lambda: _request_gib(architecture("DeepSeek-V2-Lite"), 32_768),
    )

    case = _log(14, "vLLM", "kaito-project/kaito#2132", "Mistral-Small-4-119B", "length 1,048,576")
    yield case(
        "one request",
        "GiB",
        22.5,
        TWO_DECIMALS,
        lambda: _request_gib(architecture("Mistral-Small-4-119B"), 1_048_576),
        note="36 layers of 256 + 64 latent elements, inferred from the log.",
    )

    case = _log(
        15,
        "vLLM",
        "vllm-project/vllm#27508",
        "gpt-oss-120b",
        "H100 (79.11 GiB), utilisation 0.95, 1,024 batched tokens, length 131,072",
    )
    oss = architecture("gpt-oss-120b")
    yield case(
        "one request",
        "GiB",
        4.54,
        TWO_DECIMALS,
        lambda: _request_gib(oss, 131_072, max_num_batched_tokens=1024),
        plain=lambda: _plain_gib(oss, 131_072),
        note="The window alone would give 4.504; 1,024 tokens in flight make the difference.",
    )
    for share, available, other in ((0.95, 1.71, 7.48), (0.90, -2.14, 7.37)):
        source = "vllm-project/vllm#27508" if share == 0.95 else "vllm-project/vllm#23278"
        case = _log(16, "vLLM", source, "gpt-oss-120b", f"H100 (79.11 GiB), utilisation {share}")
        yield case(
            f"memory neither weights nor cache at {share}",
            "GiB",
            other,
            2 * TWO_DECIMALS,
            lambda share=share, available=available: 79.11 * share - 65.965 - available,
            note="No fixed guess of one or two GiB would do.",
        )

    case = _log(
        18,
        "vLLM",
        "vllm-project/vllm#40691",
        "Qwen3.5-27B",
        "bf16, v0.19, no prefix caching, length 32,768, 1,487 blocks",
    )
    qwen27 = architecture("Qwen3.5-27B")
    old = {"prefix_caching": False, "version": "0.19"}
    yield case(
        "block size",
        "tokens",
        784,
        0,
        lambda: vllm.plan(qwen27, None, 32_768, num_blocks=1487, **old).block_size,
    )
    yield case(
        "tokens",
        "tokens",
        290_864,
        0,
        lambda: vllm.plan(qwen27, None, 32_768, num_blocks=1487, **old).kv_cache_tokens,
        note="Up to 0.20 the count was blocks ÷ groups × block size.",
    )
    yield case(
        "concurrency",
        "×",
        33.04,
        TWO_DECIMALS,
        lambda: vllm.plan(qwen27, None, 32_768, num_blocks=1487, **old).max_concurrency,
    )

    case = _log(
        19,
        "vLLM",
        "noonghunna/club-3090#612",
        "Qwen3.6-35B-A3B",
        "NVFP4 weights, RTX 5090, fp8 KV, v0.24, length 131,072, 5.98 GiB",
    )
    qwen35 = architecture("Qwen3.5-35B-A3B")
    fp8 = {"kv_format": "fp8", "version": "0.24"}
    yield case(
        "block size",
        "tokens",
        2096,
        0,
        lambda: _blocks(qwen35, 5.98, 131_072, **fp8).block_size,
    )
    yield case("blocks", "blocks", 299, 0, lambda: _blocks(qwen35, 5.98, 131_072, **fp8).num_blocks)
    yield case(
        "tokens",
        "tokens",
        567_978,
        0,
        lambda: _blocks(qwen35, 5.98, 131_072, **fp8).kv_cache_tokens,
        plain=lambda: int(5.98 * GIB) // qwen35.growth_bytes("fp8"),
    )
    yield case(
        "concurrency",
        "×",
        4.33,
        TWO_DECIMALS,
        lambda: _blocks(qwen35, 5.98, 131_072, **fp8).max_concurrency,
    )

    case = _log(
        21,
        "vLLM",
        "noonghunna/club-3090#642",
        "Qwen3.6-27B",
        "two RTX 3090, TP2, fp8_e5m2 KV, three draft tokens, length 262,144, 426 blocks",
    )
    drafts = {
        "kv_format": "fp8_e5m2",
        "version": "0.24",
        "tensor_parallel": 2,
        "speculative_tokens": 3,
    }
    yield case(
        "block size",
        "tokens",
        1600,
        0,
        lambda: vllm.plan(qwen27, None, 262_144, num_blocks=426, **drafts).block_size,
    )
    yield case(
        "pool of the printed blocks",
        "GiB",
        11.05,
        TWO_DECIMALS,
        lambda: _pool_gib(qwen27, max_model_len=262_144, num_blocks=426, **drafts),
        note="11.05 as printed gives 425.98 blocks; the true amount is a little more.",
    )
    yield case(
        "tokens",
        "tokens",
        623_873,
        0,
        lambda: vllm.plan(qwen27, None, 262_144, num_blocks=426, **drafts).kv_cache_tokens,
        plain=lambda: int(11.05 * GIB) // (17 * 1024),
    )
    yield case(
        "concurrency",
        "×",
        2.38,
        TWO_DECIMALS,
        lambda: vllm.plan(qwen27, None, 262_144, num_blocks=426, **drafts).max_concurrency,
    )

    case = _log(
        "in flight",
        "vLLM",
        "vllm-project/vllm#49878",
        "Gemma-4-31B",
        "v0.26, 32,768 batched tokens, two batches in flight, length 262,144",
    )
    gemma = architecture("Gemma-4-31B")
    yield case(
        "one request",
        "GiB",
        70.79,
        TWO_DECIMALS,
        lambda: _request_gib(
            gemma, 262_144, max_num_batched_tokens=32_768, concurrent_batches=2, version="0.26"
        ),
        plain=lambda: _plain_gib(gemma, 262_144),
        note="One batch in flight, as before 0.26, needs 45.79 GiB.",
    )

    case = _log(
        "fp8 hybrid",
        "vLLM",
        "mitchross/talos-argocd-proxmox#1995",
        "Qwen3.8-27B",
        "two RTX 3090, TP2, fp8 KV, prefix caching, length 131,072, 4.99 GiB",
    )
    two = {"kv_format": "fp8", "version": "0.28", "tensor_parallel": 2}
    yield case(
        "block size",
        "tokens",
        1568,
        0,
        lambda: _blocks(qwen27, 4.99, 131_072, **two).block_size,
    )
    yield case(
        "tokens",
        "tokens",
        302_921,
        0,
        lambda: _blocks(qwen27, 4.99, 131_072, **two).kv_cache_tokens,
        plain=lambda: int(4.99 * GIB) // qwen27.growth_bytes("fp8", 2),
    )
    yield case(
        "concurrency",
        "×",
        2.31,
        TWO_DECIMALS,
        lambda: _blocks(qwen27, 4.99, 131_072, **two).max_concurrency,
    )

    case = _log(
        "latent hybrid",
        "vLLM",
        "vllm-project/vllm#28228",
        "Kimi-Linear-48B-A3B",
        "two RTX 3090, TP2, v0.11, no prefix caching, length 120,000",
    )
    kimi = architecture("Kimi-Linear-48B-A3B")

    def kimi_plan() -> vllm.Plan:
        return vllm.plan(
            kimi,
            None,
            120_000,
            num_blocks=1,
            tensor_parallel=2,
            prefix_caching=False,
            version="0.11",
        )

    yield case("block size", "tokens", 960, 0, lambda: kimi_plan().block_size)
    yield case(
        "padding of a state's page",
        "%",
        1.89,
        TWO_DECIMALS,
        lambda: 100 * (kimi_plan().state_page_bytes / kimi_plan().state_page_used - 1),
    )

    case = _log(
        "CPU",
        "vLLM",
        "vLLM 0.32.0, CPU build",
        "SmolLM2-135M",
        "bf16, 2 GiB, blocks of 128, length 4,096",
    )
    smol = Architecture.uniform(30, 3, 64, name="SmolLM2-135M")
    cpu = {"block_size": vllm.CPU_BLOCK_SIZE, "version": "0.32"}
    yield case("tokens", "tokens", 93_184, 0, lambda: _blocks(smol, 2, 4096, **cpu).kv_cache_tokens)
    yield case(
        "concurrency",
        "×",
        22.75,
        TWO_DECIMALS,
        lambda: _blocks(smol, 2, 4096, **cpu).max_concurrency,
    )

    olmo = architecture("Olmo-3-7B")
    for length, users in ((6144, 23.73), (34_048, 11.12)):
        case = _log(
            38,
            "vLLM",
            "vllm-project/vllm#29796",
            "Olmo-3-7B",
            f"57.18 GiB, length {length:,}, other settings not stated",
        )
        yield case(
            f"concurrency at {length:,}",
            "×",
            users,
            TWO_DECIMALS,
            lambda length=length: _blocks(olmo, 57.18, length, version="0.12").max_concurrency,
            expected=Expected.NOT_REPRODUCED,
            note="The batch size and the ranks are not stated; default settings do not give it.",
        )


def _sglang_cases() -> Iterator[Case]:
    case = _log(
        9,
        "SGLang",
        "vllm-project/vllm#21348",
        "Qwen3-235B-A22B",
        "four H100, TP4, mem_fraction_static 0.93, 367,404 tokens",
    )
    qwen = architecture("Qwen3-235B-A22B")
    for figure, size in (("keys", "k_bytes"), ("values", "v_bytes")):
        yield case(
            figure,
            "GiB",
            8.23,
            TWO_DECIMALS,
            lambda size=size: (
                getattr(sglang.plan(qwen, None, tensor_parallel=4, tokens=367_404), size) / GIB
            ),
            note="Printed as GB; 8.23 GiB would be 8.84 GB.",
        )
    case = _log(
        24,
        "SGLang",
        "sgl-project/sglang#11309",
        "DeepSeek-V3.2-Exp",
        "eight B200, data-parallel attention, fp8, 1,462,784 tokens, pages of 64",
    )
    sparse = architecture("DeepSeek-V3.2")

    def pool() -> sglang.Plan:
        return sglang.plan(sparse, None, "fp8", page_size=64, tokens=1_462_784)

    yield case(
        "latent vectors",
        "GiB",
        54.52,
        TWO_DECIMALS,
        lambda: pool().latent_bytes / GIB,
        plain=lambda: 1_462_784 * 61 * 576 / GIB,
        note="656 bytes per token and layer: scales, and the rotary part in BF16.",
    )
    yield case(
        "latent vectors and index keys",
        "GiB",
        65.49,
        TWO_DECIMALS,
        lambda: (pool().latent_bytes + pool().index_bytes) / GIB,
        plain=lambda: 1_462_784 * 61 * (576 + 128) / GIB,
    )


def _llamacpp_cases() -> Iterator[Case]:
    case = _log(
        26,
        "llama.cpp",
        "ollama/ollama#16480",
        "gpt-oss-120b",
        "f16, two slots of 131,072, batches of 1,024",
    )
    oss = architecture("gpt-oss-120b")

    def two_slots() -> llamacpp.Plan:
        return llamacpp.plan(oss, 262_144, slots=2, ubatch=1024)

    yield case("full cache", "MiB", 9216, TWO_DECIMALS, lambda: two_slots().caches[0].bytes / MIB)
    yield case("window cells", "cells", 1280, 0, lambda: two_slots().caches[1].cells)
    yield case("window cache", "MiB", 90, TWO_DECIMALS, lambda: two_slots().caches[1].bytes / MIB)

    case = _log(27, "llama.cpp", "ollama/ollama#17037", "Gemma-3-4B", "f16, context 131,072")
    gemma = architecture("Gemma-3-4B")
    yield case(
        "full cache",
        "MiB",
        2560,
        TWO_DECIMALS,
        lambda: llamacpp.plan(gemma, 131_072).caches[0].bytes / MIB,
    )
    yield case(
        "window cache",
        "MiB",
        174,
        TWO_DECIMALS,
        lambda: llamacpp.plan(gemma, 131_072).caches[1].bytes / MIB,
    )

    case = _log(
        29,
        "llama.cpp",
        "lmstudio-ai/lmstudio-bug-tracker#1862",
        "Qwen3.6-27B",
        "f16, context 262,144 shared by four sequences",
    )
    qwen = architecture("Qwen3.5-27B")

    def shared() -> llamacpp.Plan:
        return llamacpp.plan(qwen, 262_144, slots=4, unified=True)

    yield case("full cache", "MiB", 16_384, TWO_DECIMALS, lambda: shared().caches[0].bytes / MIB)
    yield case(
        "recurrent states",
        "MiB",
        598.50,
        TWO_DECIMALS,
        lambda: shared().state.bytes / MIB,
        plain=lambda: 4 * qwen.state_bytes() / MIB,
        note="llama.cpp keeps both parts of the state in f32.",
    )

    case = _log(
        31, "llama.cpp", "ikawrakow/ik_llama.cpp#259", "DeepSeek-V3", "q8_0, context 32,768"
    )
    deepseek = architecture("DeepSeek-V3")
    yield case(
        "latent cache",
        "MiB",
        1166.62,
        TWO_DECIMALS,
        lambda: llamacpp.plan(deepseek, 32_768, "q8_0").bytes / MIB,
        plain=lambda: 32_768 * 61 * 576 / MIB,
        note="q8_0 is 34 bytes per 32 elements, not 32.",
    )

    case = _log(
        32,
        "llama.cpp",
        "SciSharp/LLamaSharp#1099",
        "36 layers, n_embd_k_gqa 256",
        "f16, context 4,096",
    )
    small = architecture("36 layers with 256-wide keys")
    for figure, size in (("keys", "k_bytes"), ("values", "v_bytes")):
        yield case(
            figure,
            "MiB",
            72,
            TWO_DECIMALS,
            lambda size=size: getattr(llamacpp.plan(small, 4096).caches[0], size) / MIB,
        )

    case = _log(
        36,
        "llama.cpp",
        "ggml-org/llama.cpp#13194",
        "Command-R7B",
        "f16, context 31,000, batches of 2,048, --swa-full on against off",
    )
    command = architecture("Command-R7B")
    yield case(
        "memory saved by the window",
        "MiB",
        2344,
        2344 * 0.005,
        lambda: (
            (
                llamacpp.plan(command, 31_000, ubatch=2048, swa_full=True).bytes
                - llamacpp.plan(command, 31_000, ubatch=2048).bytes
            )
            / MIB
        ),
        note="Totals of the process, so only to half a percent.",
    )

    case = _log(
        37, "llama.cpp", "gpustack/gguf-parser-go#32", "gpt-oss-20b", "f16, context 131,072"
    )
    oss20 = architecture("gpt-oss-20b")
    yield case(
        "full cache",
        "GiB",
        3.00,
        TWO_DECIMALS,
        lambda: llamacpp.plan(oss20, 131_072).caches[0].bytes / GIB,
        plain=lambda: 24 * 2 * 8 * 64 * 2 * 131_072 / GIB,
    )


LENGTHS = {"8k": 8192, "32k": 32_768, "128k": 131_072}

ARCHITECTURE_ROWS: tuple[tuple[str, int, int, tuple[float, float, float] | None], ...] = (
    ("Llama-2-7B", 524_288, 0, (4.0, 16.0, 64.0)),
    ("Llama-3.1-8B", 131_072, 0, (1.0, 4.0, 16.0)),
    ("Llama-3.1-70B", 327_680, 0, (2.5, 10.0, 40.0)),
    ("Llama-3.1-405B", 516_096, 0, (3.938, 15.75, 63.0)),
    ("Mixtral-8x7B", 131_072, 0, (1.0, 4.0, 16.0)),
    ("Qwen3-0.6B", 114_688, 0, (0.875, 3.5, 14.0)),
    ("Qwen3-32B", 262_144, 0, (2.0, 8.0, 32.0)),
    ("Qwen3-235B-A22B", 192_512, 0, (1.469, 5.875, 23.5)),
    ("Mistral-Nemo-12B", 163_840, 0, (1.25, 5.0, 20.0)),
    ("Falcon-7B", 8192, 0, (0.062, 0.25, 1.0)),
    ("Falcon-40B", 122_880, 0, (0.938, 3.75, 15.0)),
    ("GPT-2", 36_864, 0, None),
    ("Mistral-7B-v0.1", 0, 536_870_912, (0.5, 0.5, 0.5)),
    ("Gemma-2-9B", 172_032, 704_643_072, (1.969, 5.906, 21.656)),
    ("Gemma-3-4B", 20_480, 121_634_816, (0.270, 0.738, 2.613)),
    ("Gemma-3-27B", 81_920, 436_207_616, (1.031, 2.906, 10.406)),
    ("Gemma-3n-E4B", 8192, 16_777_216, (0.078, 0.266, 1.016)),
    ("gpt-oss-20b", 24_576, 3_145_728, (0.190, 0.753, 3.003)),
    ("gpt-oss-120b", 36_864, 4_718_592, (0.286, 1.129, 4.504)),
    ("Llama-4-Scout", 49_152, 1_207_959_552, (1.5, 2.625, 7.125)),
    ("DeepSeek-V2-Lite", 31_104, 0, (0.237, 0.949, 3.797)),
    ("DeepSeek-V3", 70_272, 0, (0.536, 2.145, 8.578)),
    ("DeepSeek-V3.2", 85_888, 0, (0.655, 2.621, 10.484)),
    ("Qwen3-Next-80B", 24_576, 77_266_944, (0.259, 0.822, 3.072)),
    ("Qwen3.5-27B", 65_536, 153_944_064, (0.643, 2.143, 8.143)),
    ("Qwen3.5-35B-A3B", 20_480, 64_389_120, (0.216, 0.685, 2.560)),
    ("Nemotron-3-Nano-30B", 6144, 49_082_368, (0.093, 0.233, 0.796)),
    ("Jamba-1.5-Mini", 16_384, 16_056_320, (0.140, 0.515, 2.015)),
    ("Whisper-large-v3", 163_840, 245_760_000, None),
)
"""Model, growth in bytes per token, fixed bytes per sequence, GiB at 8k, 32k and 128k tokens."""

LONG_CONTEXTS = (
    ("Gemma-3-27B", 131_072, 10.41, False),
    ("DeepSeek-V3", 163_840, 10.72, False),
    ("DeepSeek-V3", 262_144, 17.16, False),
    ("GLM-5 with its draft layer", 202_752, 17.18, False),
    ("Qwen3.5-27B", 262_144, 16.00, True),
    ("Qwen3-0.6B", 40_960, 4.38, False),
)
"""unslothai/unsloth#4757: model, tokens, GiB, and whether only the growing part is counted."""


def _architecture_cases() -> Iterator[Case]:
    for model, growth, fixed, sizes in ARCHITECTURE_ROWS:
        a = architecture(model)
        for figure, unit, value, predict in (
            ("growth", "B per token", growth, a.growth_bytes),
            ("fixed part", "B", fixed, a.fixed_bytes),
        ):
            yield _needs(model, figure, unit, value, 0, predict)
        for (label, tokens), size in zip(LENGTHS.items(), sizes or (), strict=False):
            yield _needs(
                model,
                f"one sequence of {label}",
                "GiB",
                size,
                THREE_DECIMALS,
                lambda a=a, tokens=tokens: _plain_gib(a, tokens),
            )
    sparse = architecture("DeepSeek-V3.2")
    yield _needs(
        "DeepSeek-V3.2",
        "growth in fp8",
        "B per token",
        48_068,
        0,
        lambda: sparse.growth_bytes("fp8"),
    )
    for label, size in (("8k", 0.367), ("32k", 1.467), ("128k", 5.868)):
        yield _needs(
            "DeepSeek-V3.2",
            f"one sequence of {label} in fp8",
            "GiB",
            size,
            THREE_DECIMALS,
            lambda label=label: _plain_gib(sparse, LENGTHS[label], "fp8"),
        )
    yield _needs(
        "GPT-2",
        "its 1,024 tokens",
        "GiB",
        0.035,
        THREE_DECIMALS,
        lambda: _plain_gib(architecture("GPT-2"), 1024),
    )
    yield _needs(
        "Whisper-large-v3",
        "448 tokens of text and 1,500 of sound",
        "GiB",
        0.297,
        THREE_DECIMALS,
        lambda: _plain_gib(architecture("Whisper-large-v3"), 448),
    )
    for model, tokens, size, growing in LONG_CONTEXTS:
        a = architecture(model)
        case = _log(34, "llama.cpp", "unslothai/unsloth#4757", model, f"f16, {tokens:,} tokens")
        yield case(
            f"cache at {tokens:,}",
            "GiB",
            size,
            TWO_DECIMALS,
            lambda a=a, tokens=tokens, growing=growing: (
                (a.growth_bytes() * tokens if growing else a.cache_bytes(tokens)) / GIB
            ),
        )


def _needs(
    model: str,
    figure: str,
    unit: str,
    value: float,
    tolerance: float,
    predict: Callable[[], float],
) -> Case:
    return Case(
        f"{model} {figure}",
        "any",
        Basis.ARCHITECTURE,
        "the model's config.json",
        model,
        "BF16, one sequence, one rank",
        figure,
        unit,
        value,
        tolerance,
        predict,
    )


def _derived_cases() -> Iterator[Case]:
    gemma, deepseek = architecture("Gemma-3-27B"), architecture("DeepSeek-V3")
    qwen, llama = architecture("Qwen3-30B-A3B"), architecture("Llama-3.1-8B")

    def derived(
        model: str,
        engine: str,
        setting: str,
        figure: str,
        unit: str,
        value: float,
        tolerance: float,
        predict: Callable[[], float],
    ) -> Case:
        return Case(
            f"{model} {setting} {figure}",
            engine,
            Basis.DERIVED,
            f"{engine}'s rules, by hand",
            model,
            setting,
            figure,
            unit,
            value,
            tolerance,
            predict,
        )

    setting = "TP1, BF16, length 131,072, 8,192 tokens in flight"
    for figure, unit, value, tolerance, predict in (
        ("groups", "groups", 7, 0, lambda p: len(p.groups)),
        ("padding layers", "layers", 8, 0, lambda p: sum(g.padding_layers for g in p.groups)),
        ("blocks per request", "blocks", 11_654, 0, lambda p: p.blocks_per_request),
        ("one request", "GiB", 14.226, THREE_DECIMALS, lambda p: p.bytes_per_request / GIB),
        ("need of the architecture", "GiB", 10.406, THREE_DECIMALS, lambda p: p.needed_bytes / GIB),
    ):
        yield derived(
            "Gemma-3-27B",
            "vLLM",
            setting,
            figure,
            unit,
            value,
            tolerance,
            lambda predict=predict: predict(vllm.plan(gemma, None, 131_072, num_blocks=1)),
        )
    for ranks, total in ((1, 98_304), (2, 98_304), (4, 98_304), (8, 196_608)):
        yield derived(
            "Qwen3-30B-A3B",
            "vLLM",
            f"TP{ranks}",
            "bytes per token over all ranks",
            "B",
            total,
            0,
            lambda ranks=ranks: ranks * qwen.growth_bytes(tensor_parallel=ranks),
        )
    yield derived(
        "DeepSeek-V3",
        "vLLM",
        "TP8",
        "bytes per token over all ranks",
        "B",
        562_176,
        0,
        lambda: 8 * deepseek.growth_bytes(tensor_parallel=8),
    )
    yield derived(
        "DeepSeek-V3",
        "vLLM",
        "DP8",
        "bytes per token of the rank that holds it",
        "B",
        70_272,
        0,
        lambda: deepseek.growth_bytes(tensor_parallel=1),
    )
    for name, size in (("q8_0", 544), ("q4_0", 288)):
        yield derived(
            "Llama-3.1-8B",
            "llama.cpp",
            f"{name}, context 8,192",
            "cache",
            "MiB",
            size,
            0,
            lambda name=name: llamacpp.plan(llama, 8192, name).bytes / MIB,
        )


CASES: tuple[Case, ...] = (
    *_vllm_cases(),
    *_sglang_cases(),
    *_llamacpp_cases(),
    *_architecture_cases(),
    *_derived_cases(),
)
"""Everything the conformance section lists."""
