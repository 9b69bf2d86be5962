"""Read what vLLM, SGLang and llama.cpp print about their KV cache when they start.

The readers are tolerant: lines may be in any order, prefixed by timestamps and process names,
repeated by every rank, or missing. A figure that was not printed is None, never zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import ClassVar

MAX_CHARACTERS = 5_000_000
LONGEST_LINE = 20_000
INTEGER = r"(\d{1,15})"
GROUPED = r"(\d[\d,]{0,19})"
DECIMAL = r"(-?\d{1,12}(?:\.\d{1,12})?)"


class LogError(ValueError):
    """The text holds nothing these readers know; the message says what to paste instead."""


@dataclass(frozen=True)
class Reading:
    """One printed figure: its value, the process that printed it and the line it stands on."""

    value: float
    rank: str
    line: int


@dataclass
class VllmLog:
    """vLLM's start-up figures. GiB as printed (two decimals), tokens and blocks as integers.

    peak_torch_gib holds the weights and the activation peak together (before 0.8); consumed_gib
    the weights and what lies outside torch (newer versions).
    """

    engine: ClassVar[str] = "vllm"

    version: str | None = None
    model: str | None = None
    device: str | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    max_model_len: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    prefix_caching: bool | None = None
    max_num_batched_tokens: int | None = None
    speculative_tokens: int | None = None
    block_size: int | None = None
    aligned_block_size: int | None = None
    padding_layers: int | None = None
    state_padding_percent: float | None = None
    total_gib: float | None = None
    utilisation: float | None = None
    weights_gib: float | None = None
    activation_gib: float | None = None
    non_torch_gib: float | None = None
    peak_torch_gib: float | None = None
    consumed_gib: float | None = None
    graphs_estimated_gib: float | None = None
    graphs_gib: float | None = None
    needed_gib: float | None = None
    needed_for_tokens: int | None = None
    longest_that_fits: int | None = None
    state_blocks: int | None = None
    requested_seqs: int | None = None
    available: list[Reading] = field(default_factory=list)
    blocks: list[Reading] = field(default_factory=list)
    tokens: list[Reading] = field(default_factory=list)
    concurrency: list[Reading] = field(default_factory=list)
    concurrency_tokens: int | None = None


@dataclass
class SglangLog:
    """SGLang's start-up figures. It prints GB and means GiB (2**30); the fields say GiB."""

    engine: ClassVar[str] = "sglang"

    version: str | None = None
    model: str | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    page_size: int | None = None
    mem_fraction_static: float | None = None
    swa_full_tokens_ratio: float | None = None
    context_len: int | None = None
    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    full_layer_tokens: int | None = None
    swa_layer_tokens: int | None = None
    state_slots: int | None = None
    conv_state_gib: float | None = None
    ssm_state_gib: float | None = None
    swa_pool_gib: float | None = None
    free_before_load: list[Reading] = field(default_factory=list)
    free_after_load: list[Reading] = field(default_factory=list)
    weights: list[Reading] = field(default_factory=list)
    tokens: list[Reading] = field(default_factory=list)
    k_gib: list[Reading] = field(default_factory=list)
    v_gib: list[Reading] = field(default_factory=list)
    kv_gib: list[Reading] = field(default_factory=list)


@dataclass(frozen=True)
class KvBuffer:
    """One `llama_kv_cache: size = …` line: a cache over some layers, sliding or not."""

    mib: float
    cells: int | None
    layers: int | None
    slots: int | None
    streams: int | None
    k_type: str | None
    k_mib: float | None
    v_type: str | None
    v_mib: float | None
    sliding: bool
    line: int


@dataclass(frozen=True)
class StateBuffer:
    """One `llama_memory_recurrent: size = …` line: R is the convolution part, S the matrix."""

    mib: float
    slots: int | None
    layers: int | None
    r_mib: float | None
    s_mib: float | None
    line: int


@dataclass
class LlamaCppLog:
    """llama.cpp's (and so Ollama's, LM Studio's) start-up figures. MiB as printed."""

    engine: ClassVar[str] = "llama.cpp"

    version: str | None = None
    model: str | None = None
    architecture: str | None = None
    num_layers: int | None = None
    k_width: int | None = None
    context: int | None = None
    context_per_slot: int | None = None
    slots: int | None = None
    ubatch: int | None = None
    unified: bool | None = None
    swa_full: bool | None = None
    window: int | None = None
    caches: list[KvBuffer] = field(default_factory=list)
    states: list[StateBuffer] = field(default_factory=list)


