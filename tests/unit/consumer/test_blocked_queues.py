from __future__ import annotations

import asyncio

from rocketapp.consumer.blocked import CONSEQUENCE, OF_CALL, OF_PAUSE, BlockedQueues
from rocketapp.model.event import Moving, QueueBlocked
from rocketapp.model.message_queue import MessageQueue
from tests.unit.scripted import Events, in_virtual_time

QUEUE = MessageQueue("t", "b", 0)


class Scene:
    """Seconds since its begin, and what was told."""

    def __init__(self) -> None:
        self.events = Events()
        self.blocked = BlockedQueues("g", self.events)
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    @property
    def now(self) -> float:
        return self._loop.time() - self._began

    async def at(self, seconds: float) -> None:
        await asyncio.sleep(seconds - self.now)


@in_virtual_time
async def test_a_reason_is_told_once_and_its_end_as_well() -> None:
    scene = Scene()
    scene.blocked.because(QUEUE, "no lock: a", kind="lock")
    scene.blocked.because(QUEUE, "no lock: b", kind="lock")
    assert scene.blocked.reasons() == {QUEUE: "no lock: b"}
    scene.blocked.moving(QUEUE)
    scene.blocked.moving(QUEUE)
    assert scene.events == [QueueBlocked("g", QUEUE, "no lock: a"), Moving("g", QUEUE)]
    assert scene.blocked.reasons() == {}


@in_virtual_time
async def test_a_reason_shows_the_figures_of_the_moment() -> None:
    scene = Scene()
    scene.blocked.because(QUEUE, lambda: f"{scene.now:.0f} bytes", kind="flow control", patience=5.0)
    await scene.at(5.0)
    scene.blocked.tell()
    await scene.at(7.0)
    assert scene.events == [QueueBlocked("g", QUEUE, "5 bytes")]
    assert scene.blocked.reasons() == {QUEUE: "7 bytes"}


@in_virtual_time
async def test_another_reason_is_told_too() -> None:
    scene = Scene()
    scene.blocked.because(QUEUE, "one")
    scene.blocked.because(QUEUE, "other")
    assert scene.events == [QueueBlocked("g", QUEUE, "one"), QueueBlocked("g", QUEUE, "other")]


@in_virtual_time
async def test_what_passes_soon_is_not_told_but_can_be_asked() -> None:
    scene = Scene()
    scene.blocked.because(QUEUE, "flow control", patience=5.0)
    assert scene.blocked.reasons() == {QUEUE: "flow control"}
    await scene.at(4.9)
    scene.blocked.tell()
    scene.blocked.moving(QUEUE)
    assert scene.events == []


@in_virtual_time
async def test_what_lasts_is_told_when_the_patience_is_over() -> None:
    scene = Scene()
    scene.blocked.because(QUEUE, "flow control", patience=5.0)
    await scene.at(5.0)
    scene.blocked.tell()
    scene.blocked.tell()
    assert scene.events == [QueueBlocked("g", QUEUE, "flow control")]


@in_virtual_time
async def test_a_queue_that_was_given_back_is_forgotten_without_a_word() -> None:
    scene = Scene()
    scene.blocked.because(QUEUE, "x", patience=1.0)
    scene.blocked.forget(QUEUE)
    await scene.at(2.0)
    scene.blocked.tell()
    assert scene.events == []


@in_virtual_time
async def test_an_answered_pull_does_not_hide_that_the_lock_is_in_doubt() -> None:
    scene = Scene()
    scene.blocked.because(QUEUE, "no lock", source="lock")
    scene.blocked.because(QUEUE, "flow control")
    scene.blocked.moving(QUEUE)
    assert scene.blocked.reasons() == {QUEUE: "no lock"}
    assert scene.events == [QueueBlocked("g", QUEUE, "no lock")]
    scene.blocked.moving(QUEUE, source="lock")
    assert scene.events == [QueueBlocked("g", QUEUE, "no lock"), Moving("g", QUEUE)]


@in_virtual_time
async def test_a_second_reason_is_told_when_the_first_is_gone() -> None:
    scene = Scene()
    scene.blocked.because(QUEUE, "paused")
    scene.blocked.because(QUEUE, "no lock", source="lock")
    assert scene.events == [QueueBlocked("g", QUEUE, "paused")]
    scene.blocked.moving(QUEUE)
    assert scene.events == [QueueBlocked("g", QUEUE, "paused"), QueueBlocked("g", QUEUE, "no lock")]


@in_virtual_time
async def test_a_full_cache_does_not_hide_what_it_may_follow_from() -> None:
    scene = Scene()
    scene.blocked.because(QUEUE, "flow control: full", kind=CONSEQUENCE)
    scene.blocked.because(QUEUE, "3 failed messages wait", kind="send back", source="retry")
    assert scene.blocked.reasons() == {QUEUE: "3 failed messages wait"}
    scene.blocked.moving(QUEUE, source="retry")
    assert scene.blocked.reasons() == {QUEUE: "flow control: full"}
    assert scene.events == [
        QueueBlocked("g", QUEUE, "flow control: full"),
        QueueBlocked("g", QUEUE, "3 failed messages wait"),
    ]


@in_virtual_time
async def test_a_queue_that_was_told_to_stand_still_is_told_to_move_whichever_reason_went_last() -> None:
    scene = Scene()
    scene.blocked.because(QUEUE, "paused")
    scene.blocked.because(QUEUE, "no lock", patience=1.0, source="lock")
    scene.blocked.moving(QUEUE)
    scene.blocked.moving(QUEUE, source="lock")
    assert scene.events == [QueueBlocked("g", QUEUE, "paused"), Moving("g", QUEUE)]


@in_virtual_time
async def test_a_lock_that_was_lost_leaves_the_queue_standing_until_it_moves() -> None:
    scene = Scene()
    scene.blocked.because(QUEUE, "no lock", source="lock")
    scene.blocked.forget(QUEUE, source="lock")
    scene.blocked.moving(QUEUE)
    assert scene.events == [QueueBlocked("g", QUEUE, "no lock"), Moving("g", QUEUE)]


@in_virtual_time
async def test_a_pause_is_told_and_shown_before_any_other_reason_which_is_told_once() -> None:
    scene = Scene()
    scene.blocked.because(QUEUE, "no lock", source="lock")
    scene.blocked.because(QUEUE, "paused: maintenance", source=OF_PAUSE)
    scene.blocked.because(QUEUE, "waits for a free call", source=OF_CALL)
    assert scene.blocked.reasons() == {QUEUE: "paused: maintenance"}
    scene.blocked.moving(QUEUE, source=OF_PAUSE)
    assert scene.blocked.reasons() == {QUEUE: "no lock"}
    scene.blocked.moving(QUEUE, source="lock")
    assert scene.blocked.reasons() == {QUEUE: "waits for a free call"}
    scene.blocked.moving(QUEUE, source=OF_CALL)
    told = [QueueBlocked("g", QUEUE, text) for text in ("no lock", "paused: maintenance", "waits for a free call")]
    assert scene.events == [*told, Moving("g", QUEUE)]
