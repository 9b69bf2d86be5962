"""A page with nothing but the rack of 28 layers and 512 positions; served by bench_rack."""

from __future__ import annotations

from kvcore.lab.rack import rack_data
from pages.common.rack import rack
from tests.benchmarks.long_run import NUM_LAYERS, long_run

trace = long_run()
frame = trace.frames[-1]
rack(rack_data(trace, frame), label=f"{NUM_LAYERS} layers, {frame.num_tokens} positions")
