from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import math
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from rocketapp import DeadLetter, Message, Outcomes, Retry, Skip
from rocketapp.consumer.modes.outcomes import failure_of, failures_of
from rocketapp.model.outcome import Outcome
from tests.unit.app.given import message
from tests.unit.consumer.fake_cluster import subscription


@pytest.mark.parametrize("result", [None, 0, "text", Skip("seen"), ValueError("returned, not raised")])
def test_returning_anything_is_done(result: object) -> None:
    assert failure_of(result, raised=False) is None


def test_outcomes_may_be_raised_or_returned() -> None:
    for raised in (True, False):
        retry, dead = failure_of(Retry(after=5), raised), failure_of(DeadLetter("spoilt"), raised)
        assert retry is not None
        assert dead is not None
        assert (retry.after, retry.dead) == (5, False)
        assert dead.dead
        assert failure_of(Skip(), raised) is None


def test_an_exception_is_a_failure_with_its_text() -> None:
    failure = failure_of(ValueError("no money"), raised=True)
    assert failure is not None
    assert "no money" in str(failure)


async def _settle() -> None: ...


def _each() -> Iterator[int]:
    yield 1


async def _each_async() -> AsyncIterator[int]:
    yield 1


class _Awaitable:
    def __await__(self) -> Iterator[None]:
        yield None


@pytest.mark.parametrize(
    ("make", "mend"),
    [
        (_settle, "coroutine: await it"),
        (lambda: asyncio.get_running_loop().create_future(), "Future: await it"),
        (concurrent.futures.Future, "Future: await it in an `async def`, or wait for"),
        (_Awaitable, "_Awaitable: await it"),
        (_each, "generator: loop over it"),
        (_each_async, "async_generator: loop over it"),
    ],
)
async def test_work_that_may_not_be_done_is_a_failure(make: Callable[[], Any], mend: str) -> None:
    failure = failure_of(make(), raised=False)
    assert failure is not None
    assert f"the handler returned work that may not be done, of type {mend}" in str(failure)


def test_an_outcome_that_is_returned_as_a_class_is_one() -> None:
    retry, dead = failure_of(Retry, raised=False), failure_of(DeadLetter, raised=False)
    assert retry is not None
    assert dead is not None
    assert (retry.dead, dead.dead) == (False, True)
    assert failure_of(Skip, raised=False) is None


class GiveUp(DeadLetter):
    def __init__(self, why: str) -> None:
        self.why = why  # without super().__init__


class Soon(Retry):
    def __init__(self) -> None:
        """Without super().__init__."""


class Verdict(Outcome):
    """Neither Retry, Skip nor DeadLetter."""


@pytest.mark.parametrize("raised", [True, False])
def test_an_outcome_without_its_attributes_means_what_its_class_says(raised: bool) -> None:
    dead, retry = failure_of(GiveUp("no account"), raised), failure_of(Soon(), raised)
    assert dead is not None
    assert retry is not None
    assert (dead.dead, str(dead)) == (True, "DeadLetter: GiveUp: no account")
    assert (retry.dead, retry.after, retry.kind) == (False, None, "Retry")


@pytest.mark.parametrize("raised", [True, False])
def test_an_outcome_of_no_known_class_is_never_done(raised: bool) -> None:
    failure = failure_of(Verdict("odd"), raised)
    assert failure is not None
    assert str(failure) == "Verdict: odd"


@pytest.mark.parametrize("after", [timedelta(minutes=1), -1, math.nan, 10**400])
def test_seconds_that_were_set_later_to_something_else_are_a_failure(after: Any) -> None:
    retry = Retry()
    retry.after = after
    failure = failure_of(retry, raised=True)
    assert failure is not None
    assert failure.after is None
    assert failure.kind in {"TypeError", "ValueError", "OverflowError"}


@pytest.mark.parametrize("after", [-1, math.nan, math.inf])
def test_seconds_that_never_come_are_refused(after: float) -> None:
    with pytest.raises(ValueError, match="give seconds, 0 or more"):
        Retry(after)


@pytest.mark.parametrize("after", ["x", True, False])
def test_seconds_are_a_number(after: Any) -> None:
    with pytest.raises(TypeError, match=rf"Retry\(after={after!r}\): give seconds as a number"):
        Retry(after=after)


def test_an_outcome_class_that_cannot_be_made_is_a_failure() -> None:
    class Later(Retry):
        def __init__(self, hours: int) -> None:
            super().__init__(hours * 3600)

    failure = failure_of(Later, raised=False)
    assert failure is not None
    assert failure.kind == "TypeError"


def test_outcomes_speak_for_single_messages() -> None:
    first, second, third = batch = [message(offset=offset) for offset in range(3)]
    outcomes = Outcomes({first: Retry(), second: Skip("seen")})
    assert [failure is None for failure in failures_of(outcomes, False, batch, subscription())] == [False, True, True]
    assert third not in outcomes


def test_a_plain_dict_of_messages_is_outcomes() -> None:
    first, second, third = batch = [message(offset=offset) for offset in range(3)]
    result = {first: Retry, second: Skip("seen"), third: None}
    assert [failure is None for failure in failures_of(result, False, batch, subscription())] == [False, True, True]


@pytest.mark.parametrize("result", [{}, {"settled": 3}, [], [1, 2], ("a",), {"a": [Retry]}])
def test_a_value_that_speaks_of_no_message_is_done(result: object) -> None:
    batch = [message(offset=offset) for offset in range(2)]
    assert failures_of(result, False, batch, subscription()) == [None, None]


