"""Blocks, the chained hashes that name their contents, and the ordered row of free ones.

What is modelled: vLLM 0.33 (`v1/core/block_pool.py`, `v1/core/kv_cache_utils.py`).
"""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

NULL_BLOCK = 0
ROOT_HASH = b""


def block_hash(parent: bytes, token_ids: Sequence[int], salt: str | None = None) -> bytes:
    """Name the contents of a full block and of everything before it.

    sha256 over the parent's hash, the block's token ids and, for the first block of a salted
    request, the salt (vLLM hashes the salt as an extra key of the first block only; the chain
    carries it on). Two blocks share a hash only if all tokens up to their end are the same.

    Raises ValueError for something that is not a token id.
    """
    digest = hashlib.sha256(parent)
    digest.update(_token_bytes(token_ids))
    if salt is not None:
        digest.update(b"salt" + salt.encode("utf-8", "surrogatepass"))
    return digest.digest()


def chain_hashes(
    token_ids: Sequence[int],
    block_size: int,
    salt: str | None = None,
    parent: bytes = ROOT_HASH,
) -> list[bytes]:
    """Hashes of the full blocks of `token_ids`; a half-filled last block has none.

    `parent` is the hash of the block before them; the salt enters only where there is none.
    """
    hashes = []
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        tokens = token_ids[start : start + block_size]
        parent = block_hash(parent, tokens, None if parent else salt)
        hashes.append(parent)
    return hashes


def check_token_ids(token_ids: Sequence[int]) -> None:
    """Raise ValueError for something that is not a token id."""
    _token_bytes(token_ids)


def _token_bytes(token_ids: Sequence[int]) -> bytes:
    try:
        return array("q", token_ids).tobytes()
    except (TypeError, OverflowError) as error:
        raise ValueError("Token ids must be whole numbers.") from error


@dataclass(slots=True)
class Block:
    """A physical block: how many sequences use it, and what it holds once it is full.

    `hash` is None until the block is full; `parent` is the hash of the block before it.
    """

    block_id: int
    ref_count: int = 0
    hash: bytes | None = None
    parent: bytes = ROOT_HASH

    @property
    def is_null(self) -> bool:
        """The null block stands in a block table for what was dropped; it holds nothing."""
        return self.block_id == NULL_BLOCK


class FreeList:
    """Ids of the free blocks, the next to be taken first; every operation takes constant time."""

    def __init__(self, block_ids: Iterable[int]) -> None:
        self._ids: OrderedDict[int, None] = OrderedDict.fromkeys(block_ids)

    def take(self) -> int:
        return self._ids.popitem(last=False)[0]

    def remove(self, block_id: int) -> None:
        del self._ids[block_id]

    def append(self, block_ids: Iterable[int]) -> None:
        self._ids.update(dict.fromkeys(block_ids))

    def prepend(self, block_ids: Sequence[int]) -> None:
        """Put `block_ids` in front, keeping their order."""
        for block_id in reversed(block_ids):
            self._ids[block_id] = None
            self._ids.move_to_end(block_id, last=False)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._ids
