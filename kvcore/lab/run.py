"""A real model, a block pool with real keys and values in it, and one step at a time.

Every request is admitted by the pool, starts from the blocks that hold its prefix, prefills the
rest, and then decodes under an eviction policy. Blocks that fill up are kept, so that the next
request with the same beginning finds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvcore.decoding.threads import use_threads
from kvcore.eviction import HEAVY_HITTERS, NONE, blocks_freed, budget_for, evict, policy_name
from kvcore.lab.trace import About, Frame, Prefill, Trace
from kvcore.prefix import NULL_BLOCK, BlockPool, BlockTable

if TYPE_CHECKING:
    from kvcore.decoding import KVCache

MAX_TOKENS = 2_048


class LabError(ValueError):
    """A request the lab cannot serve, with what to do about it."""


@dataclass(frozen=True)
class Policy:
    """What the cache keeps: a policy's name and the parts of its budget, in tokens.

    `renumber`: what stays is numbered 0, 1, 2 … instead of keeping its places in the text.
    Raises ValueError for a policy or budget that `kvcore.eviction` refuses.
    """

    name: str = NONE
    budget: dict[str, int] = field(default_factory=dict)
    renumber: bool = False

    def __post_init__(self) -> None:
        budget_for(self.name, **self.budget)


@dataclass(frozen=True)
class Settings:
    """The pool: blocks of `block_size` tokens, `num_blocks` of them with the null block."""

    block_size: int = 16
    num_blocks: int = 65
    threads: int = 1


@dataclass(eq=False)
class _Request:
    """The request being decoded: its blocks, its cache and what it has shown so far."""

    table: BlockTable
    cache: KVCache
    trace: Trace


class Lab:
    """One session's pool and the requests it has served with `model`.

    Raises LabError, in a sentence, for what cannot be done; nothing is changed then.
    """

    def __init__(
        self,
        model: Any,
        settings: Settings | None = None,
        policy: Policy | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.model = model
        self.settings = settings or Settings()
        self.policy = policy or Policy()
        self._clock = clock
        self.start_over()

    @property
    def trace(self) -> Trace | None:
        """What the current request has shown."""
        return self._request.trace if self._request else None

    def ask(
        self,
        token_ids: Sequence[int],
        *,
        policy: Policy | None = None,
        leave_open: bool = False,
        compare: bool = True,
    ) -> Trace:
        """Admit a prompt and compute its first token, from here on under `policy` if one is given.

        The request before ends, unless it is left open: its blocks then stay its own and are shared
        with this one where both begin alike. With `compare` a prompt of which something was reused
        is computed once more from nothing, to measure what was saved and that nothing changed.
        """
        token_ids = list(token_ids)
        use_threads(self.settings.threads)
        self._check_length(len(token_ids) + 1)
        if self.pool.never_fits(len(token_ids)):
            raise LabError(
                f"{len(token_ids):,} tokens can never fit in {self.pool.num_blocks - 1} blocks of "
                f"{self.pool.block_size}; make the pool larger or the prompt shorter."
            )
        self.policy = policy or self.policy
        self._set_aside(leave_open)
        self._asked += 1
        try:
            request, logits = self._admit(token_ids)
            if compare and request.table.num_cached_tokens:
                request.trace.prefill = self._compared(request.trace.prefill, token_ids, logits)
        except LabError:
            raise
        except Exception:
            self.start_over()
            raise
        self._request = request
        prefill = request.trace.prefill
        self._show("prefill", prefill.seconds, prefill.computed_tokens, (), ())
        return request.trace

    def step(self) -> Frame:
        """Run the token chosen last and choose the next one, evicting first what the policy says.

        Raises LabError without a request, at the end of the context or when the pool is full.
        """
        request = self._request
        if request is None:
            raise LabError("There is nothing to continue; ask something first.")
        use_threads(self.settings.threads)
        trace, table, cache = request.trace, request.table, request.cache
        self._check_length(cache.next_position + 1, len(trace.token_ids))
        last = trace.token_ids[-1]

        start = self._clock()
        evicted, freed = self._make_room(request)
        if not self.pool.append(table, [last]):
            raise LabError(
                f"All {self.pool.num_blocks - 1} blocks are held; close the open requests, choose "
                "a policy that evicts, or make the pool larger."
            )
        logits = _forward(self.model, trace.token_ids, cache)
        token_id = _best(logits)
        seconds = self._clock() - start

        self._keep_full_blocks(request)
        self._note_norms(request, first_slot=len(cache) - 1)
        self._write(trace, token_id)
        return self._show("decode", seconds, 1, evicted, freed)

    def close_open(self) -> None:
        """End the requests that were left open; their blocks become free and stay findable."""
        for _, table in self._open:
            self.pool.free(table)
        self._open.clear()

    def start_over(self) -> None:
        """Forget everything: requests, blocks, hit rates."""
        from kvcore.decoding.block_store import BlockStore

        num_blocks, block_size = self.settings.num_blocks, self.settings.block_size
        self.pool = BlockPool(num_blocks, block_size)
        self._store = BlockStore(self.model, num_blocks, block_size)
        self._request: _Request | None = None
        self._spare: KVCache | None = None
        self._open: list[tuple[str, BlockTable]] = []
        self._asked = 0

    def _check_length(self, position: int, num_tokens: int = 0) -> None:
        limit = min(self.model.context_length, MAX_TOKENS)
        if position > limit or num_tokens > MAX_TOKENS:
            raise LabError(
                f"{self.model.name} is followed here up to {limit:,} tokens, prompt included; "
                "ask something shorter."
            )

    def _set_aside(self, leave_open: bool) -> None:
        if self._request is None:
            return
        if leave_open:
            self._open.append((self._request.trace.name, self._request.table))
        else:
            self.pool.free(self._request.table)
        self._spare = self._request.cache
        self._request = None

    def _admit(self, token_ids: list[int]) -> tuple[_Request, Any]:
        start = self._clock()
        table = self.pool.allocate(token_ids)
        if table is None:
            raise LabError(
                f"{len(token_ids):,} tokens do not fit now: {self.pool.num_free} of "
                f"{self.pool.num_blocks - 1} blocks are free; close the open requests."
            )
        cache = self._empty_cache()
        num_hit_blocks = table.num_cached_tokens // self.pool.block_size
        if num_hit_blocks:
            hits = table.block_ids[:num_hit_blocks], table.hashes[:num_hit_blocks]
            self._store.restore(cache, *hits, token_ids)
        logits = _forward(self.model, token_ids, cache)
        token_id = _best(logits)
        seconds = self._clock() - start

        prefill = Prefill(len(token_ids), table.num_cached_tokens, seconds)
        texts = [self.model.decode([token_id]) for token_id in token_ids]
        trace = Trace(self._about(), f"request {self._asked}", list(token_ids), texts, prefill)
        request = _Request(table, cache, trace)
        self._keep_full_blocks(request)
        self._note_norms(request, first_slot=0)
        self._write(trace, token_id)
        return request, logits

    def _empty_cache(self) -> KVCache:
        """The memory of the request before, emptied, or new memory.

        Fresh memory comes from the system a page at a time as it is first written, which for a long
        prefix takes longer than copying the prefix into memory at hand.
        """
        track_attention = policy_name(self.policy.name) == HEAVY_HITTERS
        spare, self._spare = self._spare, None
        if spare is not None and (spare.attention_mass is not None) == track_attention:
            spare.crop(0)
            return spare
        capacity = min(self.model.context_length, MAX_TOKENS)
        return self.model.new_cache(capacity, track_attention=track_attention)

    def _compared(self, prefill: Prefill, token_ids: list[int], logits: Any) -> Prefill:
        scratch = self.model.new_cache(len(token_ids))
        start = self._clock()
        cold_logits = _forward(self.model, token_ids, scratch)
        cold_seconds = self._clock() - start
        return Prefill(
            prefill.prompt_tokens,
            prefill.cached_tokens,
            prefill.seconds,
            cold_seconds,
            float((logits - cold_logits).abs().max()),
            bool(logits.argmax() == cold_logits.argmax()),
        )

    def _make_room(self, request: _Request) -> tuple[list[int], list[int]]:
        """Evict before the next token enters; give back the blocks of which nothing is left."""
        policy, cache, table = self.policy, request.cache, request.table
        evicted = evict(cache, policy.name, incoming=1, renumber=policy.renumber, **policy.budget)
        if not evicted:
            return [], []
        table.findable = False
        empty = blocks_freed(cache.kept, len(cache.token_ids), self.pool.block_size)
        still_held = [index for index in empty if table.block_ids[index] != NULL_BLOCK]
        return evicted, self.pool.drop(table, still_held)

    def _keep_full_blocks(self, request: _Request) -> None:
        """Copy the keys and values of blocks that have filled up into the pool's memory."""
        if request.cache.evicted:
            return
        table = request.table
        for index, name in enumerate(table.hashes):
            block_id = table.block_ids[index]
            if not self._store.holds(block_id, name):
                self._store.put(block_id, name, request.cache, index)

    def _note_norms(self, request: _Request, first_slot: int) -> None:
        cache, trace = request.cache, request.trace
        held = slice(first_slot, len(cache))
        trace.key_norms.extend(cache.keys[:, :, held].norm(dim=(1, 3)).T.tolist())
        trace.value_norms.extend(cache.values[:, :, held].norm(dim=(1, 3)).T.tolist())

    def _write(self, trace: Trace, token_id: int) -> None:
        trace.token_ids.append(token_id)
        trace.texts.append(self.model.decode([token_id]))

    def _show(
        self,
        kind: str,
        seconds: float,
        tokens_processed: int,
        evicted: Sequence[int],
        freed: Sequence[int],
    ) -> Frame:
        request, blocks = self._request, self.pool.blocks
        table = request.table
        free_list = self.pool.free_list
        frame = Frame(
            kind=kind,
            num_tokens=len(request.cache.token_ids),
            kept=tuple(request.cache.kept),
            positions=tuple(request.cache.positions),
            evicted=tuple(evicted),
            freed=tuple(freed),
            block_ids=tuple(table.block_ids),
            ref_counts=tuple(blocks[block_id].ref_count for block_id in table.block_ids),
            findable=tuple(blocks[block_id].hash is not None for block_id in table.block_ids),
            free_list=tuple(free_list),
            free_findable=tuple(i for i in free_list if blocks[i].hash is not None),
            others=tuple((name, tuple(other.block_ids)) for name, other in self._open),
            seconds=seconds,
            tokens_processed=tokens_processed,
            hit_rate=self.pool.hit_rate.rate,
            naive_hit_rate=self.pool.hit_rate.naive_rate,
        )
        request.trace.frames.append(frame)
        return frame

    def _about(self) -> About:
        config, settings, policy = self.model.config, self.settings, self.policy
        return About(
            model=self.model.name,
            source=self.model.source,
            num_layers=config.num_layers,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            bytes_per_token=self.model.cache_bytes_per_token,
            block_size=settings.block_size,
            num_blocks=settings.num_blocks,
            policy=policy_name(policy.name),
            budget=dict(policy.budget),
            renumber=policy.renumber,
        )


def _forward(model: Any, token_ids: Sequence[int], cache: KVCache) -> Any:
    from kvcore.decoding import forward

    return forward(model, token_ids, cache)


def _best(logits: Any) -> int:
    """The likeliest token: the lab compares caches, so it leaves nothing to chance."""
    from kvcore.decoding.generate import choose

    return choose(logits[-1], None)[0]
