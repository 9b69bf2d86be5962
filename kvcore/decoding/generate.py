"""One token after another, with the cache or without it, each step timed."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Literal

from kvcore.checks import is_finite, is_whole
from kvcore.decoding.errors import PromptError, SettingsError
from kvcore.decoding.threads import DEFAULT_THREADS, check_threads, use_threads

if TYPE_CHECKING:
    from torch import Tensor

    from kvcore.decoding.model import Model

Clock = Callable[[], float]
Phase = Literal["prefill", "decode"]
SEEDS = range(2**63)


@dataclass(frozen=True)
class Step:
    """One new token and what it took.

    index: 0 for the first new token.
    seconds: of this step, sampling included.
    tokens_processed: tokens that ran through the model in this step.
    cache_bytes: keys and values held after this step; 0 without a cache.
    gap: how far the runner-up was from being chosen, in logits. At temperature 0 the difference
        between the two best tokens; with sampling the same after the draw has been added. Rounding
        smaller than half of it cannot change the token.
    phase: the first step runs the whole prompt either way; the later ones make one token each.
    """

    index: int
    token_id: int
    seconds: float
    tokens_processed: int
    cache_bytes: int
    gap: float
    phase: Phase


def generate(
    model: "Model",
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    use_cache: bool = True,
    temperature: float = 0.7,
    seed: int = 0,
    *,
    all_logits: bool = False,
    threads: int = DEFAULT_THREADS,
    clock: Clock = time.perf_counter,
) -> Iterator[Step]:
    """Yield exactly `max_new_tokens` steps; an end-of-text token does not stop a measurement.

    use_cache: one prefill, then one token a step. Without it every step runs the whole sequence.
    temperature: 0 takes the best token. Above it tokens are sampled; one generator a run, one draw
        a step, so that both ways draw the same.
    all_logits: compute the logits of every token that is run, as a naive loop does, not of the last
        one only. They are dropped at once.
    threads: set in the thread that consumes the steps.
    clock: seconds, as time.perf_counter.

    Raises PromptError for a prompt that is empty or does not fit with the new tokens, SettingsError
    for a temperature, seed or number out of range; both before the first step.
    """
    check_run(model, prompt_ids, max_new_tokens, temperature, seed, threads)
    way = Way(model, prompt_ids, max_new_tokens, use_cache, temperature, seed, all_logits, clock)
    return _steps(way, max_new_tokens, threads)


def _steps(way: "Way", count: int, threads: int) -> Iterator[Step]:
    use_threads(threads)
    for _ in range(count):
        yield way.step()


def check_run(
    model: "Model",
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
    threads: int = DEFAULT_THREADS,
) -> None:
    """Raise PromptError or SettingsError, in one sentence, for a run that is not possible."""
    if not hasattr(prompt_ids, "__len__"):
        raise PromptError(f"The prompt is a list of token ids, not {prompt_ids!r}.")
    prompt, limit = len(prompt_ids), model.context_length
    if prompt == 0:
        raise PromptError("The prompt is empty; the model needs at least one token to go on from.")
    if prompt >= limit:
        raise PromptError(
            f"The prompt has {prompt:,} tokens and {model.name} has {limit:,} positions, one of "
            "which must be left for a new token; shorten the prompt."
        )
    if not is_whole(max_new_tokens) or max_new_tokens < 1:
        raise SettingsError(
            f"A run makes a whole number of tokens from 1 up, not {max_new_tokens}."
        )
    if prompt + max_new_tokens > limit:
        raise PromptError(
            f"The prompt has {prompt:,} tokens, so at most {limit - prompt:,} new ones fit into "
            f"the {limit:,} positions of {model.name}, not {max_new_tokens:,}."
        )
    for token_id in prompt_ids:
        if not _is_token(token_id):
            raise PromptError(f"A token id is a whole number, not {token_id!r}.")
    outside = next((t for t in prompt_ids if not 0 <= t < model.vocab_size), None)
    if outside is not None:
        raise PromptError(
            f"Token {outside} is not among the {model.vocab_size:,} of {model.name}'s vocabulary."
        )
    if not (is_finite(temperature) and temperature >= 0):
        raise SettingsError(f"The temperature is a number from 0 up, not {temperature}.")
    if not is_whole(seed) or seed not in SEEDS:
        raise SettingsError(f"The seed is a whole number from 0 to 2^63 - 1, not {seed}.")
    check_threads(threads)


def _is_token(value: object) -> bool:
    """An integer of any kind, a tensor's too."""
    try:
        index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


class Way:
    """One way through the same text: with a cache or without. Call `step` as often as wanted.

    token_ids: prompt and everything generated.
    logits: [vocab_size], of the last step.
    noise: what the last step's draw added to the logits, None at temperature 0.
    """

    def __init__(
        self,
        model: "Model",
        prompt_ids: Sequence[int],
        max_new_tokens: int,
        use_cache: bool,
        temperature: float,
        seed: int,
        all_logits: bool = False,
        clock: Clock = time.perf_counter,
    ) -> None:
        import torch

        self.model = model
        self.token_ids = [int(token_id) for token_id in prompt_ids]
        self.cache = model.new_cache(len(prompt_ids) + max_new_tokens) if use_cache else None
        self.logits: Tensor | None = None
        self.noise: Tensor | None = None
        self._temperature = temperature
        self._generator = torch.Generator().manual_seed(seed)
        self._all_logits = all_logits
        self._clock = clock
        self._index = 0

    def step(self) -> Step:
        """Run the model, choose a token, append it."""
        from kvcore.decoding.model import forward

        length, held = len(self.token_ids), len(self.cache or ())
        began = self._clock()
        logits = forward(self.model, self.token_ids, self.cache, all_logits=self._all_logits)
        self.logits = logits[-1].clone() if self._all_logits else logits[-1]
        self.noise = draw(self.logits, self._temperature, self._generator)
        token_id, gap = choose(self.logits, self.noise)
        seconds = self._clock() - began
        self.token_ids.append(token_id)
        self._index += 1
        return Step(
            index=self._index - 1,
            token_id=token_id,
            seconds=seconds,
            tokens_processed=length - held,
            cache_bytes=self.cache.nbytes if self.cache is not None else 0,
            gap=gap,
            phase="prefill" if self._index == 1 else "decode",
        )


def draw(logits: "Tensor", temperature: float, generator: object) -> "Tensor | None":
    """Noise that turns taking the best token into sampling from softmax(logits / temperature).

    Adding Gumbel noise and taking the largest samples from the softmax (Maddison, Tarlow and Minka
    2014, arXiv:1411.0030, section 2); scaled by the temperature it stays in units of logits.
    """
    import torch

    if temperature == 0:
        return None
    with torch.inference_mode():
        waiting = torch.empty_like(logits).exponential_(generator=generator)
        return waiting.log_().mul_(-temperature)


def choose(logits: "Tensor", noise: "Tensor | None") -> tuple[int, float]:
    """The best token after the draw, and how far the second best is behind."""
    import torch

    with torch.inference_mode():
        scores = logits if noise is None else logits + noise
        (best, second), (token_id, _) = (x.tolist() for x in scores.topk(2))
    return token_id, best - second
