"""How llama.cpp prints its figures when it starts."""

from __future__ import annotations

import re

from kvcore.engines.logs.figures import KvBuffer, LlamaCppLog, StateBuffer
from kvcore.engines.logs.rules import (
    DECIMAL,
    INTEGER,
    find_whole,
    flag,
    rule,
    switch,
    text,
    typed_size,
    whole,
)


def _context(log: LlamaCppLog, match: re.Match[str], line: int, rank: str) -> None:
    """The first context is the model's; a drafter's comes later and must not replace it."""
    log.context = log.context or int(match[1])


def _banner(log: LlamaCppLog, match: re.Match[str], line: int, rank: str) -> None:
    log.next_is_sliding = match[1] == "SWA"


def _cache(log: LlamaCppLog, match: re.Match[str], line: int, rank: str) -> None:
    rest = match[2]
    k_type, k_mib = typed_size(rest, r"(?<![A-Za-z^])(?:K|c\^KV)")
    v_type, v_mib = typed_size(rest, r"(?<![A-Za-z^])V")
    buffer = KvBuffer(
        mib=float(match[1]),
        cells=find_whole(rest, rf"{INTEGER} cells"),
        layers=find_whole(rest, rf"{INTEGER} layers"),
        slots=find_whole(rest, rf"{INTEGER}\s{{0,3}}(?:/\s{{0,3}}\d{{1,9}})? seqs"),
        streams=find_whole(rest, rf"\d{{1,9}}\s{{0,3}}/\s{{0,3}}{INTEGER} seqs"),
        k_type=k_type,
        k_mib=k_mib,
        v_type=v_type,
        v_mib=v_mib,
        sliding=log.next_is_sliding,
        line=line,
    )
    log.caches.append(buffer)
    log.next_is_sliding = False


def _state(log: LlamaCppLog, match: re.Match[str], line: int, rank: str) -> None:
    rest = match[2]
    log.states.append(
        StateBuffer(
            mib=float(match[1]),
            slots=find_whole(rest, rf"{INTEGER} cells"),
            layers=find_whole(rest, rf"{INTEGER} layers"),
            r_mib=typed_size(rest, r"\bR")[1],
            s_mib=typed_size(rest, r"\bS")[1],
            line=line,
        )
    )


COMMAND = r"\bllama-(?:server|cli)\b.{0,2000}? "

WORDS = (
    "llama",
    "llm_load",
    "print_info",
    "general.name",
    "build: ",
    "n_ctx",
    "KV self size",
)
RULES = (
    rule(r"^build: (\d{1,9} \(\w{1,40}\))", text("version")),
    rule(r"general\.name\s{0,20}(?:str\s{0,20})?= (.{1,120})", text("model")),
    rule(r"print_info: arch\s{0,30}= (\w[\w.-]{0,60})", text("architecture")),
    rule(
        rf"(?:print_info|llm_load_print_meta): n_layer\s{{0,30}}= {INTEGER}",
        whole("num_layers"),
    ),
    rule(
        rf"(?:print_info|llm_load_print_meta): n_embd_k_gqa\s{{0,30}}= {INTEGER}\s{{0,5}}$",
        whole("k_width"),
    ),
    rule(
        rf"(?:print_info|llm_load_print_meta): n_swa\s{{0,30}}= {INTEGER}",
        whole("window"),
    ),
    rule(rf"\bn_seq_max\s{{0,20}}= {INTEGER}", whole("slots")),
    rule(rf"\bn_ctx\s{{0,20}}= {INTEGER}", _context),
    rule(rf"\bn_ctx_(?:per_)?seq\s{{0,20}}= {INTEGER}", whole("context_per_slot")),
    rule(rf"\bn_ubatch\s{{0,20}}= {INTEGER}", whole("ubatch")),
    rule(r"\bkv_unified\s{0,20}= (true|false|1|0)\b", switch("unified")),
    rule(r"using (full)-size SWA cache", flag("swa_full")),
    rule(rf"{COMMAND}(?:-c|--ctx-size) {INTEGER}", _context),
    rule(rf"{COMMAND}(?:-np|--parallel) {INTEGER}", whole("slots")),
    rule(rf"{COMMAND}(?:-ub|--ubatch-size) {INTEGER}", whole("ubatch")),
    rule(rf"{COMMAND}--swa-full\b", flag("swa_full")),
    rule(r"llama_kv_cache\w{0,20}: creating\s{1,10}(non-SWA|SWA) KV cache", _banner),
    rule(
        rf"llama_kv_cache\w{{0,20}}: size\s{{0,4}}=\s{{0,10}}{DECIMAL} MiB(.*)",
        _cache,
    ),
    rule(rf"KV self size\s{{0,4}}=\s{{0,10}}{DECIMAL} MiB(.*)", _cache),
    rule(rf"llama_memory_recurrent: size\s{{0,4}}=\s{{0,10}}{DECIMAL} MiB(.*)", _state),
)
