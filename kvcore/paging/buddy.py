"""A binary buddy allocator over a pool of any size.

Knowlton 1965; the allocator that Kwon et al. (SOSP 2023, section 6.1) give their Orca baselines.
A pool that is no power of two is a row of power-of-two roots, the largest first: 15,728 slots are
8192 + 4096 + 2048 + 1024 + 256 + 64 + 32 + 16. Leaving the tail out would cost Orca (Oracle) 2.6
points of Figure 2.
"""

from __future__ import annotations


def buddy_size(slots: int) -> int:
    """The smallest power of two that holds `slots`."""
    return 1 << (slots - 1).bit_length()


def buddy_roots(num_slots: int) -> list[tuple[int, int]]:
    """(address, size) of the largest chunks a pool splits into, the largest first."""
    roots, address = [], 0
    for order in reversed(range(num_slots.bit_length())):
        if num_slots >> order & 1:
            roots.append((address, 1 << order))
            address += 1 << order
    return roots


class BuddyAllocator:
    """Chunks of power-of-two size; a chunk that is freed merges with its free buddy.

    Of the chunks of the smallest sufficient size the one with the lowest address is taken.
    Raises ValueError for a pool without slots.
    """

    def __init__(self, num_slots: int) -> None:
        if num_slots < 1:
            raise ValueError("A pool needs at least one slot.")
        self.num_slots = num_slots
        self.roots = buddy_roots(num_slots)
        self.num_free = num_slots
        self._free: dict[int, set[int]] = {1 << k: set() for k in range(num_slots.bit_length())}
        self._sizes: dict[int, int] = {}
        for address, size in self.roots:
            self._free[size].add(address)

    def fits(self, slots: int) -> bool:
        """Whether one chunk for `slots` can be had now."""
        return self.largest_free >= buddy_size(slots)

    def allocate(self, slots: int) -> int | None:
        """The address of a chunk of `buddy_size(slots)`, or None when no chunk is large enough.

        Raises ValueError for fewer than one slot.
        """
        if slots < 1:
            raise ValueError("A chunk holds at least one slot.")
        size = wanted = buddy_size(slots)
        while not self._free.get(size):
            size *= 2
            if size > self.num_slots:
                return None
        address = min(self._free[size])
        self._free[size].remove(address)
        while size > wanted:
            size //= 2
            self._free[size].add(address + size)
        self._sizes[address] = wanted
        self.num_free -= wanted
        return address

    def free(self, address: int) -> None:
        """Give a chunk back and merge buddies as far as they go.

        Raises ValueError for an address where no chunk begins.
        """
        size = self._sizes.pop(address, None)
        if size is None:
            raise ValueError(f"No chunk begins at slot {address}.")
        self.num_free += size
        # The buddy of a root would lie in a smaller root, so no free chunk of its size is there.
        while size in self._free and address ^ size in self._free[size]:
            self._free[size].remove(address ^ size)
            address &= ~size
            size *= 2
        self._free[size].add(address)

    @property
    def largest_free(self) -> int:
        """Slots in the largest free chunk; 0 when all is taken."""
        return max((size for size, addresses in self._free.items() if addresses), default=0)

    @property
    def free_chunks(self) -> list[tuple[int, int]]:
        """(address, size) of every free chunk, by address."""
        return sorted((a, size) for size, addresses in self._free.items() for a in addresses)

    @property
    def chunks(self) -> list[tuple[int, int]]:
        """(address, size) of every chunk in use, by address."""
        return sorted(self._sizes.items())
