"""Prefix reuse: blocks named by what they hold, shared while in use, found again until evicted."""

from kvcore.prefix.blocks import NULL_BLOCK, block_hash, chain_hashes
from kvcore.prefix.hit_rate import HitRate, Tally
from kvcore.prefix.pool import BlockPool, BlockTable, Event, sliding_window_hit
from kvcore.prefix.radix import Lease, RadixCache
from kvcore.prefix.replay import Replay, replay
from kvcore.prefix.sharing import parallel_sampling_saving

__all__ = [
    "NULL_BLOCK",
    "BlockPool",
    "BlockTable",
    "Event",
    "HitRate",
    "Lease",
    "RadixCache",
    "Replay",
    "Tally",
    "block_hash",
    "chain_hashes",
    "parallel_sampling_saving",
    "replay",
    "sliding_window_hit",
]
