"""Pages and layer groups as vLLM's planner forms them.

A page is one block of one layer. All groups draw blocks from one pool, so every page must have
the same size and every group the same number of layers; what does not come out even is padded.
Source: vLLM 0.32 and 0.33, `vllm/v1/core/kv_cache_utils.py` and `vllm/v1/kv_cache_interface.py`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvcore.architecture import EMPTY, Architecture, LayerGroup, LayerKind
from kvcore.engines.common import PlanError, ceil_div, entry_bytes
from kvcore.formats import KVFormat

STATE_ALIGNMENT = 16
"""Attention blocks of hybrids are multiples of this many tokens (FlashAttention's kernel)."""
LATENT_ALIGNMENT = 128
"""The same for latent attention, whose kernels need whole runs of 128 tokens."""
EARLY_LATENT_ALIGNMENT = 64
LATENT_ALIGNMENT_SINCE = (0, 28, 0)
"""Before, latent attention had 64 (vllm-project/vllm#28228 prints 960); inferred from dated
sources."""

MOST_DRAFT_LAYERS = 1000

FULL_KINDS = frozenset({LayerKind.FULL, LayerKind.LATENT, LayerKind.SPARSE_INDEX})


@dataclass(frozen=True)
class Page:
    """What one layer keeps in one block.

    tokens: tokens per block (for a state: the tokens between two saved copies).
    used_bytes: bytes the layer writes; page_bytes: bytes set aside for them.
    entry_bytes: bytes per token, 0 for a state.
    state_bytes: bytes of one state without what speculative decoding adds, 0 for attention.
    """

    kind: LayerKind
    tokens: int
    used_bytes: int
    page_bytes: int
    entry_bytes: int
    window: int | None = None
    state_bytes: int = 0

    def tokens_held(self, length: int, in_flight: int) -> int:
        """Tokens of a sequence of `length` that this layer may hold at once."""
        if self.kind is LayerKind.SLIDING_WINDOW:
            return min((self.window or 0) - 1 + in_flight, length)
        if self.kind is LayerKind.CHUNKED:
            return min((self.window or 0) + in_flight, length)
        return self.tokens_needed(length)

    def tokens_needed(self, length: int) -> int:
        """Tokens of a sequence of `length` that the layer itself reads again."""
        if self.kind is LayerKind.CROSS_ATTENTION:
            return self.window or 0
        return length if self.window is None else min(self.window, length)

    def bytes_needed(self, length: int) -> int:
        """Bytes the architecture needs in this layer for one sequence."""
        if self.kind is LayerKind.RECURRENT:
            return self.state_bytes
        return self.tokens_needed(length) * self.entry_bytes

    def blocks(self, length: int, in_flight: int, state_blocks: int) -> int:
        """Blocks one request of `length` tokens may take in a group of such layers."""
        if self.kind is LayerKind.RECURRENT:
            return state_blocks
        whole = ceil_div(self.tokens_held(length, in_flight), self.tokens)
        return whole + (1 if self.kind is LayerKind.SLIDING_WINDOW else 0)


Part = tuple[Page, tuple[int, ...]]
"""A page and the positions, in order, of the layers that have it."""


@dataclass(frozen=True)
class PageGroup:
    """Layers that share one block table."""

    parts: tuple[Part, ...]

    @property
    def page(self) -> Page:
        return self.parts[0][0]

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        return tuple(dict.fromkeys(page.kind for page, _ in self.parts))

    @property
    def num_layers(self) -> int:
        return sum(len(positions) for _, positions in self.parts)

    def counts(self, start: float = 0, stop: float = math.inf) -> list[tuple[Page, int]]:
        """How many layers have each page, of those in positions start … stop − 1; 0 if none are."""
        return [
            (page, max(0, bisect_left(positions, stop) - bisect_left(positions, start)))
            for page, positions in self.parts
        ]


@dataclass(frozen=True)
class Layout:
    """All groups of a model. `mixed` groups hold pages of different sizes side by side.

    padding: (padding layers, real layers) for each kind of layer that does not come out even.
    first_draft: positions from here on belong to the drafter of speculative decoding.
    """

    groups: tuple[PageGroup, ...]
    group_size: int
    mixed: bool
    first_draft: int
    padding: tuple[tuple[int, int], ...] = ()


def layout(
    a: Architecture,
    kv_format: str = "bf16",
    tensor_parallel: int = 1,
    block_size: int = 16,
    speculative_tokens: int = 0,
    max_model_len: int = 0,
    release: tuple[int, int, int] = LATENT_ALIGNMENT_SINCE,
) -> Layout:
    """The groups vLLM forms, with their pages on one rank; `release` is vLLM's version.

    Raises PlanError where the model holds nothing, or what vLLM lays out in a way not known here.
    """
    fmt = a.storage_format(kv_format)
    layers = [group for group in a.layers if group.kind not in EMPTY and group.count]
    if not layers:
        raise PlanError(f"{a.name or 'This model'} keeps no cache, so there is nothing to plan.")
    if any(group.tokens_per_entry != 1 for group in layers):
        raise PlanError(
            f"{a.name or 'This model'} compresses several tokens into one entry; vLLM packs that "
            "in a layout of its own, which is not modelled. See what the architecture needs."
        )
    step = max(block_size, _alignment(layers, release))
    parts = _parts(layers, fmt, tensor_parallel, block_size, step, speculative_tokens)
    if all(page.kind is LayerKind.RECURRENT for page, _ in parts):
        parts = [(replace(page, tokens=max(1, max_model_len)), ids) for page, ids in parts]
    first_draft = max(a.num_layers, 1 + max(positions[-1] for _, positions in parts))
    if speculative_tokens and a.draft_layers:
        parts = _with_drafter(parts, a.draft_layers, first_draft)
    if _one_kind(page for page, _ in parts):
        group = PageGroup(tuple(parts))
        return Layout((group,), group.num_layers, mixed=True, first_draft=first_draft)
    return _grouped(_unified(parts), first_draft)


def _alignment(layers: list[LayerGroup], release: tuple[int, int, int]) -> int:
    """Tokens that attention blocks of a hybrid are a multiple of."""
    if not any(group.kind is LayerKind.LATENT for group in layers):
        return STATE_ALIGNMENT
    return LATENT_ALIGNMENT if release >= LATENT_ALIGNMENT_SINCE else EARLY_LATENT_ALIGNMENT


def _parts(
    layers: list[LayerGroup],
    fmt: KVFormat,
    tensor_parallel: int,
    block_size: int,
    step: int,
    speculative_tokens: int,
) -> list[Part]:
    """One part per layer group; attention blocks grow until a page is no smaller than a state."""
    attention = [group for group in layers if group.kind is not LayerKind.RECURRENT]
    states = [group for group in layers if group.kind is LayerKind.RECURRENT]
    entries = [entry_bytes(group, fmt, tensor_parallel) for group in attention]
    sizes = [group.state_bytes(tensor_parallel, speculative_tokens) for group in states]
    tokens, state_page = block_size, max(sizes, default=0)
    if states and attention:
        per_token = max(entries)
        tokens = max(block_size, step * ceil_div(state_page, step * per_token))
        state_page = tokens * per_token
    parts: list[Part] = []
    for group, entry in zip(attention, entries, strict=True):
        page = Page(group.kind, tokens, tokens * entry, tokens * entry, entry, group.window)
        parts.append((page, _positions(group)))
    for group, size in zip(states, sizes, strict=True):
        own = group.state_bytes(tensor_parallel)
        page = Page(LayerKind.RECURRENT, tokens, size, state_page, 0, state_bytes=own)
        parts.append((page, _positions(group)))
    return parts


def _positions(group: LayerGroup) -> tuple[int, ...]:
    return group.layer_ids or tuple(range(group.count))


def _with_drafter(parts: list[Part], draft_layers: int, first: int) -> list[Part]:
    """Add the drafter's own attention layers (multi-token prediction), like the model's last."""
    if draft_layers > MOST_DRAFT_LAYERS:
        raise PlanError(f"A drafter of {draft_layers:,} layers is no drafter.")
    last_of_kind = {page.kind: i for i, (page, _) in enumerate(parts) if page.kind in FULL_KINDS}
    extra = tuple(range(first, first + draft_layers))
    chosen = set(last_of_kind.values())
    return [
        (page, positions + extra if i in chosen else positions)
        for i, (page, positions) in enumerate(parts)
    ]


def _one_kind(pages: Iterable[Page]) -> bool:
    """Whether all layers need the same token slots, and so can share one block table."""
    needs = {
        (LayerKind.FULL if page.kind in FULL_KINDS else page.kind, page.window, page.tokens)
        for page in pages
    }
    return len(needs) == 1


def _unified(parts: list[Part]) -> list[Part]:
    """Give every page the largest one's size: by more tokens per block, else by padding."""
    largest = max(page.page_bytes for page, _ in parts)

    def grown(page: Page) -> Page:
        if page.kind is LayerKind.RECURRENT or largest % page.page_bytes:
            return replace(page, page_bytes=largest)
        ratio = largest // page.page_bytes
        return replace(
            page,
            tokens=page.tokens * ratio,
            used_bytes=page.used_bytes * ratio,
            page_bytes=largest,
        )

    return [(grown(page), positions) for page, positions in parts]


def _grouped(parts: list[Part], first_draft: int) -> Layout:
    """Split each kind of layer into groups of one size, taking every n-th layer for a group."""
    buckets: dict[Page, tuple[int, ...]] = {}
    for page, positions in sorted(parts, key=lambda part: part[1][0]):
        buckets[page] = tuple(sorted(buckets.get(page, ()) + positions))
    fewest, most = min(map(len, buckets.values())), max(map(len, buckets.values()))
    group_size = most if most < fewest * 1.5 else fewest
    groups, padding = [], []
    for page, positions in buckets.items():
        count = ceil_div(len(positions), group_size)
        groups += [PageGroup(((page, positions[i::count]),)) for i in range(count)]
        if len(positions) % group_size:
            padding.append((group_size - len(positions) % group_size, len(positions)))
    return Layout(tuple(groups), group_size, False, first_draft, tuple(padding))