EngineLog = VllmLog | SglangLog | LlamaCppLog
Take = Callable[[re.Match[str], int, str], None]


def read_log(text: str) -> EngineLog:
    """The start-up text of whichever engine wrote it.

    Raises LogError, in one sentence, where the text is empty, too large or of no known engine.
    """
    if not isinstance(text, str):
        raise LogError("A log must be text.")
    if not text.strip():
        raise LogError("There is no text to read; paste the lines an engine prints while starting.")
    if len(text) > MAX_CHARACTERS:
        raise LogError(
            f"The text has {len(text):,} characters, over the limit of {MAX_CHARACTERS:,}; "
            "paste the start-up part only."
        )
    readers = (_VllmReader(), _SglangReader(), _LlamaCppReader())
    for number, line in enumerate(text.splitlines(), start=1):
        for piece in _pieces(line):
            for reader in readers:
                reader.read(piece, number)
    best = max(readers, key=lambda reader: reader.recognised)
    if not best.recognised:
        raise LogError(
            "No line here is one that vLLM, SGLang or llama.cpp prints about its KV cache; "
            "paste their start-up log, for example from “Available KV cache memory”, "
            "“KV Cache is allocated” or “llama_kv_cache: size” on."
        )
    return best.log


def known_figures(log: EngineLog) -> dict[str, object]:
    """The fields of a log that were printed, by name, for a table of what was understood."""
    values = ((f.name, getattr(log, f.name)) for f in fields(log))
    return {name: value for name, value in values if value not in (None, [])}


def _pieces(line: str) -> Iterator[str]:
    """The line, cut where it is longer than any engine prints, so that matching stays quick."""
    for start in range(0, len(line), LONGEST_LINE):
        yield line[start : start + LONGEST_LINE]


class _Reader:
    """Applies a list of (pattern, action) to each line; actions fill in the log.

    Only lines with one of `words` are looked at: most of a log is about something else.
    """

    words: tuple[str, ...]
    rules: tuple[tuple[re.Pattern[str], Take], ...]

    def __init__(self) -> None:
        self.recognised = 0

    def read(self, line: str, number: int) -> None:
        if not any(word in line for word in self.words):
            return
        rank = _rank(line)
        for pattern, take in self.rules:
            for match in pattern.finditer(line):
                take(match, number, rank)
                self.recognised += 1


