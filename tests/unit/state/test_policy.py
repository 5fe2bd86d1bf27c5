from __future__ import annotations

from asyncio import CancelledError
from typing import Any

import pytest

from rocketapp.model.outcome import DeadLetter, Outcome, Outcomes, Pause, Retry, Skip
from rocketapp.model.policy import Policy, unfit_for_concurrent
from rocketapp.state.redelivery import Failure, delay_before, retry_level, under_policy
from tests.cases import cases


def said(policy: Policy, error: BaseException) -> Failure | None:
    return under_policy(policy, error, Failure(type(error).__name__, str(error)))


def test_the_nearest_class_of_an_exception_decides() -> None:
    policy = Policy(on={Exception: DeadLetter, OSError: Retry, FileNotFoundError: Skip})
    assert said(policy, FileNotFoundError()) is None
    assert said(policy, PermissionError("no")) == Failure("PermissionError", "no")
    assert said(policy, KeyError(1)) == Failure("KeyError", "1", dead=True)
    assert said(policy, KeyboardInterrupt()) == Failure("KeyboardInterrupt", "")


def test_an_outcome_made_with_arguments_passes_them_on() -> None:
    policy = Policy(on={OSError: Retry(after=60), ValueError: DeadLetter("spoilt"), KeyError: Pause("no such table")})
    assert said(policy, OSError("busy")) == Failure("OSError", "busy", after=60)
    assert said(policy, ValueError("7")) == Failure("ValueError", "spoilt: 7", dead=True)
    assert said(policy, KeyError(3)) == Failure("KeyError", "no such table: 3", pause=True, parked=True)


def test_a_class_derived_from_an_outcome_means_what_the_outcome_means() -> None:
    class Spoilt(DeadLetter):
        def __init__(self, much: int) -> None:
            self.much = much

    assert said(Policy(on={ValueError: Spoilt}), ValueError("x")) == Failure("ValueError", "x", dead=True)


def test_the_last_delay_repeats_and_no_delays_are_the_usual_ones() -> None:
    policy = Policy([1, 5, 30])
    assert [delay_before(policy, times) for times in range(5)] == [1, 5, 30, 30, 30]
    assert delay_before(Policy(), 0) is None
    assert delay_before(None, 0) is None


def test_a_concurrent_delay_is_rounded_up_to_a_level_and_gives_way_to_the_handlers_own() -> None:
    policy = Policy([7])
    assert retry_level(Failure("ValueError", ""), policy, reconsume_times=0, retries=16) == 3
    assert retry_level(Failure("Retry", "", after=60), policy, reconsume_times=0, retries=16) == 5


def test_delays_above_two_hours_do_not_fit_a_concurrent_handler() -> None:
    assert unfit_for_concurrent(Policy([1, 7200], on={OSError: Retry(after=7200)})) is None
    for policy in (Policy([7201]), Policy(on={OSError: Retry(after=7201)})):
        assert "7201 s is longer than RocketMQ's longest delay, 7200 s (2 h)" in str(unfit_for_concurrent(policy))


WRONG_POLICIES = [
    ({"delays": 5}, "give a list of seconds, such as [1, 5, 30]"),
    ({"delays": "15"}, "give a list of seconds, such as [1, 5, 30]"),
    ({"delays": [1, "5"]}, "'5' is not a number of seconds"),
    ({"delays": [True]}, "True is not a number of seconds"),
    ({"delays": [-1]}, "-1: give seconds, 0 or more"),
    ({"delays": [float("inf")]}, "inf: give seconds, 0 or more"),
    ({"delays": [float("nan")]}, "nan: give seconds, 0 or more"),
    ({"on": [ValueError]}, "give a dict, such as {ValueError: DeadLetter}"),
    ({"on": {"ValueError": Skip}}, "'ValueError' is not an exception class"),
    ({"on": {ValueError(): Skip}}, "is not an exception class"),
    ({"on": {int: Skip}}, "is not an exception class"),
    ({"on": {BaseException: Skip}}, "BaseException stands for more than failed messages: name Exception"),
    ({"on": {KeyboardInterrupt: Skip}}, "KeyboardInterrupt stands for more than failed messages"),
    ({"on": {CancelledError: Skip}}, "CancelledError stands for more than failed messages"),
    ({"on": {ValueError: "skip"}}, "ValueError: 'skip': give Retry, Skip, DeadLetter or Pause"),
    ({"on": {ValueError: KeyError}}, "ValueError: KeyError: give Retry, Skip, DeadLetter or Pause"),
    ({"on": {ValueError: Outcomes}}, "ValueError: Outcomes: give Retry, Skip, DeadLetter or Pause"),
    ({"on": {ValueError: Outcome}}, "ValueError: Outcome: give Retry, Skip, DeadLetter or Pause"),
    ({"on": {Retry: Skip}}, "Retry says itself what follows: remove it"),
]


@cases(
    "arguments, text",
    WRONG_POLICIES,
)
def test_a_wrong_policy_is_refused_with_the_mend(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        Policy(**arguments)
    assert text in str(refused.value)
