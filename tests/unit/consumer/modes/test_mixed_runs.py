"""One worker walks through messages of several handlers."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.consumer.modes.delivery import Mode
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed_by, subscription
from tests.unit.consumer.modes.contexts import DeadLetters, mode_context, opened
from tests.unit.consumer.modes.test_concurrent import dropping
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.scripted import eventually
from tests.virtual import run_virtual

OTHER, THIRD = MessageQueue("topic", "broker-a", 1), MessageQueue("topic", "broker-a", 2)
MODES: dict[str, dict[str, Any]] = {"concurrent": {}, "keyed": {"order_by": lambda message: message.offset}}
each_mode = pytest.mark.parametrize("options", MODES.values(), ids=MODES)


def mode_of(options: dict[str, Any], *handlers: Handler) -> Mode:
    topic = consumed_by(*handlers)
    if not options:
        return dropping([topic], topic.handlers)
    return MessageMode([topic], mode_context(topic.handlers, dead_letters=DeadLetters()), in_order=True)


@each_mode
def test_a_run_that_waits_for_its_turn_exceeds_no_concurrency(options: dict[str, Any]) -> None:
    async def main() -> None:
        running = most = count = 0
        loop: Any = asyncio.get_running_loop()

        async def one(_: Message) -> None:
            nonlocal running, most, count
            running, count = running + 1, count + 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1

        async def computes(_: Message) -> None:
            loop.stand_still(0.006)

        mode = mode_of(
            options,
            Handler(subscription("one", tags="one", concurrency=1, **options), one),
            Handler(subscription("computes", tags="computes", concurrency=8, **options), computes),
        )
        opened(mode, QUEUE, *(message(at, "computes") for at in range(32)), message(32, "one"))
        opened(mode, OTHER, *(message(at, "computes", OTHER) for at in range(3)), message(32, "one", OTHER))
        # In the same moment a pull of another queue brings messages for `one` alone.
        opened(mode, THIRD, *(message(at, "one", THIRD) for at in range(3)))
        await asyncio.sleep(60)
        await mode.callers.stop()
        assert (most, count) == (1, 5)

    run_virtual(main)


@each_mode
def test_a_handler_that_cancels_its_task_fails_no_message_of_another(options: dict[str, Any]) -> None:
    async def main() -> None:
        async def cancels(_: Message) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

        failed: list[int] = []
        done: list[int] = []

        async def other(message: Message) -> None:
            try:
                await asyncio.sleep(0.01)
            except BaseException:
                failed.append(message.offset)
                raise
            done.append(message.offset)

        mode = mode_of(
            options,
            Handler(subscription("cancels", tags="cancels", concurrency=8, **options), cancels),
            Handler(subscription("other", tags="other", concurrency=8, **options), other),
        )
        opened(mode, QUEUE, message(0, "cancels"), message(1, "other"), message(2, "other"))
        await asyncio.sleep(5)
        await mode.callers.stop()
        assert failed == []
        assert done == [1, 2]

    run_virtual(main)


@each_mode
def test_a_handler_with_a_backlog_holds_up_no_other_one(options: dict[str, Any]) -> None:
    async def main() -> None:
        called: list[str] = []
        loop: Any = asyncio.get_running_loop()

        async def busy(_: Message) -> None:
            loop.stand_still(0.001)
            called.append("busy")

        async def other(_: Message) -> None:
            called.append("other")

        mode = mode_of(
            options,
            Handler(subscription("busy", tags="busy", **options), busy),
            Handler(subscription("other", tags="other", **options), other),
        )
        opened(mode, OTHER, *(message(at, "busy", OTHER) for at in range(1000)))
        opened(mode, QUEUE, message(0, "other"))
        await asyncio.sleep(20)
        await mode.callers.stop()
        assert called.index("other") < 100

    run_virtual(main)


@each_mode
def test_a_message_that_comes_alone_waits_for_no_backlog_of_several_handlers(options: dict[str, Any]) -> None:
    """So it is with one that comes back for a retry."""

    async def main() -> None:
        called: list[MessageQueue] = []
        loop: Any = asyncio.get_running_loop()

        async def call(message: Message) -> None:
            loop.stand_still(0.001)
            called.append(message.queue)

        mode = mode_of(options, *(Handler(subscription(name, tags=name, **options), call) for name in ("one", "two")))
        for number in range(10):
            queue = MessageQueue("topic", "broker-b", number)
            opened(mode, queue, *(message(at, ("one", "two")[at % 2], queue) for at in range(100)))
        opened(mode, OTHER, message(0, "one", OTHER))
        await asyncio.sleep(20)
        await mode.callers.stop()
        assert called.index(OTHER) < 200
        assert [queue.queue_id for queue in dict.fromkeys(called) if queue != OTHER] == list(range(10))

    run_virtual(main)


@each_mode
async def test_a_thread_that_goes_from_handler_to_handler_wakes_the_loop_once_per_burst(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, wakes = asyncio.get_running_loop(), 0
    wake = loop.call_soon_threadsafe

    def counted(*arguments: Any, **others: Any) -> Any:
        nonlocal wakes
        wakes += 1
        return wake(*arguments, **others)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    handlers = [Handler(subscription(tag, tags=tag, is_async=False, **options), lambda _: None) for tag in "ab"]
    mode, queues = mode_of(options, *handlers), (QUEUE, OTHER, THIRD)
    sessions = [opened(mode, queue, *(message(at, "ab"[at % 2], queue) for at in range(2000))) for queue in queues]
    await eventually(lambda: not any(process_queue for process_queue, _ in sessions), 30)
    await mode.callers.stop()
    assert wakes < 600


@pytest.mark.parametrize("options", [{"orderly": True}, {"order_by": lambda _: "key"}], ids=["orderly", "keyed"])
async def test_handlers_on_the_loop_and_in_threads_take_turns_in_one_order(options: dict[str, Any]) -> None:
    called: list[tuple[int, bool]] = []

    def sync(message: Message) -> None:
        called.append((message.offset, threading.current_thread() is threading.main_thread()))

    async def on_loop(message: Message) -> None:
        sync(message)

    mode = mode_of(
        options,
        Handler(subscription("loop", tags="loop", **options), on_loop),
        Handler(subscription("thread", tags="thread", is_async=False, **options), sync),
    )
    opened(mode, QUEUE, *(message(at, "thread" if at % 3 == 2 else "loop") for at in range(60)))
    await eventually(lambda: len(called) == 60)
    await mode.callers.stop()
    assert called == [(at, at % 3 != 2) for at in range(60)]
