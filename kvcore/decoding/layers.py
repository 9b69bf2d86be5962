"""The pieces both networks are made of: weight matrices and attention over a cache."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from kvcore.decoding.cache import KVCache

Edit = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]


class Matrix:
    """A linear map, stored so that one row is multiplied by it fastest.

    Decoding one token is limited by reading the weights. On CPUs the matrix-vector kernels reach
    more of the memory bandwidth on [in, out] where the output is the longer side and on [out, in]
    where the input is.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """weight: [out, in] or a transposed view of [in, out]; it is copied only if it must be."""
        out_features, in_features = weight.shape
        self.wide = out_features >= in_features
        self.weight = weight.t().contiguous() if self.wide else weight.contiguous()
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """[n, in] → [n, out]"""
        if not self.wide:
            return F.linear(x, self.weight, self.bias)
        if self.bias is None:
            return torch.mm(x, self.weight)
        return torch.addmm(self.bias, x, self.weight)

    @property
    def rows(self) -> Tensor:
        """A view as [out, in]: row i belongs to output i (an embedding, where weights are tied)."""
        return self.weight.t() if self.wide else self.weight

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes + (self.bias.nbytes if self.bias is not None else 0)


class Pass:
    """One run of new tokens through a network: what they attend to, and where they are kept.

    tokens:    [n], the new token ids.
    positions: [n], their position numbers.
    """

    def __init__(
        self,
        new_ids: Sequence[int],
        cache: KVCache | None = None,
        *,
        mask: Tensor | None = None,
        edit: Edit | None = None,
    ) -> None:
        self.cache = cache
        self.tokens = torch.tensor(new_ids)
        self.num_new = len(new_ids)
        self.num_held = len(cache) if cache is not None else 0
        first = cache.next_position if cache is not None else 0
        self.positions = torch.arange(first, first + self.num_new)
        self.edit = edit
        self.tracks_attention = cache is not None and cache.attention_mass is not None
        self.mask = self._mask(mask)

    def _mask(self, mask: Tensor | None) -> Tensor | None:
        """[n, held + n], True where a new token may look; None where plain causal attention does.

        A new token sees everything held and the new tokens up to itself. A query must be compared
        with the *end* of the keys: torch's own is_causal aligns them at the start.
        """
        slots = self.num_held + self.num_new
        if mask is not None and tuple(mask.shape) != (self.num_new, slots):
            raise ValueError(
                f"The mask must be [{self.num_new}, {slots}] (new tokens × slots), "
                f"not {list(mask.shape)}."
            )
        needs_one = mask is not None or self.tracks_attention
        if not needs_one and (self.num_new == 1 or self.num_held == 0):
            return None
        causal = torch.ones(self.num_new, slots, dtype=torch.bool).tril(self.num_held)
        return causal if mask is None else causal & mask

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Store the new keys and values, then let each query look at all it may.

        queries: [n, num_heads, head_dim]; keys, values: [n, num_kv_heads, head_dim].
        Returns [n, num_heads * head_dim].
        """
        queries, keys, values = (x.transpose(0, 1) for x in (queries, keys, values))
        if self.edit is not None:
            keys, values = self.edit(layer, keys, values)
        if self.cache is not None:
            keys, values = self.cache.write(layer, keys, values)
        if self.tracks_attention:
            mixed, weights = _attention_with_weights(queries, keys, values, self.mask)
            self.cache.add_attention(layer, weights)
        elif self.num_new == 1 and self.mask is None:
            mixed = _decode_attention(queries, keys, values)
        else:
            mixed = _prefill_attention(queries, keys, values, self.mask)
        return mixed.transpose(0, 1).reshape(self.num_new, -1)


def _decode_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query per head. Heads that share keys are packed side by side, so keys are read once.

    queries: [num_heads, 1, head_dim]; keys, values: [num_kv_heads, slots, head_dim].
    """
    num_kv_heads, _, head_dim = keys.shape
    packed = queries.reshape(1, num_kv_heads, -1, head_dim)
    mixed = F.scaled_dot_product_attention(packed, keys[None], values[None])
    return mixed.reshape(-1, 1, head_dim)


def _prefill_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
) -> Tensor:
    """Many queries per head; without a mask queries and keys are the same tokens."""
    return F.scaled_dot_product_attention(
        queries[None],
        keys[None],
        values[None],
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=queries.shape[0] != keys.shape[0],
    )[0]


def _attention_with_weights(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """The same spelled out, for when the weights themselves are wanted: [num_heads, n, slots]."""
    group = queries.shape[0] // keys.shape[0]
    keys, values = keys.repeat_interleave(group, dim=0), values.repeat_interleave(group, dim=0)
    scores = queries @ keys.transpose(1, 2) / queries.shape[-1] ** 0.5
    weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
    return weights @ values, weights
