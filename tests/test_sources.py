"""Every fact in kvcore/data says where it is from and when it was looked up."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import date
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[1] / "kvcore" / "data"
# Lists whose rows inherit the date of their file.
DATED_BY_FILE = {"gpus.json"}


def lacking(name: str, document: dict) -> list[str]:
    """The entries without a source or a date that has been."""
    shared = document.get("date", document.get("as_of")) if name in DATED_BY_FILE else None
    found = []
    for key, rows in document.items():
        if not (isinstance(rows, list) and rows and isinstance(rows[0], dict)):
            continue
        for number, row in enumerate(rows):
            source = row.get("source") or row.get("sources")
            if not source or not _has_been(row.get("date", shared)):
                found.append(f"{name}: {key}[{number}] {row.get('name', '')}")
    return found


def _has_been(text: object) -> bool:
    try:
        return date(2023, 1, 1) <= date.fromisoformat(str(text)) <= date.today()
    except ValueError:
        return False


def read(name: str) -> dict:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


CATALOGUES = ("models.json", "gpus.json", "prompt_caching.json")


@pytest.mark.parametrize("name", CATALOGUES)
def test_every_entry_has_a_source_and_a_date(name):
    assert lacking(name, read(name)) == []


@pytest.mark.parametrize("name", CATALOGUES)
@pytest.mark.parametrize("damage", ["no source", "no date", "a date to come"])
def test_an_entry_without_them_is_found(name, damage):
    document = deepcopy(read(name))
    key = next(k for k, v in document.items() if isinstance(v, list) and isinstance(v[0], dict))
    row = document[key][0]
    if damage == "no source":
        row.pop("source", None)
        row.pop("sources", None)
    elif name in DATED_BY_FILE:
        document["date"] = "" if damage == "no date" else "2999-01-01"
    else:
        row["date"] = "" if damage == "no date" else "2999-01-01"
    assert lacking(name, document)


@pytest.mark.parametrize("path", sorted((DATA / "recordings").glob("*.json")), ids=lambda p: p.stem)
def test_every_recording_says_how_it_was_made(path):
    label = json.loads(path.read_text(encoding="utf-8"))["label"]
    assert all(label[part] for part in ("processor", "threads", "weights", "date", "command"))
    assert _has_been(label["date"])


def test_every_file_of_facts_names_its_source():
    for path in DATA.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert "source" in text or "note" in text, path.name
