"""Failed messages come again, at RocketMQ's own times."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.conformance.long_waits import LongWaits
from tests.conformance.mixed_waits import Attempt
from tests.conftest import on_embedded
from tests.peers.waiting import wait_until

LEVELS = (1, 5, 10, 30, 60)
"""Seconds of the first delay levels."""


def latest(seconds: int) -> float:
    """What waits for a level is never early, and comes before what waits for the next one."""
    return LEVELS[LEVELS.index(seconds) + 1] - 0.3


def by_text(attempts: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Attempts of each message, in the order in which they were made."""
    found: dict[str, list[dict[str, Any]]] = {}
    for event in attempts:
        found.setdefault(event["text"], []).append(event)
    return found


def check_gaps(times: list[float], gaps: tuple[int, ...], what: str) -> None:
    """Each time follows the one before it after the given seconds, never earlier and before those of the next level."""
    real = [round(later - earlier, 2) for earlier, later in itertools.pairwise(times)]
    assert len(real) == len(gaps), f"{what}: {len(times)} attempts, {len(gaps) + 1} expected"
    for seconds, wanted in zip(real, gaps, strict=True):
        # Handler and broker read the time at two places: 0.1 s allows for that and not for a wrong level.
        assert wanted - 0.1 <= seconds <= latest(wanted), f"{what}: gaps {real}, expected {gaps}"


def test_the_second_attempt_comes_after_10_s_and_the_third_after_30_s(waits: LongWaits) -> None:
    messages = by_text(waits.attempts("ladder", 9, within=60))
    assert len(messages) == 3
    for text, attempts in messages.items():
        assert [event["attempt"] for event in attempts] == [1, 2, 3]
        check_gaps([event["at"] for event in attempts], (10, 30), text)
        assert {event["topic"] for event in attempts} == {waits.topic("ladder")}
        assert len({event["id"] for event in attempts}) == 1


def test_a_sync_handler_is_retried_as_well(waits: LongWaits) -> None:
    for text, attempts in by_text(waits.attempts("ladder-sync", 6, within=40)).items():
        check_gaps([event["at"] for event in attempts], (10,), text)


def test_retry_after_rounds_up_to_the_next_delay_level(waits: LongWaits) -> None:
    for text, attempts in by_text(waits.attempts("after", 9, within=40)).items():
        check_gaps([event["at"] for event in attempts], (5, 1), text)


def test_a_failed_batch_comes_again_message_by_message(waits: LongWaits) -> None:
    messages = by_text(waits.attempts("batch", 6, within=40))
    assert sorted(messages) == ["batch 0", "batch 1", "batch 2"]
    for text, attempts in messages.items():
        assert [event["attempt"] for event in attempts] == [1, 2]
        check_gaps([event["at"] for event in attempts], (10,), text)


def test_a_group_with_an_orderly_topic_retries_its_other_topics_too(waits: LongWaits) -> None:
    # A group that holds a queue lock turns a send to its retry topic into a dead letter: only send-back is safe there.
    assert len(waits.attempts("mixed-orderly", 6, within=20)) == 6
    for text, attempts in by_text(waits.attempts("mixed", 12, within=40)).items():
        check_gaps([event["at"] for event in attempts], (10,), text)
    assert waits.java.dead_letters(waits.group("mixed")) == []


def test_a_retry_that_is_due_after_a_restart_comes_in_time(waits: LongWaits) -> None:
    events = waits.restarted.wait_for_count(12, "attempt", within=40)
    assert len({event["pid"] for event in events}) == 2
    for text, attempts in by_text(events).items():
        assert [event["attempt"] for event in attempts] == [1, 2]
        check_gaps([event["at"] for event in attempts], (10,), text)


def test_queues_that_are_added_are_read_from_their_first_message(waits: LongWaits) -> None:
    # Routes are asked for every 30 s, and what is new is shared out at once.
    events = waits.attempts("growing", 6, within=60)
    assert sorted(event["text"] for event in events) == [*(f"new {n}" for n in range(4)), "old 0", "old 1"]


def test_a_skipped_message_never_comes_again(waits: LongWaits) -> None:
    waits.attempts("ladder", 9, within=60)  # 40 s are over: more than the first two steps of the ladder
    assert len(waits.attempts("skip", 3, within=1)) == 3
    assert waits.java.dead_letters(waits.group("skip")) == []
    assert waits.java.lag(waits.topic("skip"), waits.group("skip")) == 0


@pytest.mark.parametrize(("group", "retrier"), [("java-first", "java"), ("ours-first", "ours")])
def test_what_fails_at_one_client_is_retried_at_the_other_and_its_attempts_count_on(
    waits: LongWaits, group: str, retrier: str
) -> None:
    # The retry topic has one queue: the member that comes first has it.
    begun_by = set()
    messages: dict[str, list[Attempt]] = {}
    for one in waits.mixed.all_attempts(group, within=90):
        messages.setdefault(one.text, []).append(one)
    for text, attempts in messages.items():
        first, *later = attempts
        begun_by.add(first.who)
        assert [one.attempt for one in attempts] == [1, 2, 3]
        assert {one.who for one in later} == {retrier}
        check_gaps([one.at for one in attempts], (10, 30), text)
    assert begun_by == {"java", "ours"}


@on_embedded
def test_the_java_consumer_sees_the_same_times(waits: LongWaits) -> None:
    consumer = waits.java_ladder
    assert consumer is not None
    # A brand-new Java group learns of its retry topic at its next route poll and rebalance: a first retry may be late.
    wait_until(lambda: len(consumer.poll()) >= 9, within=90, what=lambda: f"nine attempts: {consumer.seen}", every=0.2)
    for message in {event["body"] for event in consumer.seen}:
        attempts = [event for event in consumer.seen if event["body"] == message]
        assert [event["attempt"] for event in attempts] == [1, 2, 3]
        first, second, third = (event["at"] for event in attempts)
        assert 9.9 <= second - first <= latest(10) + 30
        assert 29.9 <= third - second <= latest(30)
