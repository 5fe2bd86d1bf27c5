from __future__ import annotations

from rocketapp.consumer.stalls import CONSEQUENCE, OF_LOCK, OF_RETRY, StallReasons
from rocketapp.model.event import Moving, StandingStill
from rocketapp.model.message_queue import MessageQueue
from tests.unit.scripted import Events

QUEUE = MessageQueue("t", "b", 0)


class Scene:
    """A clock to set, and what was told."""

    def __init__(self) -> None:
        self.now, self.events = 0.0, Events()
        self.stall_reasons = StallReasons("g", self.events, lambda: self.now)


def test_a_reason_is_told_once_and_its_end_as_well() -> None:
    scene = Scene()
    scene.stall_reasons.blocked(QUEUE, "no lock: a", kind="lock")
    scene.stall_reasons.blocked(QUEUE, "no lock: b", kind="lock")
    assert scene.stall_reasons.reasons() == {QUEUE: "no lock: b"}
    scene.stall_reasons.moving(QUEUE)
    scene.stall_reasons.moving(QUEUE)
    assert scene.events == [StandingStill("g", QUEUE, "no lock: a"), Moving("g", QUEUE)]
    assert scene.stall_reasons.reasons() == {}


def test_a_reason_shows_the_figures_of_the_moment() -> None:
    scene = Scene()
    scene.stall_reasons.blocked(QUEUE, lambda: f"{scene.now:.0f} bytes", kind="flow control", patience=5.0)
    scene.now = 5.0
    scene.stall_reasons.tell()
    scene.now = 7.0
    assert scene.events == [StandingStill("g", QUEUE, "5 bytes")]
    assert scene.stall_reasons.reasons() == {QUEUE: "7 bytes"}


def test_another_reason_is_told_too() -> None:
    scene = Scene()
    scene.stall_reasons.blocked(QUEUE, "one")
    scene.stall_reasons.blocked(QUEUE, "other")
    assert scene.events == [StandingStill("g", QUEUE, "one"), StandingStill("g", QUEUE, "other")]


def test_what_passes_soon_is_not_told_but_can_be_asked() -> None:
    scene = Scene()
    scene.stall_reasons.blocked(QUEUE, "flow control", patience=5.0)
    assert scene.stall_reasons.reasons() == {QUEUE: "flow control"}
    scene.now = 4.9
    scene.stall_reasons.tell()
    scene.stall_reasons.moving(QUEUE)
    assert scene.events == []


def test_what_lasts_is_told_when_the_patience_is_over() -> None:
    scene = Scene()
    scene.stall_reasons.blocked(QUEUE, "flow control", patience=5.0)
    scene.now = 5.0
    scene.stall_reasons.tell()
    scene.stall_reasons.tell()
    assert scene.events == [StandingStill("g", QUEUE, "flow control")]


def test_a_queue_that_was_given_back_is_forgotten_without_a_word() -> None:
    scene = Scene()
    scene.stall_reasons.blocked(QUEUE, "x", patience=1.0)
    scene.stall_reasons.forget(QUEUE)
    scene.now = 2.0
    scene.stall_reasons.tell()
    assert scene.events == []


def test_an_answered_pull_does_not_hide_that_the_lock_is_in_doubt() -> None:
    scene = Scene()
    scene.stall_reasons.blocked(QUEUE, "no lock", place=OF_LOCK)
    scene.stall_reasons.blocked(QUEUE, "flow control")
    scene.stall_reasons.moving(QUEUE)
    assert scene.stall_reasons.reasons() == {QUEUE: "no lock"}
    assert scene.events == [StandingStill("g", QUEUE, "no lock")]
    scene.stall_reasons.moving(QUEUE, place=OF_LOCK)
    assert scene.events == [StandingStill("g", QUEUE, "no lock"), Moving("g", QUEUE)]


def test_a_second_reason_is_told_when_the_first_is_gone() -> None:
    scene = Scene()
    scene.stall_reasons.blocked(QUEUE, "paused")
    scene.stall_reasons.blocked(QUEUE, "no lock", place=OF_LOCK)
    assert scene.events == [StandingStill("g", QUEUE, "paused")]
    scene.stall_reasons.moving(QUEUE)
    assert scene.events == [StandingStill("g", QUEUE, "paused"), StandingStill("g", QUEUE, "no lock")]


def test_a_full_cache_does_not_hide_what_it_may_follow_from() -> None:
    scene = Scene()
    scene.stall_reasons.blocked(QUEUE, "flow control: full", kind=CONSEQUENCE)
    scene.stall_reasons.blocked(QUEUE, "3 failed messages wait", kind="send back", place=OF_RETRY)
    assert scene.stall_reasons.reasons() == {QUEUE: "3 failed messages wait"}
    scene.stall_reasons.moving(QUEUE, place=OF_RETRY)
    assert scene.stall_reasons.reasons() == {QUEUE: "flow control: full"}
    assert scene.events == [
        StandingStill("g", QUEUE, "flow control: full"),
        StandingStill("g", QUEUE, "3 failed messages wait"),
    ]


def test_a_queue_that_was_told_to_stand_still_is_told_to_move_whichever_reason_went_last() -> None:
    scene = Scene()
    scene.stall_reasons.blocked(QUEUE, "paused")
    scene.stall_reasons.blocked(QUEUE, "no lock", patience=1.0, place=OF_LOCK)
    scene.stall_reasons.moving(QUEUE)
    scene.stall_reasons.moving(QUEUE, place=OF_LOCK)
    assert scene.events == [StandingStill("g", QUEUE, "paused"), Moving("g", QUEUE)]


def test_a_lock_that_was_lost_leaves_the_queue_standing_until_it_moves() -> None:
    scene = Scene()
    scene.stall_reasons.blocked(QUEUE, "no lock", place=OF_LOCK)
    scene.stall_reasons.forget(QUEUE, place=OF_LOCK)
    scene.stall_reasons.moving(QUEUE)
    assert scene.events == [StandingStill("g", QUEUE, "no lock"), Moving("g", QUEUE)]
