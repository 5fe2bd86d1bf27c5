"""The checks of rates and breakers find calls that come too early or in vain, and nothing else."""

from __future__ import annotations

import pytest

from rocketapp.model.policy import Breaker
from tests.simulation import guards, liveness
from tests.simulation.history import SERVICE_DOWN, SERVICE_UP, Assigned, Event, Fault, Idle, Released
from tests.simulation.repeats import repeats
from tests.simulation.told import CALM, RETRY, A, B, ended, handled, sent, started
from tests.simulation.world import Topic

RATED = Topic(name="orders", rate=20.0)
GUARDED = Topic(name="orders", concurrency=1, breaker=Breaker(failures=3, within=10.0, pause=5.0))


def starting(*times: float) -> list[Event]:
    stored = [event for number in range(len(times)) for event in sent(0, number, queue=CALM)]
    return [*stored, *(event for number, at in enumerate(times) for event in started(at, number, queue=CALM))]


def released(at: float) -> list[Event]:
    return [Released(at, A, CALM), Assigned(at + 1, B, CALM)]


@pytest.mark.parametrize(
    ("times", "is_too_fast"),
    [
        ((1, 1, 1.05, 1.1, 1.15), False),
        ((1, 1, 1.05, 1.06), True),
        ((1, 1, 1), True),
        ((1, 1.05, 9, 9, 9.05), False),
    ],
    ids=["a burst and its rate", "one too early", "too many at once", "rests save no more than a burst"],
)
def test_a_message_that_starts_before_its_rate_allows_is_found(times: tuple[float, ...], is_too_fast: bool) -> None:
    assert bool(guards.broken(starting(*times), RATED)) is is_too_fast


def test_copies_count_for_the_rate_of_their_handler_and_members_have_rates_of_their_own() -> None:
    first = starting(1, 1)
    copy = started(1.01, 0, queue=RETRY, offset=0)
    assert guards.broken([*first, *copy], RATED) != []
    elsewhere = started(1.01, 0, queue=RETRY, offset=0, member=B)
    assert guards.broken([*first, *elsewhere], RATED) == []


@pytest.mark.parametrize(("calls", "are_too_many"), [(8, False), (9, True)])
def test_more_calls_than_a_breaker_lets_through_are_found(calls: int, are_too_many: bool) -> None:
    """Three failures, two that run or follow, two probes in 10 s, and one at the end."""
    times = [1 + number for number in range(calls)]
    history = [Fault(0.5, SERVICE_DOWN), *starting(*times), Fault(10.5, SERVICE_UP)]
    assert bool(guards.broken(history, GUARDED)) is are_too_many


def test_messages_of_a_guarded_topic_may_wait_and_those_of_others_may_not() -> None:
    waiting: list[Event] = [Assigned(0, A, CALM), *sent(20, 0, queue=CALM), Idle(80)]
    assert liveness.starved(waiting) != []
    assert liveness.starved(waiting, (), {"orders"}) == []
    assert liveness.starved(waiting, (), {"moves"}) != []


def test_a_message_that_waits_for_its_rate_explains_repeats_above_it_alone() -> None:
    history: list[Event] = [
        Assigned(0, A, CALM),
        *(event for number in (0, 1) for event in sent(1, number, queue=CALM)),
        *handled(2, 1, CALM),
    ]
    from_above = [*history, *released(40), *handled(42, 1, CALM, B)]
    assert repeats(from_above, guarded={"orders"}) == []
    assert repeats(from_above) != []
    through = [*history, *started(5, 0, queue=CALM), *ended(5.1, 0, queue=CALM)]
    assert repeats([*through, *released(40), *handled(42, 1, CALM, B)], guarded={"orders"}) != []
