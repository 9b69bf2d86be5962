"""Take each protection away in a copy of the project and see its test fail.

    make prove        or: python -m tests.protections [words of the threats to try]

Ends with code 1 when a test does not notice.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.protections.breaks import BREAKS, Break

ROOT = Path(__file__).resolve().parents[2]
TESTS_FAILED = 1


def main() -> int:
    wanted = " ".join(sys.argv[1:])
    tried = [each for each in BREAKS if wanted in each.what]
    rows = []
    for each in tried:
        noticed = is_noticed(each)
        print(f"{'noticed' if noticed else 'MISSED ':8} {each.kind:6} {each.what}", flush=True)
        rows.append({"kind": each.kind, "what": each.what, "test": each.test, "noticed": noticed})
    if not wanted:
        build = ROOT / "build"
        build.mkdir(exist_ok=True)
        (build / "protections.json").write_text(json.dumps(rows, indent=1))
    missed = sum(not row["noticed"] for row in rows)
    print(f"{len(rows) - missed} of {len(rows)} broken protections were noticed by their tests")
    return 1 if missed or not rows else 0


def is_noticed(broken: Break) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "project"
        copy_project(copy)
        path = copy / broken.file
        path.write_text(broken.apply(path.read_text()))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        run = subprocess.run([*command, broken.test], cwd=copy, capture_output=True, timeout=400)
        return run.returncode == TESTS_FAILED


def copy_project(copy: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)


if __name__ == "__main__":
    sys.exit(main())
