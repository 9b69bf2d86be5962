"""`make bench`: every figure against its limit, one line each, and build/bench.json.

`python -m tests.benchmarks paging prefix` runs those modules only. Exits 1 when one falls short.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

from tests.benchmarks.machine import machine

HERE = Path(__file__).parent


def main(names: list[str]) -> int:
    where, figures = machine(), []
    for path in sorted(HERE.glob("bench_*.py")):
        area = path.stem.removeprefix("bench_")
        if names and area not in names:
            continue
        print(f"# {area}", flush=True)
        for figure in importlib.import_module(f"tests.benchmarks.{path.stem}").figures():
            print(figure.line(), figure.note, flush=True)
            figures.append(figure)
    out = Path("build/bench.json")
    out.parent.mkdir(exist_ok=True)
    document = {"machine": where, "figures": [figure.as_dict() for figure in figures]}
    out.write_text(json.dumps(document, indent=1))
    missed = [figure.name for figure in figures if not figure.holds]
    print(f"{len(figures) - len(missed)} of {len(figures)} within their limits")
    return 1 if missed else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(main(sys.argv[1:]))
