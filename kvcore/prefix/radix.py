"""The other way to find a prefix: a tree of token runs, as SGLang's RadixCache keeps it.

Runs are split where prompts part, so that a match ends at any page (one token by default) and not
at a block's edge, and equal contents are held once. Memory is taken back from the leaves.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from kvcore.prefix.hit_rate import HitRate


@dataclass(slots=True, eq=False)
class Node:
    """A run of tokens below its parent's; `users` sequences hold it or something below it."""

    tokens: tuple[int, ...] = ()
    parent: "Node | None" = None
    children: dict[tuple[int, ...], "Node"] = field(default_factory=dict)
    users: int = 0
    last_used: int = 0


@dataclass(slots=True, eq=False)
class Lease:
    """A running sequence. The first `num_in_tree` of its tokens are shared, the rest its own."""

    token_ids: list[int]
    num_cached_tokens: int
    node: Node
    num_in_tree: int
    freed: bool = False


class RadixCache:
    """`capacity` tokens in a radix tree; the same face as `BlockPool`.

    `page_size`: runs are split and matched in whole pages. Eviction takes the least recently used
    leaf that nobody holds, then its parent once that is childless, and only as much as is missing,
    to the leaf (sgl-project/sglang#32016 took the whole requirement).
    """

    def __init__(self, capacity: int, page_size: int = 1) -> None:
        if capacity < 1:
            raise ValueError("A cache needs a capacity of at least 1 token.")
        if page_size < 1:
            raise ValueError("A page holds at least 1 token.")
        self.capacity = capacity
        self.page_size = page_size
        self.hit_rate = HitRate()
        self._root = Node()
        self._num_in_tree = 0
        self._num_evictable = 0
        self._num_private = 0
        self._clock = count(1)

    @property
    def num_tokens(self) -> int:
        """Tokens in the tree, whether in use or only waiting to be found."""
        return self._num_in_tree

    @property
    def num_evictable(self) -> int:
        """Tokens in the tree that no running sequence holds."""
        return self._num_evictable

    @property
    def num_free(self) -> int:
        """Tokens of memory that hold nothing."""
        return self.capacity - self._num_in_tree - self._num_private

    def find(self, token_ids: Sequence[int]) -> int:
        """Tokens of the longest known prefix, in whole pages, at most all but the last token."""
        tokens = self._matchable(token_ids)
        return sum(shared for _, shared in self._walk(self._root, tokens))

    def allocate(self, token_ids: Sequence[int], preempted: bool = False) -> Lease | None:
        """Admit a prompt, evicting leaves for what is missing.

        None, with nothing evicted, when the rest does not fit even so. Raises ValueError for an
        empty prompt.
        """
        token_ids = list(token_ids)
        if not token_ids:
            raise ValueError("A prompt needs at least one token.")
        node, found = self._descend(self._root, self._matchable(token_ids))
        self._hold(node)
        if not self._reserve(len(token_ids) - found):
            self._let_go(node)
            self.hit_rate.refused.add(len(token_ids), found)
            return None
        tally = self.hit_rate.preempted if preempted else self.hit_rate.admitted
        tally.add(len(token_ids), found)
        lease = Lease(token_ids, found, node, found)
        self._share(lease)
        return lease

    def append(self, lease: Lease, token_ids: Sequence[int]) -> bool:
        """Add tokens to a running sequence; False, with nothing changed, when none can be had."""
        self._refuse_freed(lease)
        if not self._reserve(len(token_ids)):
            return False
        lease.token_ids.extend(token_ids)
        return True

    def free(self, lease: Lease) -> None:
        """End a sequence: its whole pages stay to be found, a half-filled last page is given up."""
        self._refuse_freed(lease)
        lease.freed = True
        self._share(lease)
        self._num_private -= len(lease.token_ids) - lease.num_in_tree
        self._let_go(lease.node)

    def runs(self) -> Iterator[tuple[int, Node]]:
        """Depth and node of every run, parents first, as the tree stands."""
        stack = [(0, child) for child in reversed(self._root.children.values())]
        while stack:
            depth, node = stack.pop()
            yield depth, node
            stack.extend((depth + 1, child) for child in reversed(node.children.values()))

    def _whole_pages(self, num_tokens: int) -> int:
        return num_tokens // self.page_size * self.page_size

    def _matchable(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(token_ids[: self._whole_pages(max(0, len(token_ids) - 1))])

    def _page(self, tokens: Sequence[int]) -> tuple[int, ...]:
        return tuple(tokens[: self.page_size])

    def _walk(self, node: Node, tokens: tuple[int, ...]) -> Iterator[tuple[Node, int]]:
        """Nodes along `tokens` and how many of each one's tokens agree."""
        while tokens and (child := node.children.get(self._page(tokens))):
            agreeing = 0
            for mine, theirs in zip(child.tokens, tokens, strict=False):
                if mine != theirs:
                    break
                agreeing += 1
            shared = self._whole_pages(agreeing)
            yield child, shared
            if shared < len(child.tokens):
                return
            node, tokens = child, tokens[shared:]

    def _descend(self, node: Node, tokens: tuple[int, ...]) -> tuple[Node, int]:
        """The node where the match ends, split there if need be, and the tokens matched."""
        now, found = next(self._clock), 0
        for child, shared in list(self._walk(node, tokens)):
            node = child if shared == len(child.tokens) else self._split(child, shared)
            node.last_used = now
            found += shared
        return node, found

    def _split(self, node: Node, length: int) -> Node:
        """Put the first `length` tokens of `node` in a node of their own above it."""
        head = Node(node.tokens[:length], node.parent, {}, node.users, node.last_used)
        node.parent.children[self._page(head.tokens)] = head
        node.tokens, node.parent = node.tokens[length:], head
        head.children[self._page(node.tokens)] = node
        return head

    def _share(self, lease: Lease) -> None:
        """Move the sequence's own whole pages into the tree; what is there already is given up."""
        end = self._whole_pages(len(lease.token_ids))
        tokens = tuple(lease.token_ids[lease.num_in_tree : end])
        node, found = self._descend(lease.node, tokens)
        self._num_private -= len(tokens)
        if found < len(tokens):
            node = self._grow(node, tokens[found:])
        self._hold(node)
        self._let_go(lease.node)
        lease.node, lease.num_in_tree = node, lease.num_in_tree + len(tokens)

    def _grow(self, parent: Node, tokens: tuple[int, ...]) -> Node:
        leaf = Node(tokens, parent, last_used=next(self._clock))
        parent.children[self._page(tokens)] = leaf
        self._num_in_tree += len(tokens)
        self._num_evictable += len(tokens)
        return leaf

    def _hold(self, node: Node) -> None:
        while node.parent is not None:
            if node.users == 0:
                self._num_evictable -= len(node.tokens)
            node.users += 1
            node = node.parent

    def _let_go(self, node: Node) -> None:
        while node.parent is not None:
            node.users -= 1
            if node.users == 0:
                self._num_evictable += len(node.tokens)
            node = node.parent

    def _reserve(self, num_tokens: int) -> bool:
        missing = num_tokens - self.num_free
        if missing > self._num_evictable:
            return False
        self._evict(missing)
        self._num_private += num_tokens
        return True

    def _evict(self, num_tokens: int) -> None:
        if num_tokens <= 0:
            return
        order = count()
        leaves = [
            (node.last_used, next(order), node)
            for _, node in self.runs()
            if not node.children and not node.users
        ]
        heapq.heapify(leaves)
        while num_tokens > 0:
            _, _, leaf = heapq.heappop(leaves)
            parent = leaf.parent
            del parent.children[self._page(leaf.tokens)]
            self._num_in_tree -= len(leaf.tokens)
            self._num_evictable -= len(leaf.tokens)
            num_tokens -= len(leaf.tokens)
            if parent.parent is not None and not parent.children and not parent.users:
                heapq.heappush(leaves, (parent.last_used, next(order), parent))

    @staticmethod
    def _refuse_freed(lease: Lease) -> None:
        if lease.freed:
            raise ValueError("This sequence was freed; allocate its prompt again.")
