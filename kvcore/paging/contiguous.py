"""One contiguous chunk per sample, reserved for its whole life: what Orca was taken to do.

Kwon et al. (SOSP 2023), section 6.1: Orca with a buddy allocator, knowing the output's length
(Oracle), over-reserving it by less than 2x (Pow2), or reserving the longest possible (Max).
"""

from __future__ import annotations

from kvcore.paging.buddy import BuddyAllocator, buddy_roots, buddy_size
from kvcore.paging.pool import Pool, Stay
from kvcore.paging.requests import Request

CONTIGUOUS_POLICIES = ("contiguous-max", "contiguous-pow2", "contiguous-oracle")


class ContiguousPool(Pool):
    """Chunks from a buddy allocator; the policy says how many slots a request asks for."""

    def __init__(self, policy: str, num_slots: int, max_model_len: int) -> None:
        super().__init__(num_slots)
        self.policy = policy
        self.max_model_len = max_model_len
        self.buddy = BuddyAllocator(num_slots)

    @property
    def allocated(self) -> int:
        return self.num_slots - self.buddy.num_free

    @property
    def largest_free(self) -> int:
        return self.buddy.largest_free

    def reserved(self, request: Request) -> int:
        """Slots asked for one sample, before the allocator rounds them up.

        Pow2 rounds the output alone ("25 to 32"); rounding prompt + output would batch as many
        requests as Oracle does.
        """
        if self.policy == "contiguous-max":
            return self.max_model_len
        if self.policy == "contiguous-oracle":
            return request.length
        return min(request.prompt + buddy_size(request.output), self.max_model_len)

    def why_never(self, request: Request) -> str | None:
        size = buddy_size(self.reserved(request))
        num_chunks = sum(root // size for _, root in buddy_roots(self.num_slots))
        if num_chunks >= request.samples:
            return None
        wanted = "a chunk" if request.samples == 1 else f"{request.samples} chunks"
        return (
            f"It needs {wanted} of {size:,} slots, and an empty pool of {self.num_slots:,} slots "
            f"has {num_chunks or 'none'} of that size."
        )

    def admit(self, stay: Stay, step: int, alone: bool) -> bool:  # noqa: ARG002
        reserved = self.reserved(stay.request)
        for _ in range(stay.request.samples):
            address = self.buddy.allocate(reserved)
            if address is None:
                self._free_chunks(stay)
                stay.places = []
                return False
            stay.places.append(address)
        stay.begin(step, stay.final)
        self._account(stay, step, 1)
        return True

    def grow(self, stay: Stay) -> bool:
        raise NotImplementedError("A contiguous chunk has room for the whole request.")

    def release(self, stay: Stay, step: int) -> None:
        self._account(stay, step, -1)
        self._free_chunks(stay)

    def _account(self, stay: Stay, step: int, sign: int) -> None:
        reserved = self.reserved(stay.request)
        samples = sign * stay.request.samples
        self.future += samples * (stay.request.length - stay.length(step))
        self.never += samples * (reserved - stay.request.length)
        self.rounding += samples * (buddy_size(reserved) - reserved)
        self.growth += samples

    def _free_chunks(self, stay: Stay) -> None:
        for address in stay.places:
            self.buddy.free(address)
