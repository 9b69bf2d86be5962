"""`make tables`: what `make bench` and `make load` found last, as tables in the README."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.machine import sentence

README = Path(__file__).resolve().parents[2] / "README.md"
RESULTS = {"bench": Path("build/bench.json"), "load": Path("build/load.json")}


def table(document: dict[str, Any], command: str) -> str:
    """Markdown: the command with machine and date, then a row for each figure."""
    lines = [
        f"`make {command}` on {sentence(document['machine'])}",
        "",
        "| what | found | limit | |",
        "| --- | ---: | ---: | --- |",
    ]
    for figure in document["figures"]:
        sign = "at least" if figure["at_least"] else "at most"
        unit = f" {figure['unit']}" if figure["unit"] else ""
        verdict = "" if figure["holds"] else "**missed**"
        lines.append(
            f"| {figure['name']} | {figure['value']:,.4g}{unit} "
            f"| {sign} {figure['limit']:,g}{unit} | {verdict} |"
        )
    return "\n".join(lines)


def replaced(text: str, name: str, content: str) -> str:
    """The text with what stands between the two marks of this name renewed.

    Raises ValueError when a mark is missing.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"README.md needs {begin} and {end} once each")
    before, rest = text.split(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def main() -> int:
    text = README.read_text(encoding="utf-8")
    for name, path in RESULTS.items():
        if not path.exists():
            print(f"{path} is not there, so its table stays: run make {name}", file=sys.stderr)
            continue
        text = replaced(text, name, table(json.loads(path.read_text()), name))
    README.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