class _VllmReader(_Reader):
    words = (
        "GiB",
        "KV cache",
        "KV Cache",
        " blocks",
        "num_gpu_blocks",
        "_len",
        "model len",
        "model length",
        "parallel_size",
        "kv_cache_dtype",
        "prefix_caching",
        "batched_tokens",
        "num_spec",
        "block_size",
        "block size",
        "padding layers",
        "Padding mamba",
        "gpu_memory",
        "model weights took",
        "LLM engine (",
        "server version",
        "Maximum concurrency",
        "--max-model-len",
        "-parallel-size",
        "--kv-cache-dtype",
        "-prefix-caching",
        "-batched-tokens",
        "--block-size",
        "--gpu-memory",
    )

    def __init__(self) -> None:
        super().__init__()
        self.log = log = VllmLog()
        self.rules = (
            _rule(
                r"Initializing an? (?:V1 )?LLM engine \(v?([\w.+-]{1,40})\)", _text(log, "version")
            ),
            _rule(r"vLLM API server version v?([\w.+-]{1,40})", _text(log, "version")),
            _rule(r"\bmodel='([^']{1,300})'", _text(log, "model")),
            _rule(r"\bdtype=torch\.(\w{1,20})", _text(log, "dtype")),
            _rule(_setting("kv_cache_dtype", r"(\w{1,40})"), _text(log, "kv_cache_dtype")),
            _rule(_setting("max_(?:seq|model)_len", INTEGER), _int(log, "max_model_len")),
            _rule(rf"Using max model len {INTEGER}", _int(log, "max_model_len")),
            _rule(_setting("tensor_parallel_size", INTEGER), _int(log, "tensor_parallel")),
            _rule(_setting("pipeline_parallel_size", INTEGER), _int(log, "pipeline_parallel")),
            _rule(_setting("data_parallel_size", INTEGER), _int(log, "data_parallel")),
            _rule(_setting("enable_prefix_caching", "(True|False)"), _bool(log, "prefix_caching")),
            _rule(r"--(no-)?enable-prefix-caching", self._prefix_caching),
            _rule(_setting("max_num_batched_tokens", INTEGER), _int(log, "max_num_batched_tokens")),
            _rule(
                _setting("num_spec(?:ulative)?_tokens", INTEGER), _int(log, "speculative_tokens")
            ),
            _rule(_setting("block_size", INTEGER), _int(log, "block_size")),
            _rule(
                rf"Setting attention block size to {INTEGER} tokens",
                _int(log, "aligned_block_size"),
            ),
            _rule(
                rf"Add {INTEGER} padding layers, may waste at most",
                self._padding,
            ),
            _rule(rf"Padding mamba page size by {DECIMAL}%", _float(log, "state_padding_percent")),
            _rule(
                rf"total_gpu_memory \({DECIMAL}\s?GiB\) x gpu_memory_utilization \({DECIMAL}\)",
                self._total_and_share,
            ),
            _rule(rf"total_gpu_memory={DECIMAL}\s?GiB", _float(log, "total_gib")),
            _rule(_setting("gpu_memory_utilization", DECIMAL), _float(log, "utilisation")),
            _rule(rf"model weights take {DECIMAL}\s?GiB", _float(log, "weights_gib")),
            _rule(rf"Model loading took {DECIMAL} Gi?B", _float(log, "weights_gib")),
            _rule(rf"Loading model weights took {DECIMAL} Gi?B", _float(log, "weights_gib")),
            _rule(rf"activation peak memory takes {DECIMAL}\s?GiB", _float(log, "activation_gib")),
            _rule(rf"\bnon_torch_memory(?:=| takes ){DECIMAL}\s?GiB", _float(log, "non_torch_gib")),
            _rule(rf"\bpeak_torch_memory={DECIMAL}\s?GiB", _float(log, "peak_torch_gib")),
            _rule(
                rf"the rest of the memory reserved for KV Cache is {DECIMAL}\s?GiB",
                _reading(log, "available"),
            ),
            _rule(rf"\bkv_cache_size={DECIMAL}\s?GiB", _reading(log, "available")),
            _rule(rf"Free memory on device \({DECIMAL}/{DECIMAL} GiB\)", self._device),
            _rule(
                rf"Desired GPU memory utilization is \({DECIMAL}, {DECIMAL} GiB\)",
                _float(log, "utilisation"),
            ),
            _rule(rf"{DECIMAL} GiB for weights?\b", _float(log, "weights_gib")),
            _rule(rf"{DECIMAL} GiB for consumed memory", _float(log, "consumed_gib")),
            _rule(rf"{DECIMAL} GiB for peak activation", _float(log, "activation_gib")),
            _rule(rf"{DECIMAL} GiB for non-torch", _float(log, "non_torch_gib")),
            _rule(rf"{DECIMAL} GiB for (?:CUDA|NPU) ?[Gg]raph", _float(log, "graphs_gib")),
            _rule(
                rf"Estimated CUDA graph memory: {DECIMAL} GiB", _float(log, "graphs_estimated_gib")
            ),
            _rule(
                rf"[Cc]urrent (?:kv|KV) cache memory(?: in use is|:) {DECIMAL} GiB",
                _reading(log, "available"),
            ),
            _rule(rf"Available KV cache memory: {DECIMAL} GiB", _reading(log, "available")),
            _rule(
                rf"Explicitly set \({DECIMAL}/{DECIMAL}\) GiB for KV cache",
                _reading(log, "available"),
            ),
            _rule(
                rf"(?:^|[^\w-] ?)(?:GPU|cuda|CUDA|cpu|NPU|rocm) blocks: {INTEGER}",
                _reading(log, "blocks"),
            ),
            _rule(rf"\bnum_gpu_blocks['\"]?[=:]\s*{INTEGER}", _reading(log, "blocks")),
            _rule(rf"tokens that can be stored in KV cache \({GROUPED}\)", _reading(log, "tokens")),
            _rule(rf"(GPU|CPU|XPU|NPU) KV cache size: {GROUPED} tokens", self._tokens),
            _rule(
                rf"Maximum concurrency for {GROUPED} tokens per request: {DECIMAL}\s?x",
                self._concurrency,
            ),
            _rule(
                rf"max seq len \({GROUPED}\),? \(?{DECIMAL} GiB KV cache is needed",
                self._needed,
            ),
            _rule(rf"available KV cache memory \({DECIMAL} GiB\)", _reading(log, "available")),
            _rule(rf"estimated maximum model length is {INTEGER}", _int(log, "longest_that_fits")),
            _rule(
                rf"max_num_seqs \({INTEGER}\) exceeds available Mamba cache blocks \({INTEGER}\)",
                self._state_blocks,
            ),
        )

    def _prefix_caching(self, match: re.Match[str], number: int, rank: str) -> None:
        self.log.prefix_caching = match[1] is None

    def _padding(self, match: re.Match[str], number: int, rank: str) -> None:
        """The line comes once per kind of layer (and again while graphs are profiled)."""
        self.log.padding_layers = max(self.log.padding_layers or 0, int(match[1]))

    def _total_and_share(self, match: re.Match[str], number: int, rank: str) -> None:
        self.log.total_gib, self.log.utilisation = float(match[1]), float(match[2])

    def _device(self, match: re.Match[str], number: int, rank: str) -> None:
        self.log.total_gib = float(match[2])

    def _tokens(self, match: re.Match[str], number: int, rank: str) -> None:
        self.log.device = match[1]
        self.log.tokens.append(Reading(_integer(match[2]), rank, number))

    def _concurrency(self, match: re.Match[str], number: int, rank: str) -> None:
        self.log.concurrency_tokens = _integer(match[1])
        self.log.concurrency.append(Reading(float(match[2]), rank, number))

    def _needed(self, match: re.Match[str], number: int, rank: str) -> None:
        self.log.needed_for_tokens = _integer(match[1])
        self.log.needed_gib = float(match[2])

    def _state_blocks(self, match: re.Match[str], number: int, rank: str) -> None:
        self.log.requested_seqs, self.log.state_blocks = int(match[1]), int(match[2])


