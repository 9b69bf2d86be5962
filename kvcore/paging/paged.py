"""Room handed out as tokens come: blocks (PagedAttention), or large pages (vAttention)."""

from __future__ import annotations

from kvcore.paging.blocks import BlockAllocator, BlockTable
from kvcore.paging.keys import block_keys
from kvcore.paging.pool import Pool, Stay
from kvcore.paging.requests import Request


class PagedPool(Pool):
    """Blocks of `block_size` slots, shared where their contents are the same.

    A request is admitted only if `watermark` of all blocks stay free, or if it is alone (vLLM
    v0's block manager; its default was 0.01, vLLM 0.33's is 0). Kwon et al. (SOSP 2023), 4.2-4.5.
    """

    def __init__(
        self,
        num_slots: int,
        block_size: int = 16,
        watermark: float = 0.01,
        prefix_caching: bool = True,
    ) -> None:
        super().__init__(num_slots)
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self._use_blocks(num_slots // block_size, block_size, watermark)

    @property
    def allocated(self) -> float:
        blocks = self.blocks
        return (blocks.num_blocks - blocks.num_free) * self.block_slots

    @property
    def largest_free(self) -> float:
        return self.blocks.num_free * self.block_slots

    def why_never(self, request: Request) -> str | None:
        needed = self.needed_blocks(request, request.length)
        if needed <= self.blocks.num_blocks:
            return None
        return (
            f"It needs {self.counted(needed)} to finish, and the whole pool has "
            f"{self.blocks.num_blocks:,}."
        )

    def counted(self, num_blocks: int) -> str:
        """A number of blocks in words."""
        noun, rest = self.unit.split(" ", 1)
        return f"{num_blocks:,} {noun if num_blocks == 1 else noun + 's'} {rest}"

    def needed_blocks(self, request: Request, length: int) -> int:
        """Distinct blocks when each sample has `length` tokens; full prompt blocks are shared."""
        if request.samples == 1:
            return self.blocks_for(length)
        shared = request.prompt // self.block_size
        return shared + request.samples * (self.blocks_for(length) - shared)

    def blocks_for(self, length: int) -> int:
        """Blocks that `length` tokens of one sequence fill or begin."""
        return -(-length // self.block_size)

    def capacity_of(self, num_blocks: int) -> int:
        """Whole tokens that fit into `num_blocks`."""
        return num_blocks * self.block_size

    def admit(self, stay: Stay, step: int, alone: bool) -> bool:
        hits = self._find(stay)
        needed = self.needed_blocks(stay.request, stay.stored) - len(hits)
        free = self.blocks.num_free - self.blocks.count_free(hits)
        if free - needed < (0 if alone else self.watermark_blocks):
            return False
        stay.num_hit_tokens = len(hits) * self.block_size
        self.blocks.share(hits)
        stay.places = self._first_tables(stay, hits, needed)
        stay.begin(step, self.capacity_of(len(stay.places[0])))
        self._account(stay, step, 1)
        self._name_blocks(stay, len(hits), self._num_known(stay) // self.block_size)
        return True

    def grow(self, stay: Stay) -> bool:
        tables, samples, size = stay.places, len(stay.places), self.block_size
        if not self.blocks.extend(tables):
            return False
        if stay.keys is not None and samples == 1:
            filled = len(tables[0]) - 2
            self._name_blocks(stay, filled, filled + 1)
        usable = stay.extend(size)
        self.future += samples * usable
        if usable < size:
            self.never += samples * (size - usable)
        return True

    def release(self, stay: Stay, step: int) -> None:
        self._account(stay, step, -1)
        for table in stay.places:
            self.blocks.release(table)

    def _use_blocks(self, num_blocks: int, block_slots: float, watermark: float) -> None:
        self.block_slots = block_slots
        self.blocks = BlockAllocator(num_blocks)
        self.watermark_blocks = int(watermark * num_blocks)
        self.unit = f"block of {self.block_size:,} tokens"

    def _num_known(self, stay: Stay) -> int:
        """Tokens whose blocks all samples of the stay may share as it begins."""
        return stay.num_known if stay.request.samples == 1 else stay.request.prompt

    def _find(self, stay: Stay) -> BlockTable:
        """Blocks of the known prefix; never the last token, whose logits are needed."""
        if not self.prefix_caching:
            return []
        if stay.keys is None:
            stay.keys = block_keys(stay.request, self.block_size)
        if stay.keys is None:
            return []
        longest = (self._num_known(stay) - 1) // self.block_size
        return self.blocks.find(stay.keys.first(longest))

    def _first_tables(self, stay: Stay, hits: BlockTable, needed: int) -> list[BlockTable]:
        if stay.request.samples == 1:
            return [hits + self.blocks.take(needed)]
        return self._sample_tables(stay, hits)

    def _sample_tables(self, stay: Stay, hits: BlockTable) -> list[BlockTable]:
        """One prompt, forked for each sample; the first write copies a half-filled last block.

        After a preemption the samples differ within that block, so only full ones are shared.
        """
        request, blocks = stay.request, self.blocks
        full = request.prompt // self.block_size
        common = full if stay.readmitted else self.blocks_for(request.prompt)
        prompt = hits + blocks.take(common - len(hits))
        tables = [prompt] + [blocks.fork(prompt) for _ in range(request.samples - 1)]
        for table in tables:
            if common > full:
                blocks.make_writable(table, full)
            table += blocks.take(self.blocks_for(stay.stored) - len(table))
        return tables

    def _name_blocks(self, stay: Stay, first: int, end: int) -> None:
        if stay.keys is None:
            return
        table = stay.places[0]
        for index in range(first, end):
            key = stay.keys.key(index)
            if key is None:
                return
            self.blocks.name(table[index], key)

    def _account(self, stay: Stay, step: int, sign: int) -> None:
        samples = stay.request.samples
        future, never = self._waiting_slots(stay.request, len(stay.places[0]))
        self.future += sign * (future - samples * stay.length(step))
        self.never += sign * never
        self.growth += sign * samples

    def _waiting_slots(self, request: Request, num_blocks: int) -> tuple[float, float]:
        """Slots of all samples that the request will fill in the end, and those it will not."""
        slots = num_blocks * self.block_slots
        usable = min(slots, request.length)
        return request.samples * usable, request.samples * (slots - usable)


class DemandPagedPool(PagedPool):
    """Contiguous virtual memory, large pages mapped behind it as tokens come; nothing is shared.

    vAttention (Prabhu et al., 2024): every layer has a tensor for K and one for V, each grows by
    whole pages of 64 KiB to 2 MiB. `tensor_bytes` is a token's share of one tensor: 10,240 B for
    OPT-13B. One block here is a page in each of these tensors; tokens may straddle two pages.
    """

    def __init__(
        self, num_slots: int, page_bytes: int, tensor_bytes: int, watermark: float = 0.01
    ) -> None:
        Pool.__init__(self, num_slots)
        self.page_bytes = page_bytes
        self.tensor_bytes = tensor_bytes
        self.prefix_caching = False
        self.block_size = max(1, page_bytes // tensor_bytes)
        self._use_blocks(
            num_slots * tensor_bytes // page_bytes, page_bytes / tensor_bytes, watermark
        )
        self.unit = f"set of {page_bytes / 1024:g} KiB pages"

    def needed_blocks(self, request: Request, length: int) -> int:
        return request.samples * self.blocks_for(length)

    def blocks_for(self, length: int) -> int:
        return -(-length * self.tensor_bytes // self.page_bytes)

    def capacity_of(self, num_blocks: int) -> int:
        return num_blocks * self.page_bytes // self.tensor_bytes

    def grow(self, stay: Stay) -> bool:
        held = len(stay.places[0])
        count = self.blocks_for(stay.capacity + 1) - held
        if count * len(stay.places) > self.blocks.num_free:
            return False
        for table in stay.places:
            table += self.blocks.take(count)
        future, never = self._waiting_slots(stay.request, held)
        new_future, new_never = self._waiting_slots(stay.request, held + count)
        self.future += new_future - future
        self.never += new_never - never
        stay.extend(self.capacity_of(held + count) - stay.capacity)
        return True

    def _first_tables(self, stay: Stay, hits: BlockTable, needed: int) -> list[BlockTable]:  # noqa: ARG002
        each = self.blocks_for(stay.stored)
        return [self.blocks.take(each) for _ in range(stay.request.samples)]
