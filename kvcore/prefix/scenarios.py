"""Small cases with a known answer, to click through: what is expected beside what comes out.

The expected values are facts about vLLM 0.33's block manager (its own unit tests, or runs of it),
StreamingLLM and the issues named as sources; nothing in them was computed with the code here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from kvcore.eviction import kept_positions
from kvcore.prefix.pool import BlockPool, BlockTable, sliding_window_hit
from kvcore.prefix.radix import RadixCache
from kvcore.prefix.sharing import parallel_sampling_saving


@dataclass(frozen=True)
class Check:
    """One statement of a scenario: the answer that is known, and the one computed here."""

    what: str
    expected: object
    computed: object

    @property
    def holds(self) -> bool:
        return self.expected == self.computed


@dataclass
class Outcome:
    """What running a scenario gave: its checks, and the pool as it stands at the end, if any."""

    checks: list[Check] = field(default_factory=list)
    pool: BlockPool | None = None
    tables: dict[str, BlockTable] = field(default_factory=dict)

    def expect(self, what: str, expected: object, computed: object) -> None:
        self.checks.append(Check(what, expected, computed))


@dataclass(frozen=True)
class Scenario:
    """A title, the story in a sentence or two, where its answer comes from, and how to run it."""

    key: str
    title: str
    story: str
    source: str
    run: Callable[[], Outcome]


def tokens(label: int, count: int) -> list[int]:
    """`count` token ids that occur under no other label."""
    return list(range(label * 10_000, label * 10_000 + count))


def shared_prefix() -> Outcome:
    outcome, pool, first, second = _two_with_a_common_prefix()
    outcome.expect("first request: blocks", [1, 2, 3, 4], first.block_ids)
    outcome.expect("first request: cached tokens", 0, first.num_cached_tokens)
    outcome.expect("second request: blocks", [1, 2, 3, 5], second.block_ids)
    outcome.expect("second request: cached tokens", 48, second.num_cached_tokens)
    counts = [pool.blocks[block_id].ref_count for block_id in (1, 2, 3)]
    outcome.expect("reference counts of blocks 1, 2, 3", [2, 2, 2], counts)
    outcome.expect("free blocks", 5, pool.num_free)
    outcome.expect("share of the pool in use", 0.5, pool.usage)
    return outcome


def free_order_now() -> Outcome:
    outcome, pool, first, second = _two_with_a_common_prefix()
    _free_all(outcome, first, second)
    order = [5, 4, 6, 7, 8, 9, 10, 3, 2, 1]
    outcome.expect("free list after both ended", order, pool.free_list)
    third = pool.allocate(tokens(0, 48) + tokens(3, 6))
    outcome.expect("third request: blocks", [1, 2, 3, 5], third.block_ids)
    outcome.expect("free blocks then", 6, pool.num_free)
    pool.free(third)
    row = pool.free_list
    fourth = pool.allocate(tokens(4, 160))
    outcome.expect("160 new tokens take the row in its order", row, fourth.block_ids)
    outcome.expect("free blocks at the end", 0, pool.num_free)
    outcome.tables = {"fourth": fourth}
    return outcome


def free_order_before() -> Outcome:
    outcome, pool, first, second = _two_with_a_common_prefix(unhashed_first=False)
    _free_all(outcome, first, second)
    order = [6, 7, 8, 9, 10, 4, 5, 3, 2, 1]
    outcome.expect("free list after both ended", order, pool.free_list)
    return outcome


def hit_survives_eviction() -> Outcome:
    outcome = Outcome(pool=BlockPool(3))
    one, other = tokens(1, 16), tokens(2, 16)
    for prompt in (one, other):
        outcome.pool.free(outcome.pool.allocate(prompt))
    both = outcome.pool.allocate(one + other)
    outcome.tables = {"both": both}
    outcome.expect("blocks: 1 is found again, 2 is overwritten", [1, 2], both.block_ids)
    outcome.expect("cached tokens", 16, both.num_cached_tokens)
    return outcome


def last_token_recomputed() -> Outcome:
    outcome = Outcome(pool=BlockPool(11))
    prompt = tokens(1, 64)
    outcome.pool.free(outcome.pool.allocate(prompt))
    again = outcome.pool.allocate(prompt)
    outcome.tables = {"again": again}
    outcome.expect("cached tokens of a prompt known in full", 48, again.num_cached_tokens)
    outcome.expect("blocks computed again", 1, len(again.block_ids) - 3)
    return outcome


def tail_goes_first() -> Outcome:
    outcome = Outcome(pool=BlockPool(4))
    prompt = tokens(1, 48)
    outcome.pool.free(outcome.pool.allocate(prompt))
    outcome.pool.free(outcome.pool.allocate(tokens(2, 16)))
    again = outcome.pool.allocate(prompt)
    outcome.tables = {"again": again}
    outcome.expect("blocks still found after one was overwritten", 2, len(again.block_ids) - 1)
    outcome.expect("the block overwritten", 3, again.block_ids[2])
    return outcome


def block_size_floor() -> Outcome:
    outcome = Outcome()
    for block_size, hits in ((16, 960), (240, 960), (784, 0)):
        pool = BlockPool(400, block_size)
        for request in range(5):
            pool.free(pool.allocate(tokens(0, 240) + tokens(1 + request, 800)))
        admitted = pool.hit_rate.admitted
        outcome.expect(f"blocks of {block_size}: tokens found", hits, admitted.hit_tokens)
        outcome.expect(f"blocks of {block_size}: tokens asked", 5200, admitted.queried_tokens)
    tree = RadixCache(6_400)
    for request in range(5):
        tree.free(tree.allocate(tokens(0, 240) + tokens(1 + request, 800)))
    outcome.expect("a radix tree: tokens found", 960, tree.hit_rate.admitted.hit_tokens)
    return outcome


def leaves_go_first() -> Outcome:
    outcome = Outcome()
    tree = RadixCache(8)
    for ending in ([2, 2], [3, 3]):
        tree.free(tree.allocate([1, 1, *ending]))
    outcome.expect("held: the beginning once, two endings", 6, tree.num_tokens)
    tree.free(tree.allocate([9, 9, 9, 9]))
    left = [list(node.tokens) for _, node in tree.runs()]
    outcome.expect("four new tokens push out the older ending", [[1, 1], [3, 3], [9] * 4], left)
    tree.free(tree.allocate([8, 8, 8, 8]))
    left = [list(node.tokens) for _, node in tree.runs()]
    outcome.expect("four more: the other, then their beginning", [[9] * 4, [8] * 4], left)
    return outcome


def refused_when_full() -> Outcome:
    outcome = Outcome(pool=BlockPool(5, block_size=4, prefix_caching=False))
    first = outcome.pool.allocate(tokens(1, 10))
    outcome.expect("10 tokens: blocks", 3, len(first.block_ids))
    outcome.pool.free(first)
    second = outcome.pool.allocate(tokens(2, 16))
    outcome.expect("16 tokens: blocks", 4, len(second.block_ids))
    outcome.expect(
        "4 more tokens: admitted", False, outcome.pool.allocate(tokens(3, 4)) is not None
    )
    outcome.tables = {"second": second}
    return outcome


def growing() -> Outcome:
    outcome = Outcome(pool=BlockPool(11))
    table = outcome.pool.allocate(tokens(1, 55))
    outcome.tables = {"growing": table}
    outcome.expect("55 tokens: blocks", 4, len(table.block_ids))
    outcome.pool.append(table, tokens(2, 4))
    outcome.expect("4 more: new blocks", 0, len(table.block_ids) - 4)
    last = outcome.pool.blocks[table.block_ids[3]]
    outcome.expect("the last block can be found", False, last.hash is not None)
    outcome.pool.append(table, tokens(3, 19))
    outcome.expect("19 more: new blocks", 1, len(table.block_ids) - 4)
    outcome.expect("the filled block can be found", True, last.hash is not None)
    return outcome


def window_hit() -> Outcome:
    outcome = Outcome(pool=BlockPool(6, block_size=1, sliding_window=2))
    a, b, c, d, e, f = range(6)
    table = outcome.pool.allocate([a, b, c, d, e])
    outcome.pool.drop(table, [0, 1, 2])
    outcome.pool.free(table)
    outcome.pool.free(outcome.pool.allocate(tokens(9, 3)))
    again = outcome.pool.allocate([a, b, c, d, e, f])
    outcome.tables = {"again": again}
    known = [False, False, False, True, True]
    outcome.expect(
        "A to E with only D and E there: blocks found", 5, sliding_window_hit(known, 2, 1)
    )
    outcome.expect("the pool's answer for A to F: cached tokens", 5, again.num_cached_tokens)
    outcome.expect("null blocks stand for what no one looks at", [0] * 4, again.block_ids[:4])
    return outcome


def streaming_llm() -> Outcome:
    outcome = Outcome()
    for length in (100, 516, 517, 2000):
        recent = set(range(max(0, length - 512), length))
        expected = sorted({0, 1, 2, 3} | recent)
        kept = kept_positions(length, "sinks", sinks=4, window=512)
        outcome.expect(f"after {length} tokens: kept", len(expected), len(kept))
        outcome.expect(f"after {length} tokens: exactly those", True, kept == expected)
    kept = kept_positions(2000, "sinks", sinks=4, window=512, room=12)
    outcome.expect("with room for 12: the last 500 stay", list(range(1500, 2000)), kept[4:])
    return outcome


def streaming_llm_press() -> Outcome:
    kept = kept_positions(100, "sinks", budget=50, sinks=4)
    gone = sorted(set(range(100)) - set(kept))
    outcome = Outcome()
    outcome.expect("pruned", list(range(4, 54)), gone)
    return outcome


def retry_counted_once() -> Outcome:
    outcome = Outcome(pool=BlockPool(6))
    prompt = tokens(1, 48)
    outcome.tables["first"] = outcome.pool.allocate(prompt)
    other = outcome.pool.allocate(tokens(2, 32))
    waiting = prompt + tokens(3, 16)
    refusals = [outcome.pool.allocate(waiting) is None for _ in range(3)]
    outcome.pool.free(other)
    outcome.tables["waited"] = outcome.pool.allocate(waiting)
    outcome.expect("turned away three times", [True] * 3, refusals)
    outcome.expect("requests counted", 3, outcome.pool.hit_rate.admitted.requests)
    outcome.expect("hit rate, each request once", 48 / 144, outcome.pool.hit_rate.rate)
    naive = 4 * 48 / (144 + 3 * 64)
    outcome.expect("hit rate with every look-up counted", naive, outcome.pool.hit_rate.naive_rate)
    return outcome


def preempted_apart() -> Outcome:
    outcome = Outcome(pool=BlockPool(40))
    for request in range(8):
        prompt = tokens(request, 160)
        outcome.pool.free(outcome.pool.allocate(prompt))
        outcome.pool.free(outcome.pool.allocate(prompt, preempted=True))
    outcome.expect("unlike prompts: honest hit rate", 0.0, outcome.pool.hit_rate.rate)
    naive = 8 * 144 / (16 * 160)
    outcome.expect("with the returns counted", naive, outcome.pool.hit_rate.naive_rate)
    return outcome


def salted() -> Outcome:
    outcome = Outcome(pool=BlockPool(20))
    prompt = tokens(1, 64)
    for salt, cached in (("ann", 0), ("ben", 0), ("ann", 48), (None, 0)):
        table = outcome.pool.allocate(prompt, salt=salt)
        owner = f"salt {salt!r}" if salt else "no salt"
        outcome.expect(f"{owner}: cached tokens", cached, table.num_cached_tokens)
        outcome.pool.free(table)
    return outcome


def parallel_samples() -> Outcome:
    prompt, output, samples = 40, 24, 4
    outcome = Outcome(pool=BlockPool(64))
    tables = [outcome.pool.allocate(tokens(0, prompt)) for _ in range(samples)]
    held = unshared = 0
    for step in range(output):
        for sample, table in enumerate(tables):
            outcome.pool.append(table, [sample * 1000 + step])
        held += outcome.pool.num_blocks - 1 - outcome.pool.num_free
        unshared += sum(len(table.block_ids) for table in tables)
    outcome.tables = {f"sample {index}": table for index, table in enumerate(tables)}
    formula = parallel_sampling_saving([(prompt, output)], samples)
    outcome.expect("blocks saved, by the formula", 144 / 352, formula)
    outcome.expect("blocks saved, counted in the pool", 144 / 352, (unshared - held) / unshared)
    return outcome


def _two_with_a_common_prefix(
    unhashed_first: bool = True,
) -> tuple[Outcome, BlockPool, BlockTable, BlockTable]:
    pool = BlockPool(11, unhashed_first=unhashed_first)
    first = pool.allocate(tokens(0, 48) + tokens(1, 7))
    second = pool.allocate(tokens(0, 48) + tokens(2, 5))
    outcome = Outcome(pool=pool, tables={"first": first, "second": second})
    return outcome, pool, first, second


def _free_all(outcome: Outcome, *tables: BlockTable) -> None:
    for table in tables:
        outcome.pool.free(table)
    outcome.tables = {}


_TESTS = "vLLM 0.33.0, tests/v1/core/test_prefix_caching.py"

SCENARIOS = [
    Scenario(
        "shared-prefix",
        "Two requests share a prefix",
        "A pool of 11 blocks of 16 tokens. Two requests begin with the same 48 tokens and end in 7 "
        "and 5 of their own: three blocks are held by both.",
        _TESTS,
        shared_prefix,
    ),
    Scenario(
        "free-order",
        "The row of free blocks today",
        "Both requests end. Blocks that nobody can find again go to the front of the row, the "
        "others to its back, each request's last block first.",
        "vllm-project/vllm#42656, merged in May 2026; vLLM 0.33.0",
        free_order_now,
    ),
    Scenario(
        "free-order-before",
        "The row of free blocks before 2026",
        "The same two requests when every freed block went to the back: half-filled blocks push "
        "findable ones out.",
        "the rule “always append”, before vllm-project/vllm#42656",
        free_order_before,
    ),
    Scenario(
        "hit-survives",
        "A block that is found is not overwritten",
        "Two usable blocks, both full of ended requests. A third asks for the contents of both: "
        "the first block is found, so the second must go.",
        _TESTS,
        hit_survives_eviction,
    ),
    Scenario(
        "last-token",
        "A prompt known in full",
        "64 tokens, four whole blocks, asked twice. The last token must be computed for its "
        "logits, and with it its whole block.",
        "vLLM 0.33.0, get_computed_blocks",
        last_token_recomputed,
    ),
    Scenario(
        "tail-first",
        "The tail goes before the head",
        "Three usable blocks hold an ended request; another request takes one of them. Since the "
        "last block went, the first two are still of use.",
        "llm-d/llm-d-inference-sim#704",
        tail_goes_first,
    ),
    Scenario(
        "block-size",
        "The block is the smallest prefix that can be shared",
        "Five requests in turn share 240 tokens and have 800 of their own. With blocks of 784 "
        "nothing is ever found. A radix tree has no blocks to fill.",
        "vllm-project/vllm#54607; the tree by hand",
        block_size_floor,
    ),
    Scenario(
        "leaves",
        "In a tree the leaves go first",
        "Eight tokens of memory. Two ended requests share their beginning, held once; what comes "
        "after takes the least recently used leaf, and its parent once that has no children.",
        "SGLang's RadixCache (leaf heap, least recently used); values by hand",
        leaves_go_first,
    ),
    Scenario(
        "refused",
        "A pool that is full",
        "Five blocks of 4 tokens, one of them the null block, nothing cached: 10 tokens come and "
        "go, 16 come, 4 more must wait.",
        _TESTS,
        refused_when_full,
    ),
    Scenario(
        "growing",
        "A sequence grows",
        "55 tokens fill three blocks and most of a fourth. Four more fit; of the next 19 one block "
        "is needed, and the filled one can be found from then on.",
        _TESTS,
        growing,
    ),
    Scenario(
        "window-hit",
        "A hit that needs only the window",
        "Attention looks back 2 tokens. Of A to E only D and E are left, and that is all the next "
        "token will look at.",
        "vllm-project/vllm#14097",
        window_hit,
    ),
    Scenario(
        "retries",
        "A request that has to wait is counted once",
        "A prompt is looked up three times before there is room for it. Counting each look-up "
        "turns a third into more than half.",
        "vllm-project/vllm#43736; values by hand",
        retry_counted_once,
    ),
    Scenario(
        "preempted",
        "A request that returns finds itself",
        "Eight prompts with nothing in common, each put out once and admitted again: they find "
        "their own blocks, which is not sharing.",
        "vllm-project/vllm#25780; values by hand",
        preempted_apart,
    ),
    Scenario(
        "salt",
        "Salts keep owners apart",
        "The same 64 tokens under two salts and under none: only the same salt finds them.",
        _TESTS + " (test_cache_key_salting)",
        salted,
    ),
    Scenario(
        "samples",
        "Several samples of one prompt",
        "Four samples of 24 tokens from a prompt of 40: its two full blocks are held once. Saved "
        "are (n − 1)/n of the prompt's share.",
        "Kwon et al. 2023, §4.4 and Figure 15",
        parallel_samples,
    ),
    Scenario(
        "streaming",
        "Sinks and a window",
        "StreamingLLM with 4 sinks and 512 recent positions, as a text grows.",
        "Xiao et al. 2023; mit-han-lab/streaming-llm, class defaults",
        streaming_llm,
    ),
    Scenario(
        "press",
        "The same as a share to prune",
        "100 positions, half to be pruned, 4 sinks: a budget of 50 tokens says the same.",
        "NVIDIA/kvpress, StreamingLLMPress",
        streaming_llm_press,
    ),
]
