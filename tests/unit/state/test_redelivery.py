from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketapp.state.redelivery import (
    PATIENCE,
    UNLIMITED,
    Failure,
    Origin,
    Path,
    Problem,
    after_failure,
    attempt_timeout,
    clean,
    dead_letter_properties,
    max_reconsume_times,
    retry_delay,
    retry_level,
    retry_properties,
    seconds_of,
)
from tests.cases import cases

FAILURE = Failure("ValueError", "no")


@pytest.mark.parametrize(("times", "level", "delay"), [(0, 3, 10.0), (1, 4, 30.0), (2, 5, 60.0), (15, 18, 7200.0)])
def test_the_ladder_of_retries(times: int, level: int, delay: float) -> None:
    assert retry_level(FAILURE, None, reconsume_times=times, retries=16) == level
    assert seconds_of(level) == delay


def test_retries_give_one_attempt_more_than_their_number() -> None:
    steps = [retry_level(FAILURE, None, reconsume_times=times, retries=2) for times in range(4)]
    assert steps == [3, 4, None, None]


def test_levels_end_at_the_highest_however_many_retries() -> None:
    assert retry_level(FAILURE, None, reconsume_times=50, retries=100) == 18
    assert retry_level(FAILURE, None, reconsume_times=50, retries=UNLIMITED) == 18


@pytest.mark.parametrize(("after", "level"), [(0.0, 1), (1.0, 1), (1.1, 2), (45, 5), (7200, 18), (1e9, 18)])
def test_a_wanted_wait_rounds_up_to_a_level(after: float, level: int) -> None:
    failure = Failure("Retry", "", after=after)
    assert retry_level(failure, None, reconsume_times=0, retries=16) == level


def test_a_wanted_wait_is_an_attempt_like_any_other() -> None:
    assert retry_level(Failure("Retry", "", after=1.0), None, reconsume_times=16, retries=16) is None


def test_dead_at_once_when_the_handler_says_so() -> None:
    failure = Failure("DeadLetter", "x", dead=True)
    assert retry_level(failure, None, reconsume_times=0, retries=16) is None
    assert retry_delay(failure, None, reconsume_times=0, retries=UNLIMITED, suspend=1.0) is None


def test_orderly_retries_stay_in_place_and_wait_exactly() -> None:
    assert retry_delay(FAILURE, None, reconsume_times=0, retries=16, suspend=1.0) == 1.0
    assert retry_delay(Failure("Retry", "", after=0.3), None, reconsume_times=0, retries=16, suspend=1.0) == 0.3
    assert retry_delay(Failure("Retry", "", after=0.0), None, reconsume_times=0, retries=16, suspend=1.0) == 0.01
    assert retry_delay(FAILURE, None, reconsume_times=16, retries=16, suspend=1.0) is None
    assert retry_delay(FAILURE, None, reconsume_times=10**6, retries=UNLIMITED, suspend=1.0) == 1.0


def test_unlimited_is_said_in_javas_words() -> None:
    assert (max_reconsume_times(UNLIMITED), max_reconsume_times(3)) == (2**31 - 1, 3)


ORIGIN = Origin(
    "orders",
    "id",
    4,
    {"KEYS": "k", "DELAY": "9", "REAL_TOPIC": "x", "REAL_QID": "1", "TRAN_MSG": "true", "RETRY_TOPIC": "o"},
)


def test_a_retry_that_we_send_ourselves_counts_on_and_has_only_its_own_delay() -> None:
    assert retry_properties(ORIGIN, level=7, retries=16) == {
        "KEYS": "k",
        "ORIGIN_MESSAGE_ID": "id",
        "RETRY_TOPIC": "orders",
        "RECONSUME_TIME": "5",
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": "7",
    }


def test_a_dead_letter_says_why_and_does_not_wait() -> None:
    properties = dead_letter_properties(
        ORIGIN, Failure("ValueError", "bad\x02news"), handler="app:pay", app_version="1.2"
    )
    assert properties == {
        "KEYS": "k",
        "ORIGIN_MESSAGE_ID": "id",
        "RETRY_TOPIC": "orders",
        "RECONSUME_TIME": "5",
        "MAX_RECONSUME_TIMES": "4",
        "rocketapp.handler": "app:pay",
        "rocketapp.exception": "ValueError",
        "rocketapp.reason": "bad news",
        "rocketapp.attempts": "5",
        "rocketapp.app_version": "1.2",
    }


