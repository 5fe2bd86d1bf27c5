"""Mechanisms that meet: seeds that put two or three together, and a checker that finds what they break."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation import history as facts
from tests.simulation import pair_checks
from tests.simulation.history import (
    Assigned,
    Cancelled,
    Committed,
    Event,
    Fault,
    Finished,
    Paused,
    Released,
    Resumed,
    Started,
    Unexplained,
)
from tests.simulation.ownership import overlaps
from tests.simulation.pairs import ELEMENTS, PAIRS, elements_of
from tests.simulation.put_back import DEFECTS, found_with
from tests.simulation.seeded import simulate
from tests.simulation.told import CALM, DEAD, RETRY, A, B, ended, handled, sent, started, stored_copy

SEEDS = 9, 18, 20, 24, 30, 43, 48, 60, 61, 66
"""Those of the defects run as well: together they draw every element."""
RETRIES = {"orders": 0}


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as one:
        yield one


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_breaks_when_mechanisms_meet(seed: int, pool: ProcessPoolExecutor) -> None:
    again = f"python -m tests.simulation --seeds {seed} {seed + 1} --workload {PAIRS} --show"
    assert pool.submit(simulate, seed, PAIRS).result().findings == [], f"{sorted(elements_of(seed))}: {again}"


@pytest.mark.parametrize(
    ("seed", "lesson"),
    [
        (115, "who has given a queue back forwards nothing of it after the death of who had taken it"),
        (447, "a member that joins may answer for its kind, also when the one that was asked before is dead"),
        (1367, "what may be wanted waits while nobody of a kind has said what it wants, also when all of it are gone"),
        (7075, "all members are dead at once, and the first that begins passes over what only the other kind wants"),
        (22709, "a breaker goes on although messages have waited in it whose queue was given up"),
        (469, "a copy stored behind the end of a cut drain tells its next owner nothing"),
    ],
    ids=["given back", "may answer", "has not said", "all dead", "given up", "told nothing"],
)
def test_a_seed_that_has_found_a_defect_finds_none(seed: int, lesson: str, pool: ProcessPoolExecutor) -> None:
    assert pool.submit(simulate, seed, PAIRS).result().findings == [], lesson


@pytest.mark.parametrize("name", DEFECTS)
def test_each_defect_that_is_put_back_is_found_and_nothing_is_found_without_it(
    name: str, pool: ProcessPoolExecutor
) -> None:
    defect = DEFECTS[name]
    finds = (seed for seed in defect.seeds if pool.submit(found_with, name, seed).result())
    first = next(finds, None)
    assert first is not None, defect.says
    assert pool.submit(simulate, first, PAIRS).result().findings == []


def test_seeds_draw_every_element_and_those_that_meet_most_often() -> None:
    drawn = [elements_of(seed) for seed in range(500)]
    counted = Counter(element for elements in drawn for element in elements)
    assert set(counted) == set(ELEMENTS)
    assert min(counted.values()) >= 20
    for together in (
        {"orderly", "roll-out", "cut drain"},
        {"keyed", "roll-out", "cut drain"},
        {"roll-out", "pause"},
        {"roll-out", "quarantine"},
        {"roll-out", "stop"},
    ):
        assert any(together <= elements for elements in drawn)


def test_a_call_of_a_paused_topic_is_found_also_of_its_copies() -> None:
    paused: list[Event] = [*sent(1, 0, queue=CALM), Paused(2, A, "orders")]
    resumed = Resumed(5, A, "orders")
    assert pair_checks.calls_while_paused([*paused, *started(3, 0, queue=CALM)])
    assert pair_checks.calls_while_paused([*paused, *started(3, 0, queue=RETRY, offset=0)])
    assert not pair_checks.calls_while_paused([*paused, *started(3, 0, queue=CALM, member=B)])
    assert not pair_checks.calls_while_paused([*paused, resumed, *started(6, 0, queue=CALM)])


def test_a_dead_letter_without_a_call_is_found() -> None:
    dead = stored_copy(9, 0, DEAD)
    stored = sent(1, 0, queue=CALM)
    failed = [*started(2, 0, queue=CALM), *ended(3, 0, queue=CALM, done=False)]
    assert pair_checks.attempts_without_calls([*stored, *dead], RETRIES, set())
    assert not pair_checks.attempts_without_calls([*stored, *failed, *dead], RETRIES, set())
    assert pair_checks.attempts_without_calls([*stored, *failed, *dead], {"orders": 2}, set())
    assert not pair_checks.attempts_without_calls([*stored, *failed, *dead], {"orders": 2}, {(0, 1)})


def test_an_attempt_that_follows_no_failed_call_is_found() -> None:
    stored, second = sent(1, 0, queue=CALM), [Started(9, B, RETRY, 0, 0, 2)]
    failed = [*started(2, 0, queue=CALM), *ended(3, 0, queue=CALM, done=False)]
    died = [*started(2, 0, queue=CALM), Fault(3, facts.CRASH, A)]
    assert pair_checks.attempts_without_calls([*stored, *second], RETRIES, set())
    assert not pair_checks.attempts_without_calls([*stored, *failed, *second], RETRIES, set())
    assert not pair_checks.attempts_without_calls([*stored, *died, *second], RETRIES, set())


def test_a_message_that_waits_while_another_ones_turn_lasts_is_found_unless_both_are_quarantined() -> None:
    begun: list[Event] = [Assigned(0, A, CALM), *sent(1, 0, queue=CALM), *sent(1, 1, queue=CALM)]
    died: list[Event] = [*begun, Fault(2, facts.CRASH, A), Assigned(3, B, CALM)]
    turn = started(3, 0, queue=CALM, member=B)
    assert not pair_checks.held_up([*died, *turn, *started(30, 1, queue=CALM, member=B)], {"orders"}, set())
    assert pair_checks.held_up([*died, *turn, *started(50, 1, queue=CALM, member=B)], {"orders"}, set())
    ordinary = sent(4, 2, queue=CALM)
    assert pair_checks.held_up([*died, *turn, *ordinary, *started(30, 2, queue=CALM, member=B)], {"orders"}, set())


def test_a_message_may_wait_for_a_pause_an_owner_or_the_one_before_it_in_order() -> None:
    begun: list[Event] = [Assigned(0, A, CALM), *sent(1, 0, queue=CALM), *sent(1, 1, queue=CALM)]
    late = started(29.5, 1, queue=CALM)
    first = [*started(1, 0, queue=CALM), *ended(29, 0, queue=CALM)]
    assert pair_checks.held_up([*begun, *first, *late], {"orders"}, set())
    assert not pair_checks.held_up([*begun, *first, *late], {"orders"}, {"orders"})
    resumed: list[Event] = [Paused(1, A, "orders"), Resumed(29, A, "orders")]
    assert not pair_checks.held_up([*begun, *resumed, *late], {"orders"}, set())
    assert not pair_checks.held_up([*begun, Assigned(29, B, CALM), *late], {"orders"}, set())
    assert not pair_checks.held_up([*begun, *late], {"moves"}, set())


def test_the_end_of_a_call_counts_no_more_when_its_drain_was_cut_and_the_commit_was_under_way() -> None:
    begun: list[Event] = [Assigned(0, A, CALM), *sent(1, 0, queue=CALM), *started(2, 0, queue=CALM)]
    leaves: list[Event] = [Fault(3, facts.LEAVE, A)]
    late, gone = ended(4, 0, queue=CALM), Released(5, A, CALM)

    def is_done(*history: Event) -> bool:
        return any(isinstance(event, Finished) and event.done for event in pair_checks.as_heard(history))

    cut = Fault(3.9, facts.DRAIN_CUT, A)
    assert not is_done(*begun, *leaves, cut, *late, Committed(4.5, CALM, 0), gone)
    assert is_done(*begun, *leaves, cut, *late, Committed(4.5, CALM, 1), gone)
    assert is_done(*begun, *leaves, *late, Committed(4.5, CALM, 0), gone)


def test_what_nobody_knows_to_be_wanted_is_passed_over_only_when_all_members_have_died_at_once() -> None:
    begun: list[Event] = [Fault(0, facts.JOIN, A), Fault(0, facts.JOIN, B), Assigned(1, B, CALM)]
    stored = sent(2, 0, queue=CALM)
    dead: list[Event] = [*begun, *stored, Fault(3, facts.CRASH, A), Fault(4, facts.CRASH, B)]
    again: list[Event] = [Fault(5, facts.JOIN, "c"), Assigned(5.2, "c", CALM)]

    def is_passed_over(*history: Event) -> bool:
        judged = pair_checks.with_passed_over(history, lambda member, _: member not in (A, "d"))
        return any(isinstance(event, Finished) for event in judged)

    assert is_passed_over(*dead, *again)
    assert is_passed_over(*dead, Fault(5, facts.JOIN, "d"), *again)
    assert not is_passed_over(*dead, Fault(4.5, facts.JOIN, "d"), *again)
    assert not is_passed_over(*dead, Fault(5, facts.JOIN, "d"), Assigned(5.2, "d", CALM))
    assert not is_passed_over(*dead)
    assert not is_passed_over(*dead[:-1], *again)
    assert is_passed_over(*dead[:-1], Fault(3.9, facts.JOIN, "c"), dead[-1], *again[1:])
    assert not is_passed_over(*dead[:-1], Fault(3.5, facts.JOIN, "c"), dead[-1], *again[1:])
    late = sent(8, 1, queue=CALM)
    assert is_passed_over(*begun, *dead[-2:], *again, *late)
    assert not is_passed_over(*begun, *dead[-2:], *again, Fault(7, facts.JOIN, "d"), *late)
    assert not is_passed_over(*begun, *dead[-2:], *late)


def looks(*times: float) -> list[Event]:
    return [Unexplained(at, A, CALM) for at in times]


def test_a_queue_that_stands_still_without_a_reason_is_found() -> None:
    still = looks(*range(2, 26, 2))
    assert pair_checks.without_reason(still)
    assert not pair_checks.without_reason(looks(*range(2, 14, 2), *range(18, 30, 2)))
    assert not pair_checks.without_reason([*started(1, 0, queue=CALM), *still])
    assert not pair_checks.without_reason([*still[:6], *handled(13, 0, CALM), *still[6:]])


def test_a_call_that_was_cancelled_overlaps_with_nothing_and_one_that_runs_elsewhere_does() -> None:
    begun = [*sent(1, 0), *sent(1, 1), *started(2, 0)]
    again = started(4, 0, member=B)
    assert overlaps([*begun, *again], {"moves"})
    assert not overlaps([*begun, Cancelled(3, A, "moves:0", 0, 0, 1), *again], {"moves"})


def test_what_was_in_flight_at_a_death_has_failed() -> None:
    died: list[Event] = [*sent(1, 0), *started(2, 0), *sent(2, 1), *handled(2, 1), Fault(3, facts.CRASH, A)]
    assert pair_checks.with_deaths(died) == [*died, Finished(3, A, "moves:0", 0, 0, 1, False)]


def test_a_request_for_which_a_broker_had_no_thread_is_found() -> None:
    assert pair_checks.refused_requests([Fault(3, facts.REFUSED, "broker-a: request 41")])
