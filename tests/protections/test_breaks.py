"""The list of breaks keeps up with the source: each edit fits, each test is there."""

from pathlib import Path

import pytest

from tests.protections.breaks import ATTACK, BREAKS, FAULT

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("broken", BREAKS, ids=lambda each: each.what)
def test_a_break_fits_the_source_and_names_a_test(broken):
    text = (ROOT / broken.file).read_text()
    changed = broken.apply(text)
    assert changed != text
    if broken.file.endswith(".py"):
        compile(changed, broken.file, "exec")
    module, name = broken.test.split("::")
    assert f"def {name}(" in (ROOT / module).read_text()


def test_both_kinds_are_there():
    assert {each.kind for each in BREAKS} == {FAULT, ATTACK}
    assert len({each.what for each in BREAKS}) == len(BREAKS)