class _SglangReader(_Reader):
    words = (
        "sglang",
        "ServerArgs(",
        "KV cache dtype",
        "Load weight",
        "KV Cache is allocated",
        "liding window memory pool",
        "SWAKVPool",
        "Mamba Cache",
        "max_total_num_tokens",
        "swa_full_tokens_ratio",
        "mem_fraction_static",
        "--mem-fraction-static",
    )

    def __init__(self) -> None:
        super().__init__()
        self.log = log = SglangLog()
        self.rules = (
            _rule(r"\bsglang[ =]+v?(\d[\w.+-]{1,40})", _text(log, "version")),
            _rule(r"server_args=ServerArgs\(model_path='([^']{1,300})'", _text(log, "model")),
            _rule(_setting("mem_fraction_static", DECIMAL), _float(log, "mem_fraction_static")),
            _rule(_setting("page_size", INTEGER), _int(log, "page_size")),
            _rule(_setting("tp(?:_size)?", INTEGER), _int(log, "tensor_parallel")),
            _rule(_setting("dp(?:_size)?", INTEGER), _int(log, "data_parallel")),
            _rule(r"ServerArgs\(.*\bkv_cache_dtype='(\w{1,40})'", _text(log, "kv_cache_dtype")),
            _rule(r"Using KV cache dtype: torch\.(\w{1,40})", _text(log, "kv_cache_dtype")),
            _rule(rf"\bswa_full_tokens_ratio={DECIMAL}", _float(log, "swa_full_tokens_ratio")),
            _rule(
                rf"Load weight begin\. avail mem={DECIMAL} GB", _reading(log, "free_before_load")
            ),
            _rule(
                rf"Load weight end\..{{0,200}}?avail mem={DECIMAL} GB",
                _reading(log, "free_after_load"),
            ),
            _rule(rf"Load weight end\..{{0,200}}?mem usage={DECIMAL} GB", _reading(log, "weights")),
            _rule(rf"KV Cache is allocated\..{{0,60}}?#tokens: {GROUPED}", _reading(log, "tokens")),
            _rule(
                rf"KV Cache is allocated\..{{0,120}}?K size: {DECIMAL} GB", _reading(log, "k_gib")
            ),
            _rule(
                rf"KV Cache is allocated\..{{0,160}}?V size: {DECIMAL} GB", _reading(log, "v_gib")
            ),
            _rule(
                rf"KV Cache is allocated\..{{0,120}}?KV size: {DECIMAL} GB", _reading(log, "kv_gib")
            ),
            _rule(
                rf"[Ss]liding window memory pool.{{0,30}}?full_layer_tokens={INTEGER}",
                _int(log, "full_layer_tokens"),
            ),
            _rule(
                rf"[Ss]liding window memory pool.{{0,120}}?swa_layer_tokens={INTEGER}",
                _int(log, "swa_layer_tokens"),
            ),
            _rule(rf"SWAKVPool mem usage: {DECIMAL} GB", _float(log, "swa_pool_gib")),
            _rule(
                rf"Mamba Cache is allocated\..{{0,20}}?max_mamba_cache_size: {INTEGER}",
                _int(log, "state_slots"),
            ),
            _rule(
                rf"Mamba Cache is allocated\..{{0,80}}?conv_state size: {DECIMAL}\s?GB",
                _float(log, "conv_state_gib"),
            ),
            _rule(
                rf"Mamba Cache is allocated\..{{0,120}}?ssm_state size: {DECIMAL}\s?GB",
                _float(log, "ssm_state_gib"),
            ),
            _rule(rf"\bmax_total_num_tokens={INTEGER}", _int(log, "max_total_tokens")),
            _rule(
                rf"max_total_num_tokens={INTEGER}, .{{0,160}}?max_running_requests={INTEGER}",
                _int(log, "max_running_requests", group=2),
            ),
            _rule(
                rf"max_total_num_tokens={INTEGER}, .{{0,200}}?context_len={INTEGER}",
                _int(log, "context_len", group=2),
            ),
        )


