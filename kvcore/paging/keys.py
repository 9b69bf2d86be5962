"""Names for the contents of a request's full blocks, by which the blocks are found again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Protocol

from kvcore.paging.requests import Request
from kvcore.prefix import block_hash


class BlockKeys(Protocol):
    """The keys of a request's blocks, in order, as far as they are known."""

    def first(self, count: int) -> Sequence[Hashable]:
        """The keys of the first `count` blocks, or of fewer."""

    def key(self, index: int) -> Hashable | None:
        """The key of one full block; None where nobody could share it."""


class TokenKeys:
    """Chained hashes of the token ids themselves, as vLLM's prefix caching makes them."""

    def __init__(self, token_ids: Sequence[int], block_size: int) -> None:
        self._token_ids = token_ids
        self._block_size = block_size
        self._hashes: list[bytes] = []

    def first(self, count: int) -> list[bytes]:
        self._extend(min(count, len(self._token_ids) // self._block_size))
        return self._hashes[:count]

    def key(self, index: int) -> bytes:
        self._extend(index + 1)
        return self._hashes[index]

    def _extend(self, count: int) -> None:
        hashes, size = self._hashes, self._block_size
        for index in range(len(hashes), count):
            parent = hashes[-1] if hashes else b""
            tokens = self._token_ids[index * size : (index + 1) * size]
            hashes.append(block_hash(parent, tokens))


class NamedKeys:
    """Blocks that are known by name: of a declared prefix, or of a trace with hash ids."""

    def __init__(self, keys: Sequence[Hashable]) -> None:
        self._keys = keys

    def first(self, count: int) -> Sequence[Hashable]:
        return self._keys[:count]

    def key(self, index: int) -> Hashable | None:
        return self._keys[index] if index < len(self._keys) else None


def block_keys(request: Request, block_size: int) -> BlockKeys | None:
    """What names the request's blocks; None when nothing is known of its contents.

    Hash ids name blocks of their own size, so they serve only for a `block_size` that divides it.
    """
    if request.token_ids is not None:
        return TokenKeys(request.token_ids, block_size)
    if request.prefix_id is not None:
        count = request.prefix_tokens // block_size
        return NamedKeys([("prefix", request.prefix_id, index) for index in range(count)])
    if request.hash_ids and request.hash_block_size % block_size == 0:
        parts = range(request.hash_block_size // block_size)
        names = ((name, part) for name in request.hash_ids for part in parts)
        return NamedKeys(list(islice(names, request.prompt // block_size)))
    return None
