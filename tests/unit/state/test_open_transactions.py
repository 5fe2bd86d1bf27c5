"""A decision goes to the newest copy of a half message."""

from __future__ import annotations

from rocketapp.state.open_transactions import OpenTransactions


def test_a_broker_that_asks_about_an_unknown_transaction_gets_the_check() -> None:
    open_now: OpenTransactions[int] = OpenTransactions()
    assert open_now.asked("a", "x", 1)
    assert open_now.checked("a") == {"x": 1}
    assert open_now.asked("a", "x", 2)


def test_while_its_function_runs_no_check_decides_and_the_newest_question_is_answered() -> None:
    open_now: OpenTransactions[int] = OpenTransactions()
    open_now.begin("a")
    assert not open_now.asked("a", "x", 1)
    assert not open_now.asked("a", "x", 2)
    assert open_now.end("a") == {"x": 2}
    assert len(open_now) == 0


def test_without_a_question_there_is_no_newer_copy() -> None:
    open_now: OpenTransactions[int] = OpenTransactions()
    open_now.begin("a")
    assert open_now.end("a") == {}
    assert open_now.end("a") == {}


def test_transactions_do_not_meet() -> None:
    open_now: OpenTransactions[int] = OpenTransactions()
    open_now.begin("a")
    assert open_now.asked("b", "x", 1)
    assert (open_now.end("a"), open_now.checked("b")) == ({}, {"x": 1})


def test_each_broker_knows_its_own_copies_alone() -> None:
    open_now: OpenTransactions[int] = OpenTransactions()
    open_now.begin("a")
    assert not open_now.asked("a", "x", 1)
    assert not open_now.asked("a", "y", 2)
    assert open_now.end("a") == {"x": 1, "y": 2}


def test_a_check_that_ends_while_the_function_runs_decides_nothing() -> None:
    open_now: OpenTransactions[int] = OpenTransactions()
    assert open_now.asked("a", "x", 1)
    open_now.begin("a")
    assert open_now.checked("a") == {}
    assert not open_now.asked("a", "x", 2), "the function decides"
    assert open_now.end("a") == {"x": 2}
    assert open_now.checked("a") == {}
    assert len(open_now) == 0
