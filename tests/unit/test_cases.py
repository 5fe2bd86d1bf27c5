"""A table of cases fails with all cases that fail, and passes when all pass."""

from __future__ import annotations

import pytest

from tests.cases import cases

TRIED: list[tuple[int, str]] = []


@cases("number", [1, 2, 3])
@cases("text", ["a", "b"])
def test_all_pairs_of_stacked_tables_are_tried(number: int, text: str, tmp_path: object) -> None:
    assert tmp_path is not None
    TRIED.append((number, text))
    if (number, text) == (3, "b"):
        assert sorted(TRIED) == [(1, "a"), (1, "b"), (2, "a"), (2, "b"), (3, "a"), (3, "b")]


def test_each_case_that_fails_is_named_with_its_reason() -> None:
    @cases("number, text", [(1, "one"), (2, "three"), (3, "three"), (4, "five")], ids=["a", "b", "c", "d"])
    def shown(number: int, text: str) -> None:
        if number == 4:
            pytest.fail("never")
        assert {1: "one", 3: "three"}[number] == text

    with pytest.raises(AssertionError) as failed:
        shown()
    assert str(failed.value).startswith("2 of 4\nb: KeyError: 2\nd: Failed: never")


@pytest.mark.parametrize("wrong", [[], [(1, 2, 3)]])
def test_a_table_without_cases_or_with_other_columns_is_refused(wrong: list[object]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        cases("number, text", wrong)
