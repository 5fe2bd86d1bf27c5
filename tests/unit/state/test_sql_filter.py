"""What an SQL92 filter lets through. tests/conformance/test_filters.py compares thousands with Apache's parser."""

from __future__ import annotations

import pytest

from rocketapp.state.sql_filter import DEEPEST, LONGEST, MOST_PARTS, compile_sql
from tests.cases import cases

PROPERTIES = {"a": "5", "b": "x", "c": "true", "TAGS": "TagA"}


@cases(
    "expression",
    [
        "TRUE",
        "a = 5",
        "a = '5' and a = 5.0 and a = 5L and (a = 5)",
        "a >= 5 AND b = 'x'",
        "a BETWEEN 1 AND 5",
        "a NOT BETWEEN 6 AND 9",
        "a IN ('5', '6')",
        "b NOT IN ('y')",
        "NOT (a = 6)",
        "zz IS NULL",
        "a IS NOT NULL",
        "zz = 5 OR b = 'x'",
        "a = 5 OR b = 'z' AND zz = 1",
        "c = TRUE",
        "c <> false",
        "b STARTSWITH 'x' AND b ENDSWITH 'x' AND a CONTAINS '5' AND b NOT CONTAINS 'y'",
        "a > -1 and a > .5 and 1e3 > 5 and 5 = 5 and a >= a",
        "TAGS IS NOT NULL AND TAGS IN ('TagA', 'TagB')",
        "a=5 /* a comment */ -- another\n and b = 'x'",
        "a = 5 garbage ; that nobody reads",
        "zz <> 'it''s' OR a = 5",
        "zz = yy",
    ],
)
def test_it_lets_a_message_through(expression: str) -> None:
    assert compile_sql(expression)(PROPERTIES)


@cases(
    "expression",
    [
        "FALSE",
        "NULL",
        "a > 5",
        "A = 5",
        "a <> '5'",
        "a = '5.0'",
        "NOT a = 6",
        "a = TRUE",
        "c",
        "a and b",
        "zz > 5",
        "zz <> 5",
        "NOT (zz = 5)",
        "zz NOT IN ('1')",
        "zz NOT CONTAINS '1'",
        "a = 5 AND zz = 1",
        "-a < 0",
        "b = 5",
        "b > 5",
        "a > b",
        "c > 1",
        "a = 5 AND b CONTAINS ''",
        "a > 3000000000",
        "a = 99999999999999999999.0",
    ],
)
def test_it_keeps_a_message_back(expression: str) -> None:
    assert not compile_sql(expression)(PROPERTIES)


@cases(
    "expression",
    [
        "",
        "a >",
        "a == 5",
        "a != 5",
        "a in (5,6)",
        "a IN ()",
        "a = NULL",
        "NOT zz > 5",
        "b > 'w'",
        "a BETWEEN '1' AND '5'",
        "a BETWEEN 5 AND 1",
        "a > 5 AND",
        "a = 5 ;",
        "a = 'open",
        "a = 9223372036854775808",
        "a = 0.0",
        "a = 1e400",
        "5",
        "'text'",
        "TRUE = 5",
        "a IS 5",
        "5 IN ('5')",
        "a NOT 5",
        "(a = 5",
    ],
)
def test_an_illegal_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        compile_sql(expression)


def test_a_number_that_is_too_long_for_what_it_is_compared_with_does_not_match() -> None:
    large = {"a": "3000000000", "long": "9" * 5000}
    assert not compile_sql("a > 5")(large)  # Java: Integer.valueOf fails
    assert compile_sql("a > 2999999999")(large)
    assert compile_sql("a > 5.0")(large)
    assert not compile_sql("long > 2999999999")(large)


@cases(
    "expression",
    [
        "(" * (DEEPEST + 1) + "TRUE" + ")" * (DEEPEST + 1),
        "NOT " * (DEEPEST + 1) + "TRUE",
        "-" * (DEEPEST + 1) + "1 = 1",
        "(" * 100_000,
        "a" + " IS NULL" * (DEEPEST + 1),
        " OR ".join(["a = 1"] * MOST_PARTS),
        "a" * (LONGEST + 1),
    ],
)
def test_what_would_cost_too_much_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"more than|limit"):
        compile_sql(expression)


def test_a_long_list_and_a_long_chain_are_legal() -> None:
    assert compile_sql(f"a IN ({', '.join(repr(str(n)) for n in range(1000))})")(PROPERTIES)
    assert compile_sql(" OR ".join([*["zz = 1"] * 100, "a = 5"]))(PROPERTIES)
