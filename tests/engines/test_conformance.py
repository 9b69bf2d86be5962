"""Every figure of the reference set, and that the set itself is whole and honest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvcore.engines import conformance
from kvcore.engines.conformance import CASES, Basis, Expected
from kvcore.engines.reference_models import CONFIGS, architecture

EXACT_ROWS = {1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13, 14, 15, 16, 18, 19, 21, 24, 26, 27, 29, 31, 32}
EXACT_ROWS |= {34, 36, 37}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_behaves_as_expected(case):
    (result,) = conformance.run((case,))
    assert result.error == ""
    assert result.as_expected, f"predicted {result.predicted}, logged {case.logged} {case.unit}"


def test_every_row_of_the_logged_set_is_there():
    rows = {case.name.split(" ", 1)[0] for case in CASES if case.basis is Basis.LOG}
    assert {str(row) for row in EXACT_ROWS} | {"38"} <= rows


def test_every_model_of_the_architecture_table_is_there():
    models = {case.model for case in CASES if case.basis is Basis.ARCHITECTURE}
    assert len(models) == 29


def test_what_is_not_reproduced_says_so():
    missing = [case for case in CASES if case.expected is Expected.NOT_REPRODUCED]
    assert {case.source for case in missing} == {"vllm-project/vllm#29796"}
    assert all(case.note for case in missing)


def test_names_are_unique_and_sources_given():
    assert len({(case.name, case.model) for case in CASES}) == len(CASES)
    assert all(case.source and case.figure and case.unit for case in CASES)


def test_plain_arithmetic_misses_where_it_is_listed():
    """The rows with a plain figure are there because it is wrong."""
    for result in conformance.run(tuple(case for case in CASES if case.plain)):
        assert abs(result.plain - result.case.logged) > result.case.tolerance, result.case.name


def test_a_wrong_rule_shows_as_a_failed_row():
    case = replace(CASES[0], predict=lambda: 0.0)
    broken = replace(CASES[0], predict=lambda: 1 / 0)
    wrong, failed = conformance.run((case, broken))
    assert not wrong.agrees
    assert not wrong.as_expected
    assert failed.predicted is None
    assert "division" in failed.error
    assert not failed.as_expected


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_reference_configs_leave_nothing_open(name):
    assert architecture(name).exact