COMMAND = r"\bllama-(?:server|cli)\b.{0,2000}? "


class _LlamaCppReader(_Reader):
    words = ("llama", "llm_load", "print_info", "general.name", "build: ", "n_ctx", "KV self size")

    def __init__(self) -> None:
        super().__init__()
        self.log = log = LlamaCppLog()
        self._sliding = False
        self.rules = (
            _rule(r"^build: (\d{1,9} \(\w{1,40}\))", _text(log, "version")),
            _rule(r"general\.name\s{0,20}(?:str\s{0,20})?= (.{1,120})", _text(log, "model")),
            _rule(r"print_info: arch\s{0,30}= (\w[\w.-]{0,60})", _text(log, "architecture")),
            _rule(
                rf"(?:print_info|llm_load_print_meta): n_layer\s{{0,30}}= {INTEGER}",
                _int(log, "num_layers"),
            ),
            _rule(
                rf"(?:print_info|llm_load_print_meta): n_embd_k_gqa\s{{0,30}}= {INTEGER}\s{{0,5}}$",
                _int(log, "k_width"),
            ),
            _rule(
                rf"(?:print_info|llm_load_print_meta): n_swa\s{{0,30}}= {INTEGER}",
                _int(log, "window"),
            ),
            _rule(rf"\bn_seq_max\s{{0,20}}= {INTEGER}", _int(log, "slots")),
            _rule(rf"\bn_ctx\s{{0,20}}= {INTEGER}", self._context),
            _rule(rf"\bn_ctx_(?:per_)?seq\s{{0,20}}= {INTEGER}", _int(log, "context_per_slot")),
            _rule(rf"\bn_ubatch\s{{0,20}}= {INTEGER}", _int(log, "ubatch")),
            _rule(r"\bkv_unified\s{0,20}= (true|false|1|0)\b", _bool(log, "unified")),
            _rule(r"using (full)-size SWA cache", _flag(log, "swa_full")),
            _rule(rf"{COMMAND}(?:-c|--ctx-size) {INTEGER}", self._context),
            _rule(rf"{COMMAND}(?:-np|--parallel) {INTEGER}", _int(log, "slots")),
            _rule(rf"{COMMAND}(?:-ub|--ubatch-size) {INTEGER}", _int(log, "ubatch")),
            _rule(rf"{COMMAND}--swa-full\b", _flag(log, "swa_full")),
            _rule(r"llama_kv_cache\w{0,20}: creating\s{1,10}(non-SWA|SWA) KV cache", self._banner),
            _rule(
                rf"llama_kv_cache\w{{0,20}}: size\s{{0,4}}=\s{{0,10}}{DECIMAL} MiB(.*)",
                self._cache,
            ),
            _rule(rf"KV self size\s{{0,4}}=\s{{0,10}}{DECIMAL} MiB(.*)", self._cache),
            _rule(
                rf"llama_memory_recurrent: size\s{{0,4}}=\s{{0,10}}{DECIMAL} MiB(.*)", self._state
            ),
        )

    def _context(self, match: re.Match[str], number: int, rank: str) -> None:
        """The first context is the model's; a drafter's comes later and must not replace it."""
        self.log.context = self.log.context or int(match[1])

    def _banner(self, match: re.Match[str], number: int, rank: str) -> None:
        self._sliding = match[1] == "SWA"

    def _cache(self, match: re.Match[str], number: int, rank: str) -> None:
        rest = match[2]
        k_type, k_mib = _typed_size(rest, r"(?<![A-Za-z^])(?:K|c\^KV)")
        v_type, v_mib = _typed_size(rest, r"(?<![A-Za-z^])V")
        buffer = KvBuffer(
            mib=float(match[1]),
            cells=_find_int(rest, rf"{INTEGER} cells"),
            layers=_find_int(rest, rf"{INTEGER} layers"),
            slots=_find_int(rest, rf"{INTEGER}\s{{0,3}}(?:/\s{{0,3}}\d{{1,9}})? seqs"),
            streams=_find_int(rest, rf"\d{{1,9}}\s{{0,3}}/\s{{0,3}}{INTEGER} seqs"),
            k_type=k_type,
            k_mib=k_mib,
            v_type=v_type,
            v_mib=v_mib,
            sliding=self._sliding,
            line=number,
        )
        self.log.caches.append(buffer)
        self._sliding = False

    def _state(self, match: re.Match[str], number: int, rank: str) -> None:
        rest = match[2]
        self.log.states.append(
            StateBuffer(
                mib=float(match[1]),
                slots=_find_int(rest, rf"{INTEGER} cells"),
                layers=_find_int(rest, rf"{INTEGER} layers"),
                r_mib=_typed_size(rest, r"\bR")[1],
                s_mib=_typed_size(rest, r"\bS")[1],
                line=number,
            )
        )


