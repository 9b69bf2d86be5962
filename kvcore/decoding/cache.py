"""The key-value cache of one sequence, as an object that cannot be misused in silence.

A cache remembers which tokens it was computed from. `forward` is always given the *whole* sequence
and works out for itself which part is new, so a cache of another text, one that already went on
past the prompt, restarted positions or a mask of the wrong length cannot be passed by mistake:
they are either impossible to express or raise `CacheError`.

A slot is a place in the tensors. An *index* says which token of the text (0, 1, 2, …) a slot holds;
its *position* is the number the model was told. Both equal the slot until something is evicted.

    cache = model.new_cache()                       # or new_cache(capacity=64)
    logits = forward(model, prompt, cache)          # prefill; cache.token_ids == prompt
    logits = forward(model, prompt + [t], cache)    # one more token
    shared = cache.reuse(other_prompt)              # crop to what both share, at most len - 1

    stored = cache.prefix(200)                      # a copy of the first 200, to keep elsewhere
    fresh = model.new_cache(); fresh.restore(stored)

    cache.keep([0, 1, 2, 3, *range(100, len(cache.token_ids))])   # evict all other indices
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

import torch
from torch import Tensor

from kvcore.decoding.errors import CacheError
from kvcore.decoding.rotary import angles, rotate


@dataclass(frozen=True)
class Prefix:
    """Keys and values of the start of a text, with the tokens they belong to.

    keys, values: [num_layers, num_kv_heads, len(token_ids), head_dim].
    """

    owner: object
    token_ids: tuple[int, ...]
    keys: Tensor
    values: Tensor

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes


class KVCache:
    """Keys and values of every layer for one sequence: preallocated, appended in place.

    keys, values:    [num_layers, num_kv_heads, capacity, head_dim]; only the first `len(cache)`
                     slots mean anything.
    token_ids:       every token computed so far, evicted or not.
    kept:            for each slot, the index in `token_ids` of the token it holds, ascending.
    positions:       for each slot, the position number its key was made with.
    next_position:   the position the next token will get.
    attention_mass:  [num_layers, num_kv_heads, capacity], or None unless `track_attention`:
                     attention each slot has received so far, summed over queries and query heads
                     (the score of H2O, Zhang et al. 2023, arXiv:2306.14048, section 4).
    """

    def __init__(
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        capacity: int,
        *,
        owner: object = None,
        frequencies: Tensor | None = None,
        track_attention: bool = False,
    ) -> None:
        """`owner` is the network whose keys these are; `frequencies` its rotary ones, if any."""
        if capacity < 1:
            raise CacheError(f"A cache needs room for at least one position, not {capacity}.")
        shape = (num_layers, num_kv_heads, capacity, head_dim)
        with torch.inference_mode():
            self.keys = torch.empty(shape)
            self.values = torch.empty(shape)
            self.attention_mass = torch.zeros(shape[:3]) if track_attention else None
        self.token_ids: list[int] = []
        self.kept: list[int] = []
        self.positions: list[int] = []
        self.next_position = 0
        self._owner = owner
        self._frequencies = frequencies

    def __len__(self) -> int:
        """Slots in use."""
        return len(self.kept)

    @property
    def owner(self) -> object:
        """The network whose keys and values these are."""
        return self._owner

    @property
    def capacity(self) -> int:
        return self.keys.shape[2]

    @property
    def bytes_per_token(self) -> int:
        """2 × layers × KV heads × head dimension × bytes per number."""
        num_layers, num_kv_heads, _, head_dim = self.keys.shape
        return 2 * num_layers * num_kv_heads * head_dim * self.keys.element_size()

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values that hold something."""
        return len(self) * self.bytes_per_token

    @property
    def allocated_bytes(self) -> int:
        """Bytes reserved, used or not."""
        return self.keys.nbytes + self.values.nbytes

    @property
    def evicted(self) -> bool:
        """True once any token seen is no longer held."""
        return len(self) < len(self.token_ids)

    # Used by forward

    def new_tokens(self, owner: object, token_ids: Sequence[int]) -> list[int]:
        """The part of the whole sequence `token_ids` that is not in this cache yet.

        Raises CacheError when the cache belongs to other weights or to another text, holds the
        whole sequence already, or has no room for the rest.
        """
        if owner is not self._owner:
            raise CacheError("This cache was filled by another model; make one with new_cache().")
        seen = len(self.token_ids)
        if list(token_ids[:seen]) != self.token_ids:
            raise CacheError(
                f"This cache holds another text: it shares {self._shared(token_ids)} of its {seen} "
                "tokens with the sequence; call reuse() to keep those."
            )
        new = list(token_ids[seen:])
        if not new:
            raise CacheError(
                f"All {seen} tokens are cached, so nothing is left to compute logits from; "
                f"crop({max(seen - 1, 0)}) first or call reuse()."
            )
        if len(self) + len(new) > self.capacity:
            raise CacheError(
                f"This cache has room for {self.capacity} positions; {len(self)} are taken and "
                f"{len(new)} more do not fit."
            )
        return new

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put new keys and values ([num_kv_heads, n, head_dim]) behind the slots in use.

        Returns views over old and new together. They count as held only after `commit`, so a pass
        that breaks off half-way leaves the cache as it was.
        """
        start, end = len(self), len(self) + keys.shape[1]
        self.keys[layer, :, start:end] = keys
        self.values[layer, :, start:end] = values
        return self.keys[layer, :, :end], self.values[layer, :, :end]

    def add_attention(self, layer: int, weights: Tensor) -> None:
        """Add one layer's attention weights ([num_heads, n, slots]) to `attention_mass`."""
        num_kv_heads, slots = self.keys.shape[1], weights.shape[-1]
        per_kv_head = weights.reshape(num_kv_heads, -1, slots).sum(dim=1)
        self.attention_mass[layer, :, :slots] += per_kv_head

    def commit(self, new_ids: Sequence[int]) -> None:
        """Count the tokens just written as held."""
        seen, n = len(self.token_ids), len(new_ids)
        self.token_ids.extend(new_ids)
        self.kept.extend(range(seen, seen + n))
        self.positions.extend(range(self.next_position, self.next_position + n))
        self.next_position += n

    # For whoever manages the cache

    def crop(self, length: int) -> None:
        """Forget every token from index `length` on. crop(0) empties the cache.

        Raises CacheError outside 0 … number of tokens seen. After an eviction only whole tokens
        that are still the tail can go: the rest of the text must be held as it was.
        """
        seen = len(self.token_ids)
        if not 0 <= length <= seen:
            raise CacheError(f"Cannot crop to {length}: the cache has seen {seen} tokens.")
        slots = sum(index < length for index in self.kept)
        if length and slots and self.kept[slots - 1] != length - 1:
            raise CacheError(
                f"Cannot crop to {length}: token {length - 1} was evicted, and what followed it "
                "was computed with it."
            )
        if length and not slots:
            raise CacheError(f"Cannot crop to {length}: none of those tokens is held any more.")
        if self.attention_mass is not None and length < seen:
            if length:
                raise CacheError(
                    "The attention added up so far includes that of the tokens to be cropped; only "
                    "crop(0) is possible with track_attention."
                )
            with torch.inference_mode():
                self.attention_mass.zero_()
        del self.token_ids[length:], self.kept[slots:], self.positions[slots:]
        self.next_position = self.positions[-1] + 1 if self.positions else 0

    def reuse(self, token_ids: Sequence[int]) -> int:
        """Crop to what this cache shares with the sequence `token_ids`; return how many tokens.

        At most len(token_ids) - 1, since the last token has to be run to get logits. A cache that
        has evicted tokens or adds up attention is emptied: neither can be taken back in part.
        """
        shared = max(0, min(self._shared(token_ids), len(token_ids) - 1))
        if self.evicted or self.attention_mass is not None:
            shared = 0
        self.crop(shared)
        return shared

    def _shared(self, token_ids: Sequence[int]) -> int:
        pairs = zip(self.token_ids, token_ids, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def prefix(self, length: int | None = None) -> Prefix:
        """A copy of the first `length` tokens' keys and values, by default of all."""
        length = len(self) if length is None else length
        if self.evicted:
            raise CacheError("A cache with evicted tokens is no prefix of any text.")
        if not 0 < length <= len(self):
            raise CacheError(f"Cannot take {length} tokens of a cache that holds {len(self)}.")
        return Prefix(
            self._owner,
            tuple(self.token_ids[:length]),
            self.keys[:, :, :length].clone(),
            self.values[:, :, :length].clone(),
        )

    def restore(self, prefix: Prefix, length: int | None = None) -> None:
        """Fill this empty cache from a stored prefix, or from its first `length` tokens."""
        length = len(prefix.token_ids) if length is None else length
        if self.token_ids:
            raise CacheError("Only an empty cache can be filled from a prefix; crop(0) it first.")
        if prefix.owner is not self._owner:
            raise CacheError("This prefix was stored by another model.")
        if not 0 < length <= len(prefix.token_ids):
            raise CacheError(f"Cannot take {length} tokens of a prefix of {len(prefix.token_ids)}.")
        if length > self.capacity:
            raise CacheError(f"A prefix of {length} does not fit in {self.capacity} positions.")
        with torch.inference_mode():
            self.keys[:, :, :length] = prefix.keys[:, :, :length]
            self.values[:, :, :length] = prefix.values[:, :, :length]
        self.commit(prefix.token_ids[:length])

    def keep(self, indices: Sequence[int], *, renumber: bool = False) -> None:
        """Evict every token whose index is not listed; the others move together in place.

        indices: ascending indices into `token_ids`, each still held.
        renumber: number the remaining positions 0, 1, 2, … as StreamingLLM does (Xiao et al. 2023,
            arXiv:2309.17453, section 3.2). Rotary keys are turned to their new position; learned
            position embeddings are part of the hidden state, so there only later tokens change.
        """
        slot_of = {index: slot for slot, index in enumerate(self.kept)}
        if not indices:
            raise CacheError("Keep at least one token; crop(0) empties a cache.")
        if any(a >= b for a, b in pairwise(indices)):
            raise CacheError("The tokens to keep must be listed in ascending order, each once.")
        missing = next((index for index in indices if index not in slot_of), None)
        if missing is not None:
            raise CacheError(f"Token {missing} is not in the cache, so it cannot be kept.")
        slots = [slot_of[index] for index in indices]
        self._gather(slots)
        self.kept = list(indices)
        self.positions = [self.positions[slot] for slot in slots]
        if renumber:
            self._renumber()

    def _gather(self, slots: list[int]) -> None:
        if slots == list(range(len(slots))):
            return
        with torch.inference_mode():
            order = torch.tensor(slots)
            self.keys[:, :, : len(slots)] = self.keys[:, :, order]
            self.values[:, :, : len(slots)] = self.values[:, :, order]
            if self.attention_mass is not None:
                self.attention_mass[:, :, : len(slots)] = self.attention_mass[:, :, order]
                self.attention_mass[:, :, len(slots) :] = 0

    def _renumber(self) -> None:
        renumbered = list(range(len(self)))
        if self._frequencies is not None:
            with torch.inference_mode():
                shift = torch.tensor(renumbered) - torch.tensor(self.positions)
                cos, sin = angles(shift, self._frequencies)
                held = self.keys[:, :, : len(self)]
                self.keys[:, :, : len(self)] = rotate(held, cos, sin)
        self.positions = renumbered
        self.next_position = len(self)

    def norms(self) -> tuple[Tensor, Tensor]:
        """Length of each slot's key and value vectors: two of [num_layers, num_kv_heads, slots]."""
        held = len(self)
        return self.keys[:, :, :held].norm(dim=-1), self.values[:, :, :held].norm(dim=-1)
