"""The memory of a block pool: keys and values of full blocks, kept to be used again.

The pool (`kvcore.prefix.BlockPool`) knows names and owners of blocks and no tensor; this is the
other half. Each block carries the name it was stored under, the hash of all tokens up to its end,
so that a block overwritten since, or one of another text, is refused instead of used.
"""

from collections.abc import Sequence

import torch

from kvcore.decoding.cache import KVCache
from kvcore.decoding.errors import CacheError
from kvcore.decoding.model import Model


class BlockStore:
    """Keys and values of `num_blocks` blocks of `block_size` tokens of one model.

    keys, values: [num_blocks, num_layers, num_kv_heads, block_size, head_dim], fp32. Memory is only
    taken as blocks are filled.
    """

    def __init__(self, model: Model, num_blocks: int, block_size: int) -> None:
        config = model.config
        shape = (num_blocks, config.num_layers, config.num_kv_heads, block_size, config.head_dim)
        with torch.inference_mode():
            self.keys = torch.empty(shape)
            self.values = torch.empty(shape)
        self.block_size = block_size
        self._owner = model.network
        self._held: dict[int, tuple[bytes, tuple[int, ...]]] = {}

    @property
    def bytes_per_block(self) -> int:
        return self.keys[0].nbytes + self.values[0].nbytes

    def holds(self, block_id: int, name: bytes) -> bool:
        """True when the block's keys and values are those of the text `name` stands for."""
        return block_id in self._held and self._held[block_id][0] == name

    def put(self, block_id: int, name: bytes, cache: KVCache, index: int) -> None:
        """Copy block `index` of the text in `cache` into block `block_id` under `name`.

        Raises CacheError when the cache belongs to another model, has not computed the whole block
        yet, or has evicted anything: what was computed since depends on what was gone.
        """
        start, end = index * self.block_size, (index + 1) * self.block_size
        if cache.owner is not self._owner:
            raise CacheError("This cache was filled by another model than the store.")
        if cache.evicted or end > len(cache):
            raise CacheError(f"Block {index} cannot be stored: the cache does not hold all of it.")
        with torch.inference_mode():
            self.keys[block_id] = cache.keys[:, :, start:end]
            self.values[block_id] = cache.values[:, :, start:end]
        self._held[block_id] = (name, tuple(cache.token_ids[start:end]))

    def restore(
        self,
        cache: KVCache,
        block_ids: Sequence[int],
        names: Sequence[bytes],
        token_ids: Sequence[int],
    ) -> None:
        """Fill an empty cache with these blocks, which must hold the start of the text `token_ids`.

        Raises CacheError when a block does not hold what its name and the tokens say, and when the
        cache is not empty, too small or of another model; it is then unchanged.
        """
        length = len(block_ids) * self.block_size
        if cache.owner is not self._owner:
            raise CacheError("This cache belongs to another model than the store.")
        if cache.token_ids:
            raise CacheError("Only an empty cache can be filled from blocks; crop(0) it first.")
        if length > cache.capacity:
            raise CacheError(f"{length} tokens do not fit in {cache.capacity} positions.")
        for index, (block_id, name) in enumerate(zip(block_ids, names, strict=True)):
            start, end = index * self.block_size, (index + 1) * self.block_size
            if self._held.get(block_id) != (name, tuple(token_ids[start:end])):
                raise CacheError(f"Block {block_id} does not hold tokens {start} to {end - 1}.")
        with torch.inference_mode():
            for index, block_id in enumerate(block_ids):
                place = slice(index * self.block_size, (index + 1) * self.block_size)
                cache.keys[:, :, place] = self.keys[block_id]
                cache.values[:, :, place] = self.values[block_id]
        cache.commit(token_ids[:length])