def _setting(name: str, value: str) -> str:
    """A pattern for name=value as engines print settings, or as they are typed: --name value."""
    words = name.replace("_", "[-_]")
    return rf"(?<![\w-])(?:--)?{words}['\"]?(?:\s{{0,3}}[=:]\s{{0,3}}|\s{{1,3}})['\"]?{value}"


def _rule(pattern: str, take: Take) -> tuple[re.Pattern[str], Take]:
    return re.compile(pattern), take


def _text(log: EngineLog, name: str) -> Take:
    return lambda match, number, rank: setattr(log, name, match[1].strip())


def _int(log: EngineLog, name: str, group: int = 1) -> Take:
    def take(match: re.Match[str], number: int, rank: str) -> None:
        if match[group] is not None:
            setattr(log, name, _integer(match[group]))

    return take


def _float(log: EngineLog, name: str) -> Take:
    def take(match: re.Match[str], number: int, rank: str) -> None:
        if match[1] is not None:
            setattr(log, name, float(match[1]))

    return take


def _bool(log: EngineLog, name: str) -> Take:
    return lambda match, number, rank: setattr(log, name, match[1] in ("True", "true", "1"))


def _flag(log: EngineLog, name: str) -> Take:
    return lambda match, number, rank: setattr(log, name, True)


def _reading(log: EngineLog, name: str) -> Take:
    def take(match: re.Match[str], number: int, rank: str) -> None:
        value = float(match[1].replace(",", ""))
        getattr(log, name).append(Reading(value, rank, number))

    return take


def _integer(digits: str) -> int:
    return int(digits.replace(",", ""))


def _find_int(text: str, pattern: str) -> int | None:
    match = re.search(pattern, text)
    return int(match[1]) if match else None


def _typed_size(text: str, name: str) -> tuple[str | None, float | None]:
    """The storage type and the MiB of a part, as in `K (f16): 4608.00 MiB`."""
    match = re.search(rf"{name} \((\w{{1,20}})\):\s{{0,10}}{DECIMAL} MiB", text)
    return (match[1], float(match[2])) if match else (None, None)


RANK = re.compile(
    r"\((\w{0,20}Worker\w{0,30}(?: rank=\d{1,6})?|EngineCore_DP\d{1,6})\b[^)]{0,80}\)"
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ((?:(?:DP|TP|PP|EP)\d{1,6} ?){1,4})\]"
)


def _rank(line: str) -> str:
    match = RANK.search(line)
    if not match:
        return ""
    return (match[1] or match[2]).strip()


def lines_with_figures(log: EngineLog) -> Iterator[int]:
    """Numbers of the lines that gave a reading, for marking them in the pasted text."""
    for value in known_figures(log).values():
        if isinstance(value, list):
            yield from (item.line for item in value)
