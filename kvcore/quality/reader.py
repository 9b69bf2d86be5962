"""A real model that reads a text through a treated cache.

Keys and values are rounded as they are written, as engines do it; only keys with scales along a
channel stay as computed until a query looks at them. A position that a policy let go is hidden
from every later query, which gives the numbers of evicting it (each key and value is still made
with what was visible at its time) at the speed of one pass, and lets a reader go back to an
earlier place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from kvcore import eviction
from kvcore.decoding.errors import PromptError
from kvcore.decoding.layers import Pass
from kvcore.decoding.model import Model
from kvcore.quality.treatments import CHANNEL_GROUP, Treatment
from kvcore.quantise import restored


class Stopped(Exception):
    """The run was asked to end; raised between two layers."""


@dataclass
class HeavyState:
    """One layer's heavy hitters: who is held, and the attention each has received so far.

    held, mass: [num_kv_heads, capacity].
    """

    held: Tensor
    mass: Tensor

    def copy(self) -> HeavyState:
        return HeavyState(self.held.clone(), self.mass.clone())


@dataclass(frozen=True)
class Mark:
    """A place in the text to go back to."""

    length: int
    heavy: dict[int, HeavyState] = field(default_factory=dict)


class Reader:
    """A model and one treated cache: read on, mark a place, go back to it.

    Raises ValueError when the model's KV heads cannot be pooled evenly.
    """

    def __init__(
        self,
        model: Model,
        treatment: Treatment,
        capacity: int,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        pooled = treatment.pooled_kv_heads
        if pooled is not None and model.config.num_kv_heads % pooled:
            raise ValueError(
                f"{model.config.num_kv_heads} KV heads cannot be pooled to {pooled} evenly."
            )
        self.model = model
        self.treatment = treatment
        self.stopping = stopping
        self.token_ids: list[int] = []
        self.heavy: dict[int, HeavyState] = {}
        self.cache = model.new_cache(capacity)

    @torch.inference_mode()
    def read(self, token_ids: Sequence[int]) -> Tensor:
        """Go on by these tokens; their last hidden states [n, hidden_size], before the head.

        Raises Stopped between two layers once `stopping()` is true, PromptError for more tokens
        than the model has positions, and CacheError for more than the cache has room for.
        """
        network = self.model.network
        length = len(self.token_ids) + len(token_ids)
        if length > self.model.context_length:
            raise PromptError(
                f"{length:,} tokens are more than the {self.model.context_length:,} positions of "
                f"{self.model.name}."
            )
        new_ids = self.cache.new_tokens(network, [*self.token_ids, *token_ids])
        hidden = network.hidden(TreatedPass(self, new_ids))
        self.cache.commit(new_ids)
        self.token_ids += new_ids
        return hidden

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """[n, hidden_size] → [n, vocab_size]"""
        return self.model.network.logits(hidden)

    def mark(self) -> Mark:
        return Mark(len(self.token_ids), {layer: s.copy() for layer, s in self.heavy.items()})

    def rewind(self, mark: Mark) -> None:
        """Forget what was read after the mark."""
        self.cache.crop(mark.length)
        del self.token_ids[mark.length :]
        self.heavy = {layer: state.copy() for layer, state in mark.heavy.items()}

    @property
    def cache_bytes(self) -> int:
        """What the treated cache holds now, scales included."""
        c = self.model.config
        return self.treatment.cache_bytes(
            c.num_layers, c.num_kv_heads, c.head_dim, len(self.token_ids)
        )


class TreatedPass(Pass):
    """New tokens through the network, each looking at what the treatment left of the cache."""

    def __init__(self, reader: Reader, new_ids: Sequence[int]) -> None:
        super().__init__(new_ids, reader.cache)
        self.reader = reader
        self.treatment = reader.treatment
        self.visible = self._visible()

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """queries: [n, num_heads, head_dim]; keys, values: [n, num_kv_heads, head_dim]."""
        if self.reader.stopping():
            raise Stopped
        queries, keys, values = (x.transpose(0, 1) for x in (queries, keys, values))
        keys, values = self.cache.write(
            layer, self._stored_keys(layer, keys), self._stored_values(layer, values)
        )
        mixed = self._mixed(layer, queries, keys, values)
        return mixed.transpose(0, 1).reshape(self.num_new, -1)

    def _stored_keys(self, layer: int, keys: Tensor) -> Tensor:
        pooled = self._pooled(layer, keys)
        if self.treatment.keys_per_channel:
            return pooled
        return restored_rows(pooled, self.treatment.key_format)

    def _stored_values(self, layer: int, values: Tensor) -> Tensor:
        return restored_rows(self._pooled(layer, values), self.treatment.value_format)

    def _mixed(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """What each query takes from the values: [num_heads, n, head_dim]."""
        if self.treatment.keys_per_channel:
            return mix(self._channel_scores(queries, keys).softmax(dim=-1), values)
        if self.treatment.policy == eviction.HEAVY_HITTERS:
            return mix(self._heavy_weights(layer, grouped_scores(queries, keys)), values)
        return F.scaled_dot_product_attention(
            queries[None],
            keys[None],
            values[None],
            attn_mask=self.visible,
            enable_gqa=queries.shape[0] != keys.shape[0],
        )[0]

    def _visible(self) -> Tensor:
        """[n, slots], True where a query may look: what the policy keeps once it is written."""
        slots = self.num_held + self.num_new
        if self.treatment.policy in (eviction.NONE, eviction.HEAVY_HITTERS):
            return torch.ones(self.num_new, slots, dtype=torch.bool).tril(self.num_held)
        visible = torch.zeros(self.num_new, slots, dtype=torch.bool)
        for row in range(self.num_new):
            visible[row, self.treatment.kept_positions(self.num_held + row + 1)] = True
        return visible

    def _pooled(self, layer: int, x: Tensor) -> Tensor:
        """[num_kv_heads, n, head_dim], neighbouring heads each replaced by their mean.

        Rotation and projection are linear, so the mean of rotated keys is the key of the mean
        projection: pooling here is pooling the weights.
        """
        config = self.reader.model.config
        heads = self.treatment.kv_heads(layer, config.num_layers, config.num_kv_heads)
        if heads == x.shape[0]:
            return x
        shared = x.unflatten(0, (heads, -1)).mean(dim=1)
        return shared.repeat_interleave(x.shape[0] // heads, dim=0)

    def _channel_scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Scores against keys quantised per channel; a query's own group of 32 is still open."""
        still_open = grouped_scores(queries, restored_rows(keys, "bf16"))
        closed = grouped_scores(queries, restored_channels(keys, self.treatment.key_format))
        slots = torch.arange(keys.shape[1])
        rows = slots[self.num_held :, None] // CHANNEL_GROUP
        scores = torch.where(rows == slots // CHANNEL_GROUP, still_open, closed)
        return scores.masked_fill(~self.visible, float("-inf"))

    def _heavy_weights(self, layer: int, scores: Tensor) -> Tensor:
        """Attention weights while positions are let go one by one: as `scores`, written over.

        Each KV head has heavy hitters of its own, by the attention of the query heads that share
        it (H2O, Zhang et al. 2023, §4).
        """
        state = self.reader.heavy.setdefault(layer, self._new_heavy_state(scores.shape[0]))
        budget = self.treatment.budget
        for row in range(self.num_new):
            length = self.num_held + row + 1
            held, mass = state.held[:, :length], state.mass[:, :length]
            held[:, -1] = True
            if length > budget.total:
                let_go_lightest(held, mass, budget.recent)
            now = scores[:, :, row, :length]
            now.masked_fill_(~held[:, None], float("-inf"))
            now.copy_(now.softmax(dim=-1))
            mass += now.sum(dim=1)
            scores[:, :, row, length:] = 0
        return scores

    def _new_heavy_state(self, num_kv_heads: int) -> HeavyState:
        shape = (num_kv_heads, self.cache.capacity)
        return HeavyState(torch.zeros(shape, dtype=torch.bool), torch.zeros(shape))


def let_go_lightest(held: Tensor, mass: Tensor, recent: int) -> None:
    """Let go, per KV head, of the held position before the recent ones that weighs least.

    held, mass: [num_kv_heads, length]. Of equals the latest goes, as in `kept_positions`.
    """
    earlier = held.shape[1] - recent
    weight = mass[:, :earlier].masked_fill(~held[:, :earlier], float("inf"))
    latest_first = weight.flip(1)
    lightest = earlier - 1 - latest_first.argmin(dim=1, keepdim=True)
    held.scatter_(1, lightest, False)


def grouped_scores(queries: Tensor, keys: Tensor) -> Tensor:
    """Scaled products, by KV head and query head of its group: [num_kv_heads, group, n, slots]."""
    grouped = queries.unflatten(0, (keys.shape[0], -1)) * queries.shape[-1] ** -0.5
    return grouped @ keys[:, None].transpose(-1, -2)


def mix(weights: Tensor, values: Tensor) -> Tensor:
    """[num_kv_heads, group, n, slots] × [num_kv_heads, slots, dim] → [num_heads, n, dim]"""
    return (weights @ values[:, None]).flatten(0, 1)


def restored_rows(x: Tensor, name: str) -> Tensor:
    """[num_kv_heads, slots, head_dim] through a format, one token's row at a time."""
    if name == "fp32":
        return x
    return restored(x.transpose(0, 1), name).transpose(0, 1)


def restored_channels(keys: Tensor, name: str) -> Tensor:
    """[num_kv_heads, slots, head_dim] with scales along full groups of 32 tokens of a channel.

    Tokens of a last group that is not full come back as they were.
    """
    heads, slots, dim = keys.shape
    full = slots - slots % CHANNEL_GROUP
    if not full:
        return keys
    channels = keys[:, :full].transpose(1, 2).reshape(heads * dim, full)
    closed = restored(channels, name).view(heads, dim, full).transpose(1, 2)
    return torch.cat([closed, keys[:, full:]], dim=1)