def by_id(batch: list[Message]) -> Any:
    return Outcomes({batch[0].message_id: Retry()})


def by_id_in_a_dict(batch: list[Message]) -> Any:
    return {batch[0].message_id: Retry}


def with_text(batch: list[Message]) -> Any:
    return Outcomes({batch[0]: "again"})  # type: ignore[dict-item]


def with_text_in_a_dict(batch: list[Message]) -> Any:
    return {batch[0]: "again"}


def in_a_list(batch: list[Message]) -> Any:
    return [None, Retry()]


def in_a_tuple(batch: list[Message]) -> Any:
    return (Retry, batch)


@pytest.mark.parametrize("wrong", [by_id, by_id_in_a_dict, with_text, with_text_in_a_dict, in_a_list, in_a_tuple])
def test_what_looks_like_outcomes_and_is_not_does_not_make_a_batch_done(wrong: Any) -> None:
    batch = [message(offset=offset) for offset in range(2)]
    failures = failures_of(wrong(batch), False, batch, subscription())
    assert ["Outcomes maps messages to outcomes" in str(failure) for failure in failures] == [True, True]


def failures_of_reading(batch: list[Message], read: Any) -> list[Any]:
    return failures_of(raised_by(read), True, batch, subscription())


@pytest.mark.parametrize(("read", "what"), [(Message.json, "JSON"), (Message.text, "text")])
def test_a_body_that_cannot_be_read_makes_a_dead_letter_at_once(read: Any, what: str) -> None:
    one = message(b'{"a": "\xff"')
    (failure,) = failures_of_reading([one], lambda: read(one))
    assert failure.dead
    assert f"the body cannot be read as {what}: " in str(failure)


def test_a_body_that_cannot_be_read_spoils_only_its_own_message_of_a_batch() -> None:
    good, bad = batch = [message(), message(b"{", offset=1)]
    assert [failure.dead for failure in failures_of_reading(batch, bad.json)] == [False, True]
    assert [failure.dead for failure in failures_of_reading([good], bad.json)] == [False]


def test_an_unreadable_body_is_caught_as_it_always_was_and_pickled() -> None:
    one = message(b"\xff")
    with pytest.raises(msgspec.DecodeError) as not_json:
        one.json()
    with pytest.raises(UnicodeDecodeError) as not_text:
        one.text()
    for error in (not_json.value, not_text.value):
        assert isinstance(error, DeadLetter)
        assert str(pickle.loads(pickle.dumps(error))) == str(error) == error.reason


def raised_by(call: Any) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


def loads_half() -> None:
    json.loads("{")


def retries_from_an_error() -> None:
    try:
        loads_half()
    except ValueError as error:
        raise Retry from error


LINE = loads_half.__code__.co_firstlineno + 1


def test_a_reason_ends_with_the_line_of_the_users_code_and_not_of_a_library() -> None:
    failure = failure_of(raised_by(loads_half), raised=True)
    assert failure is not None
    assert failure.text.endswith(f" (test_outcomes.py:{LINE})")
    retry = failure_of(raised_by(retries_from_an_error), raised=True)
    assert retry is not None
    assert retry.text.endswith(f" (test_outcomes.py:{LINE})")


def test_a_group_of_exceptions_says_which_came_first() -> None:
    def fails() -> None:
        raise ExceptionGroup("tasks failed", [ExceptionGroup("inner", [raised_by(loads_half)])])  # type: ignore[list-item]

    failure = failure_of(raised_by(fails), raised=True)
    assert failure is not None
    assert failure.text.startswith("tasks failed (1 sub-exception): JSONDecodeError: ")
    assert failure.text.endswith(f" (test_outcomes.py:{LINE})")


def test_a_very_long_reason_keeps_its_line() -> None:
    def fails() -> None:
        raise ValueError("x" * 1000)

    failure = failure_of(raised_by(fails), raised=True)
    assert failure is not None
    assert len(failure.text) == 500
    assert failure.text.endswith(f" (test_outcomes.py:{fails.__code__.co_firstlineno + 1})")


def test_a_handler_in_an_installed_package_is_the_users_code_all_the_same() -> None:
    error = raised_by(loads_half)
    failure = failure_of(error, raised=True, home=json.loads.__code__.co_filename)
    assert failure is not None
    assert "(__init__.py:" in failure.text


def test_the_whole_traceback_is_told_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    error = raised_by(loads_half)
    with caplog.at_level(logging.INFO, "rocketapp.failures"):
        failures_of(error, True, [message()], subscription())
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, "rocketapp.failures"):
        failures_of(error, True, [message(), message(offset=1)], subscription())
    assert len(caplog.records) == 1
    assert "raw_decode" in caplog.text


def test_what_a_last_attempt_raised_goes_with_its_dead_letter_alone(caplog: pytest.LogCaptureFixture) -> None:
    error, about = raised_by(loads_half), subscription(retries=1)
    first, last = message(), message(offset=1, reconsume_times=1)
    with caplog.at_level(logging.DEBUG, "rocketapp.failures"):
        failures = failures_of(error, True, [first, last], about)
    assert [failure and failure.error for failure in failures] == [None, error]
    assert not caplog.records, "it is written with the dead letter"


def test_an_outcome_was_raised_on_purpose_and_needs_no_traceback() -> None:
    (failure,) = failures_of(DeadLetter("spoilt"), True, [message()], subscription())
    assert failure is not None and failure.dead
    assert failure.error is None
