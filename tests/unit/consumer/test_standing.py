from __future__ import annotations

from rocketapp.consumer.standing import Standing
from rocketapp.model.event import Moving, StandingStill
from rocketapp.model.message_queue import MessageQueue
from tests.unit.scripted import Events

QUEUE = MessageQueue("t", "b", 0)


class Scene:
    """A clock to set, and what was told."""

    def __init__(self) -> None:
        self.now, self.events = 0.0, Events()
        self.standing = Standing("g", self.events, lambda: self.now)


def test_a_reason_is_told_once_and_its_end_as_well() -> None:
    scene = Scene()
    scene.standing.still(QUEUE, "no lock: a", kind="lock")
    scene.standing.still(QUEUE, "no lock: b", kind="lock")
    assert scene.standing.reasons() == {QUEUE: "no lock: b"}
    scene.standing.moving(QUEUE)
    scene.standing.moving(QUEUE)
    assert scene.events == [StandingStill("g", QUEUE, "no lock: a"), Moving("g", QUEUE)]
    assert scene.standing.reasons() == {}


def test_another_reason_is_told_too() -> None:
    scene = Scene()
    scene.standing.still(QUEUE, "one")
    scene.standing.still(QUEUE, "other")
    assert scene.events == [StandingStill("g", QUEUE, "one"), StandingStill("g", QUEUE, "other")]


def test_what_passes_soon_is_not_told_but_can_be_asked() -> None:
    scene = Scene()
    scene.standing.still(QUEUE, "flow control", patience=5.0)
    assert scene.standing.reasons() == {QUEUE: "flow control"}
    scene.now = 4.9
    scene.standing.tell()
    scene.standing.moving(QUEUE)
    assert scene.events == []


def test_what_lasts_is_told_when_the_patience_is_over() -> None:
    scene = Scene()
    scene.standing.still(QUEUE, "flow control", patience=5.0)
    scene.now = 5.0
    scene.standing.tell()
    scene.standing.tell()
    assert scene.events == [StandingStill("g", QUEUE, "flow control")]


def test_a_queue_that_was_given_back_is_forgotten_without_a_word() -> None:
    scene = Scene()
    scene.standing.still(QUEUE, "x", patience=1.0)
    scene.standing.forget(QUEUE)
    scene.now = 2.0
    scene.standing.tell()
    assert scene.events == []