def test_a_dead_letter_that_was_too_large_says_where_it_came_from() -> None:
    where = {"ORIGIN_MESSAGE_ID": "id", "RETRY_TOPIC": "orders", "RECONSUME_TIME": "5", "MAX_RECONSUME_TIMES": "4"}
    origin = replace(ORIGIN, properties={"KEYS": "k", "long": "x"})
    about = {"handler": "app:pay", "app_version": "1.2"}
    assert dead_letter_properties(origin, FAILURE, **about, is_bare=True) == where  # type: ignore[arg-type]
    assert dead_letter_properties(origin, FAILURE, **about).items() > (where | origin.properties).items()  # type: ignore[arg-type]


def test_the_first_origin_stays() -> None:
    origin = Origin("orders", "id", 1, {"ORIGIN_MESSAGE_ID": "the first"})
    assert retry_properties(origin, level=3, retries=16)["ORIGIN_MESSAGE_ID"] == "the first"


@given(st.text(st.characters(), max_size=2000))
@example("\ud800 is half a character")
def test_a_reason_is_short_and_can_stand_in_a_property(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned) <= 500
    assert not any(ord(sign) < 32 or ord(sign) == 127 for sign in cleaned)
    cleaned.encode()


@cases(
    "path, problem, has_locks, expected",
    [
        (Path.SEND_BACK, Problem.PASSING, False, (Path.SEND_BACK, None)),
        (Path.SEND_BACK, Problem.UNCLEAR, False, (Path.SEND_BACK, Path.RETRY_COPY)),
        (Path.SEND_BACK, Problem.LASTING, False, (Path.RETRY_COPY, Path.RETRY_COPY)),
        (Path.SEND_BACK, Problem.PASSING, True, (Path.SEND_BACK, None)),
        (Path.SEND_BACK, Problem.UNCLEAR, True, (Path.SEND_BACK, None)),
        (Path.SEND_BACK, Problem.LASTING, True, (Path.DEAD_COPY, Path.DEAD_COPY)),
        (Path.RETRY_COPY, Problem.PASSING, False, (Path.RETRY_COPY, None)),
        (Path.RETRY_COPY, Problem.LASTING, False, (Path.DEAD_COPY, Path.DEAD_COPY)),
        (Path.DEAD_COPY, Problem.PASSING, True, (Path.DEAD_COPY, Path.DEAD_SEND_BACK)),
        (Path.DEAD_SEND_BACK, Problem.LASTING, True, (Path.DEAD_COPY, None)),
    ],
)
def test_what_follows_a_failed_attempt(path: Path, problem: Problem, has_locks: bool, expected: object) -> None:
    assert after_failure(path, problem, first=path, has_locks=has_locks, unclear_for=PATIENCE - 1) == expected


def test_an_unclear_refusal_is_not_met_in_the_same_way_for_ever() -> None:
    after = after_failure(Path.SEND_BACK, Problem.UNCLEAR, first=Path.SEND_BACK, has_locks=True, unclear_for=PATIENCE)
    assert after[0] is Path.DEAD_COPY


@given(
    st.sampled_from([Path.SEND_BACK, Path.DEAD_COPY]),
    st.booleans(),
    st.lists(st.sampled_from(Problem), max_size=200),
)
def test_every_round_ends_and_makes_at_most_one_copy_whose_fate_is_unknown(
    first: Path, has_locks: bool, problems: list[Problem]
) -> None:
    path, rounds, tried, has_refused = first, 0, [first], first is Path.DEAD_COPY
    for problem in problems:
        next_first, at_once = after_failure(path, problem, first=first, has_locks=has_locks, unclear_for=10.0 * rounds)
        has_refused |= path is Path.SEND_BACK and problem is Problem.LASTING
        if at_once is None:
            path, rounds, tried = next_first, rounds + 1, [next_first]
        else:
            assert problem is not Problem.UNKNOWN, "a second path may store a second copy"
            assert at_once not in tried
            path = at_once
            tried.append(path)
        assert not (has_locks and path is Path.RETRY_COPY), "its lock would make that a dead letter"
        assert not (has_refused and path is Path.SEND_BACK), "refused for good, and asked again"
        first = next_first


def test_attempts_take_longer_and_longer_when_answers_are_lost() -> None:
    assert [attempt_timeout(5.0, unknowns) for unknowns in range(6)] == [5, 10, 20, 40, 60, 60]
    assert attempt_timeout(90.0, 3) == 90
    assert attempt_timeout(5.0, 100_000) == 60
