"""Read what vLLM, SGLang and llama.cpp print about their KV cache when they start.

The readers are tolerant: lines may be in any order, prefixed by timestamps and process names,
repeated by every rank, or missing. A figure that was not printed is None, never zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvcore.engines.logs import llamacpp, sglang, vllm
from kvcore.engines.logs.figures import (
    EngineLog,
    KvBuffer,
    LlamaCppLog,
    LogError,
    Reading,
    SglangLog,
    StateBuffer,
    VllmLog,
    known_figures,
    lines_with_figures,
)
from kvcore.engines.logs.rules import Rule

__all__ = [
    "MAX_CHARACTERS",
    "EngineLog",
    "KvBuffer",
    "LlamaCppLog",
    "LogError",
    "Reading",
    "SglangLog",
    "StateBuffer",
    "VllmLog",
    "figure_lines",
    "known_figures",
    "lines_with_figures",
    "read_log",
]

MAX_CHARACTERS = 5_000_000
LONGEST_LINE = 20_000


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
    readers = _readers()
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


def figure_lines(text: str) -> list[str]:
    """The lines of a log that any reader understands, in order: a log cut to what counts."""
    readers = _readers()
    return [
        line
        for number, line in enumerate(text.splitlines(), start=1)
        if any(reader.read(piece, number) for piece in _pieces(line) for reader in readers)
    ]


def _pieces(line: str) -> Iterator[str]:
    """The line, cut where it is longer than any engine prints, so that matching stays quick."""
    for start in range(0, len(line), LONGEST_LINE):
        yield line[start : start + LONGEST_LINE]


class _Reader:
    """Applies a list of (pattern, action) to each line; actions fill in the log.

    Only lines with one of `words` are looked at: most of a log is about something else.
    """

    def __init__(self, log: EngineLog, words: tuple[str, ...], rules: tuple[Rule, ...]) -> None:
        self.log = log
        self.words = words
        self.rules = rules
        self.recognised = 0

    def read(self, line: str, number: int) -> bool:
        """Whether the line said anything."""
        if not any(word in line for word in self.words):
            return False
        rank = _rank(line)
        before = self.recognised
        for pattern, take in self.rules:
            for match in pattern.finditer(line):
                take(self.log, match, number, rank)
                self.recognised += 1
        return self.recognised > before


RANK = re.compile(
    r"\((\w{0,20}Worker\w{0,30}(?: rank=\d{1,6})?|EngineCore_DP\d{1,6})\b[^)]{0,80}\)"
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ((?:(?:DP|TP|PP|EP)\d{1,6} ?){1,4})\]"
)


def _rank(line: str) -> str:
    match = RANK.search(line)
    if not match:
        return ""
    return (match[1] or match[2]).strip()


def _readers() -> tuple[_Reader, ...]:
    return (
        _Reader(VllmLog(), vllm.WORDS, vllm.RULES),
        _Reader(SglangLog(), sglang.WORDS, sglang.RULES),
        _Reader(LlamaCppLog(), llamacpp.WORDS, llamacpp.RULES),
    )
