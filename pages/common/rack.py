"""The rack as a component: the cache in three dimensions, on a plain canvas."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

_HTML = """
<div class="rack">
  <canvas role="img" tabindex="0"></canvas>
  <div class="tip" hidden></div>
  <div class="legend" aria-hidden="true"></div>
</div>
"""

_CSS = """
.rack { position: relative; font-family: var(--st-font); color: var(--st-text-color); }
canvas { display: block; width: 100%; cursor: grab; touch-action: pan-y; }
canvas:active { cursor: grabbing; }
canvas:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; }
.tip {
  position: absolute; pointer-events: none; white-space: pre-line; font-size: 0.8rem;
  line-height: 1.35; padding: 0.4rem 0.6rem; max-width: 20rem; border-radius: 0.4rem;
  background: var(--st-secondary-background-color);
  border: 1px solid var(--st-border-color);
}
.legend { display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; font-size: 0.8rem; }
.legend i {
  display: inline-block; width: 0.8rem; height: 0.8rem; margin-right: 0.35rem;
  border-radius: 0.15rem; vertical-align: -0.1rem;
}
"""

_component = st.components.v2.component(
    "cache_rack",
    html=_HTML,
    css=_CSS,
    js=Path(__file__).with_name("rack.js").read_text(encoding="utf-8"),
)


def rack(data: Mapping[str, Any], *, label: str, height: int = 430, key: str = "rack") -> None:
    """Draw `kvcore.lab.rack.rack_data`; `label` is what a screen reader says of it.

    It is turned by dragging or with the arrow keys, Home turns it back; pointing at a box names it.
    """
    _component(key=key, data={**data, "label": label, "height": height})
