"""One timing run from settings to figures: what the live page, the recorder and the tests share."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kvcore import recordings
from kvcore.decoding.compare import DEFAULT_SAMPLES, Comparison, Pair, compare
from kvcore.decoding.errors import DecodingError, PromptError
from kvcore.decoding.generate import Step
from kvcore.decoding.memory import available_bytes
from kvcore.decoding.shelf import SHELF
from kvcore.decoding.tokenizer import GrowingText

if TYPE_CHECKING:
    from kvcore.decoding.model import Model

RECORDING = "live_timing"

PEER_EVERY = 8
"""The reference is timed at every so many tokens; it takes those between in one pass."""

BUSY_BELOW = 0.9
"""A run whose thread had the processor for less than this share of the time was disturbed."""


@dataclass(frozen=True)
class Settings:
    """samples: uncached steps to measure, None for all. all_logits: the naive uncached loop."""

    model: str = "gpt2"
    prompt: str = ""
    new_tokens: int = 48
    temperature: float = 0.0
    seed: int = 0
    threads: int = 1
    samples: int | None = None
    all_logits: bool = False
    with_peer: bool = True

    @classmethod
    def sampled(cls, **settings: Any) -> "Settings":
        return cls(samples=DEFAULT_SAMPLES, **settings)


@dataclass(frozen=True)
class Facts:
    """What must be known of the model to read the figures.

    bytes_read: by a cached step before the cache itself. cache_bytes_per_token: in fp32.
    """

    name: str
    source: str
    notice: str | None
    prompt_tokens: int
    context_length: int
    bytes_read: int
    cache_bytes_per_token: int


@dataclass
class Run:
    """A run as far as it has come. Written by the thread that measures, read by whoever draws.

    status: what is being done before the first step. pieces: the text of each new token by itself;
    a character that takes several tokens is whole only in `cached_text`. peer: (index, seconds) of
    `transformers`' cached steps. bytes_per_second: a pure read of the weights, the better of before
    the first step and after the last. cpu_share: how much of the time the measuring thread had a
    processor.
    """

    settings: Settings
    status: str = "Waiting to start"
    facts: Facts | None = None
    comparison: Comparison | None = None
    pieces: list[str] = field(default_factory=list)
    cached_text: str = ""
    uncached_text: str = ""
    peer: list[tuple[int, float]] = field(default_factory=list)
    peer_notice: str | None = None
    bytes_per_second: float | None = None
    cpu_share: float | None = None
    _replies: "tuple[GrowingText, GrowingText] | None" = field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def pairs(self) -> list[Pair]:
        return self.comparison.pairs if self.comparison else []

    @property
    def was_disturbed(self) -> bool:
        """Other work took the processor away; judged on one thread only."""
        known = self.cpu_share is not None and self.settings.threads == 1
        return known and self.cpu_share < BUSY_BELOW

    def floor_seconds(self, index: int) -> float | None:
        """The least that cached step `index` can take: weights and cache read once."""
        if self.bytes_per_second is None or self.facts is None:
            return None
        cached = self.facts.prompt_tokens + index
        num_bytes = self.facts.bytes_read + cached * self.facts.cache_bytes_per_token
        return num_bytes / self.bytes_per_second

    def share_of_floor(self) -> float | None:
        """Median over the decode steps of the floor divided by the time taken."""
        shares = sorted(
            floor / pair.cached.seconds
            for pair in self.pairs[1:]
            if (floor := self.floor_seconds(pair.index)) is not None
        )
        return shares[len(shares) // 2] if shares else None

    def measure(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[Pair]:
        """Load, check and measure, a pair at a time. Raises DecodingError in one sentence."""
        if not self.settings.prompt:
            raise PromptError("The prompt is empty: type at least one character to go on from.")
        model = self._load(stopped)
        prompt_ids = model.encode(self.settings.prompt)
        pairs = self._compare(model, prompt_ids)
        self._measure_bandwidth(model)
        peer = self._peer(model, prompt_ids)
        began, busy_before = time.perf_counter(), time.thread_time()
        for pair in pairs:
            self._take(model, pair)
            if peer is not None:
                self._follow(peer)
            self.cpu_share = (time.thread_time() - busy_before) / (time.perf_counter() - began)
            yield pair
        self._measure_bandwidth(model)

    def _load(self, stopped: Callable[[], bool]) -> "Model":
        self.status = f"Loading {self.settings.model}"

        def tell(progress: object) -> None:
            self.status = str(progress)

        return SHELF.take(self.settings.model, progress=tell, should_stop=stopped)

    def _compare(self, model: "Model", prompt_ids: Sequence[int]) -> Iterator[Pair]:
        s = self.settings
        pairs = compare(
            model,
            prompt_ids,
            s.new_tokens,
            temperature=s.temperature,
            seed=s.seed,
            samples=s.samples,
            all_logits=s.all_logits,
            threads=s.threads,
        )
        self.facts = Facts(
            model.name,
            model.source,
            model.notice,
            len(prompt_ids),
            model.context_length,
            model.bytes_read_per_token(0),
            model.cache_bytes_per_token,
        )
        self.comparison = Comparison(len(prompt_ids), s.new_tokens, s.samples)
        self._replies = (GrowingText(model.decode), GrowingText(model.decode))
        return pairs

    def _measure_bandwidth(self, model: "Model") -> None:
        from kvcore.decoding.bandwidth import measure_bandwidth

        self.status = "Measuring how fast memory can be read"
        bandwidth = measure_bandwidth(model, threads=self.settings.threads)
        self.bytes_per_second = max(bandwidth.bytes_per_second, self.bytes_per_second or 0)

    def _peer(self, model: "Model", prompt_ids: Sequence[int]) -> "_Peer | None":
        """The reference, or None with the reason in `peer_notice`."""
        if not self.settings.with_peer:
            return None
        self.status = "Preparing the reference"
        free = available_bytes()
        if free is not None and free < 2 * model.weight_bytes:
            self.peer_notice = "There was too little free memory for the reference line."
            return None
        try:
            return _Peer(model, prompt_ids)
        except DecodingError as error:
            self.peer_notice = str(error)
            return None

    def _take(self, model: "Model", pair: Pair) -> None:
        self.comparison.add(pair)
        self.pieces.append(model.decode([pair.cached.token_id]))
        cached, uncached = self._replies
        self.cached_text = cached.add(pair.cached.token_id)
        if not self.comparison.is_sampled:
            self.uncached_text = uncached.add(pair.uncached.token_id)

    def _follow(self, peer: "_Peer") -> None:
        """The reference's own cached step for the token before the newest, now and then."""
        pair = self.pairs[-1]
        if pair.index and pair.index % PEER_EVERY == 0:
            ids = [each.cached.token_id for each in self.pairs[:-1]]
            self.peer.append((pair.index, peer.follow(ids)))

    def as_data(self) -> dict[str, Any]:
        """Everything needed to show the run again, as JSON values."""
        return {
            "settings": asdict(self.settings),
            "facts": asdict(self.facts),
            "prompt": self.settings.prompt,
            "pieces": self.pieces,
            "text": self.cached_text,
            "token_ids": [pair.cached.token_id for pair in self.pairs],
            "cached_seconds": [round(pair.cached.seconds, 6) for pair in self.pairs],
            "uncached_seconds": [
                round(pair.uncached.seconds, 6) if pair.uncached else None for pair in self.pairs
            ],
            "gaps": [float(f"{pair.cached.gap:.4g}") for pair in self.pairs],
            "differences": [
                None if pair.difference is None else float(f"{pair.difference:.4g}")
                for pair in self.pairs
            ],
            "largest_logit": max(pair.largest_logit for pair in self.pairs),
            "peer": [[index, round(seconds, 6)] for index, seconds in self.peer],
            "bytes_per_second": round(self.bytes_per_second),
            "cpu_share": self.cpu_share and round(self.cpu_share, 3),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Run":
        """The run that `as_data` described, with both texts the same."""
        settings, facts = Settings(**data["settings"]), Facts(**data["facts"])
        run = cls(settings, "Recorded", facts)
        run.comparison = Comparison(facts.prompt_tokens, settings.new_tokens, settings.samples)
        for index in range(len(data["token_ids"])):
            run.comparison.add(_recorded_pair(data, facts, index))
        run.pieces = list(data["pieces"])
        run.cached_text = data["text"]
        run.uncached_text = "" if run.comparison.is_sampled else data["text"]
        run.peer = [(index, seconds) for index, seconds in data["peer"]]
        run.bytes_per_second = data["bytes_per_second"]
        run.cpu_share = data["cpu_share"]
        return run


def _recorded_pair(data: Mapping[str, Any], facts: Facts, index: int) -> Pair:
    length = facts.prompt_tokens + index
    token_id, gap = data["token_ids"][index], data["gaps"][index]
    phase = "decode" if index else "prefill"
    cached = Step(
        index,
        token_id,
        data["cached_seconds"][index],
        1 if index else length,
        length * facts.cache_bytes_per_token,
        gap,
        phase,
    )
    seconds = data["uncached_seconds"][index]
    uncached = None
    if seconds is not None:
        uncached = Step(index, token_id, seconds, length, 0, gap, phase)
    return Pair(index, cached, uncached, data["differences"][index], data["largest_logit"])


@lru_cache
def recorded() -> Run:
    """The run shown at a first visit: 1,000 tokens each way, every step measured."""
    return Run.from_data(recordings.read(RECORDING).data)


class _Peer:
    """`transformers`' own cached step over the same text."""

    def __init__(self, model: "Model", prompt_ids: Sequence[int]) -> None:
        from kvcore.decoding.reference import TransformersSteps

        self._steps = TransformersSteps(model)
        self._prompt_ids = list(prompt_ids)
        self._seen = 0

    def follow(self, new_ids: Sequence[int]) -> float:
        """Catch up with the text untimed, then time the step for its last token, in seconds."""
        tokens = [*self._prompt_ids, *new_ids]
        if self._seen < len(tokens) - 1:
            self._steps.step(tokens[self._seen : -1])
        _, seconds = self._steps.step(tokens[-1:])
        self._seen = len(tokens)
        return seconds
