"""Pages and layer groups as vLLM's planner forms them.

A page is one block of one layer. All groups draw blocks from one pool, so every page must have
the same size and every group the same number of layers; what does not come out even is padded.
Source: vLLM 0.32 and 0.33, `vllm/v1/core/kv_cache_utils.py` and `vllm/v1/kv_cache_interface.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvcore.architecture import EMPTY, Architecture, LayerGroup, LayerKind
from kvcore.engines.common import PlanError, ceil_div, entry_bytes
from kvcore.formats import KVFormat

STATE_ALIGNMENT = 16
"""Attention blocks of hybrids are multiples of this many tokens (FlashAttention's kernel)."""

MOST_DRAFT_LAYERS = 1000

FULL_KINDS = frozenset({LayerKind.FULL, LayerKind.LATENT, LayerKind.SPARSE_INDEX})


@dataclass(frozen=True)
class Page:
    """What one layer keeps in one block.

    tokens: tokens per block (for a state: the tokens between two saved copies).
    used_bytes: bytes the layer writes; page_bytes: bytes set aside for them.
    entry_bytes: bytes per token, 0 for a state.
    draft: whether the layer belongs to the drafter of speculative decoding.
    """

    kind: LayerKind
    tokens: int
    used_bytes: int
    page_bytes: int
    entry_bytes: int
    window: int | None = None
    state_bytes: int = 0
    draft: bool = False

    def tokens_held(self, length: int, in_flight: int) -> int:
        """Tokens of a sequence of `length` that this layer may hold at once."""
        if self.kind is LayerKind.SLIDING_WINDOW:
            return min((self.window or 0) - 1 + in_flight, length)
        if self.kind is LayerKind.CHUNKED:
            return min((self.window or 0) + in_flight, length)
        if self.kind is LayerKind.CROSS_ATTENTION:
            return self.window or 0
        return length

    def blocks(self, length: int, in_flight: int, state_blocks: int) -> int:
        """Blocks one request of `length` tokens may take in a group of such layers."""
        if self.kind is LayerKind.RECURRENT:
            return state_blocks
        whole = ceil_div(self.tokens_held(length, in_flight), self.tokens)
        return whole + (1 if self.kind is LayerKind.SLIDING_WINDOW else 0)


@dataclass(frozen=True)
class PageGroup:
    """Layers that share one block table. `layers` pairs each layer's position with its page."""

    layers: tuple[tuple[int, Page], ...]

    @property
    def page(self) -> Page:
        return self.layers[0][1]

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        return tuple(dict.fromkeys(page.kind for _, page in self.layers))


@dataclass(frozen=True)
class Layout:
    """All groups of a model. `mixed` groups hold pages of different sizes side by side."""

    groups: tuple[PageGroup, ...]
    group_size: int
    mixed: bool
    padding: tuple[tuple[int, int], ...] = ()
    """(padding layers, real layers) for each kind of layer that does not come out even."""


def layout(
    a: Architecture,
    kv_format: str = "bf16",
    tensor_parallel: int = 1,
    block_size: int = 16,
    speculative_tokens: int = 0,
    max_model_len: int = 0,
) -> Layout:
    """The groups vLLM forms, with their pages on one rank.

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
    pages = _attention_pages(layers, fmt, tensor_parallel, block_size)
    pages = _with_states(layers, pages, tensor_parallel, block_size, speculative_tokens)
    if not any(page.kind is not LayerKind.RECURRENT for _, page in pages):
        pages = [(i, replace(page, tokens=max(1, max_model_len))) for i, page in pages]
    if speculative_tokens:
        if a.draft_layers > MOST_DRAFT_LAYERS:
            raise PlanError(f"A drafter of {a.draft_layers:,} layers is no drafter.")
        pages += _draft_pages(pages, a)
    if _one_kind(page for _, page in pages):
        return Layout((PageGroup(tuple(pages)),), len(pages), mixed=True)
    return _grouped(_unified(pages))


def _positions(group: LayerGroup) -> tuple[int, ...]:
    return group.layer_ids or tuple(range(group.count))


def _attention_pages(
    layers: list[LayerGroup], fmt: KVFormat, tensor_parallel: int, block_size: int
) -> list[tuple[int, Page]]:
    pages = []
    for group in layers:
        if group.kind is LayerKind.RECURRENT:
            continue
        entry = entry_bytes(group, fmt, tensor_parallel)
        size = block_size * entry
        page = Page(group.kind, block_size, size, size, entry, group.window)
        pages += [(position, page) for position in _positions(group)]
    return sorted(pages, key=lambda item: item[0])


def _with_states(
    layers: list[LayerGroup],
    attention: list[tuple[int, Page]],
    tensor_parallel: int,
    block_size: int,
    speculative_tokens: int,
) -> list[tuple[int, Page]]:
    """Add state layers; attention blocks grow until their page is no smaller than a state."""
    states = [group for group in layers if group.kind is LayerKind.RECURRENT]
    if not states:
        return attention
    sizes = {
        id(group): group.state_bytes(tensor_parallel, extra_depth=speculative_tokens)
        for group in states
    }
    largest = max(sizes.values())
    tokens, page_bytes = block_size, largest
    if attention:
        per_token = max(page.entry_bytes for _, page in attention)
        step = max(STATE_ALIGNMENT, block_size)
        tokens = max(block_size, step * ceil_div(largest, step * per_token))
        page_bytes = tokens * per_token
    widened = [
        (
            position,
            replace(
                page,
                tokens=tokens,
                used_bytes=tokens * page.entry_bytes,
                page_bytes=tokens * page.entry_bytes,
            ),
        )
        for position, page in attention
    ]
    for group in states:
        page = Page(
            LayerKind.RECURRENT,
            tokens,
            sizes[id(group)],
            page_bytes,
            0,
            state_bytes=group.state_bytes(tensor_parallel),
        )
        widened += [(position, page) for position in _positions(group)]
    return sorted(widened, key=lambda item: item[0])


def _draft_pages(pages: list[tuple[int, Page]], a: Architecture) -> list[tuple[int, Page]]:
    """The drafter's own attention layers (multi-token prediction), laid out like the model's."""
    models = dict.fromkeys(page for _, page in pages if page.kind in FULL_KINDS)
    first = a.num_layers or 1 + max(position for position, _ in pages)
    last_of_kind = {page.kind: page for page in models}
    return [
        (first + i, replace(page, draft=True))
        for i in range(a.draft_layers)
        for page in last_of_kind.values()
    ]


def _one_kind(pages: Iterable[Page]) -> bool:
    """Whether all layers need the same token slots, and so can share one block table."""
    needs = {
        (LayerKind.FULL if page.kind in FULL_KINDS else page.kind, page.window, page.tokens)
        for page in pages
    }
    kinds = {kind for kind, _, _ in needs}
    return len(needs) == 1 or (kinds == {LayerKind.FULL} and len({n[2] for n in needs}) == 1)


def _unified(pages: list[tuple[int, Page]]) -> list[tuple[int, Page]]:
    """Give every page the largest one's size: by more tokens per block, else by padding."""
    largest = max(page.page_bytes for _, page in pages)

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

    return [(position, grown(page)) for position, page in pages]


def _grouped(pages: list[tuple[int, Page]]) -> Layout:
    """Split each kind of layer into groups of one size, taking every n-th layer for a group."""
    buckets: dict[Page, list[tuple[int, Page]]] = {}
    for position, page in pages:
        buckets.setdefault(replace(page, draft=False), []).append((position, page))
    fewest = min(len(bucket) for bucket in buckets.values())
    most = max(len(bucket) for bucket in buckets.values())
    group_size = most if most < fewest * 1.5 else fewest
    groups, padding = [], []
    for bucket in buckets.values():
        count = ceil_div(len(bucket), group_size)
        groups += [PageGroup(tuple(bucket[i::count])) for i in range(count)]
        if len(bucket) % group_size:
            padding.append((group_size - len(bucket) % group_size, len(bucket)))
    return Layout(tuple(groups), group_size, mixed=False, padding=tuple(padding))
