"""Two mechanisms of deliveries and workers at once: what each keeps alone, both keep together."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.consumer.retry.attempts import Failed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import Park
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.testing.virtual_time import VirtualClock
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed_by, subscription
from tests.unit.consumer.modes.contexts import DeadLetters, mode_context, opened
from tests.unit.consumer.modes.test_orderly_note import in_flight
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.scripted import in_virtual_time
from tests.virtual import run_virtual

OTHER = MessageQueue("topic", "broker-a", 1)


def queue_of(message: Message) -> int:
    assert message.queue is not None
    return message.queue.queue_id


def in_order(*handlers: Handler, **others: Any) -> MessageMode:
    topic = consumed_by(*handlers)
    context = mode_context(topic.handlers, dead_letters=DeadLetters(), **others)
    return MessageMode([topic], context, in_order=True)


@in_virtual_time
async def test_a_worker_that_goes_on_to_another_queue_calls_for_no_message_without_an_attempt() -> None:
    called: list[tuple[int, int]] = []

    async def call(message: Message) -> None:
        called.append((queue_of(message), message.offset))

    mode = in_order(Handler(subscription(order_by=lambda _: "k", concurrency=1, retries=3), call))
    mode.context.attempts.keep(OTHER, [Failed(1, 4), Failed(5, 4)])
    opened(mode, QUEUE, message(0))
    opened(mode, OTHER, *(message(at, queue=OTHER) for at in range(7)))
    await asyncio.sleep(5)
    await mode.callers.stop()
    assert called == [(0, 0), *((1, at) for at in (0, 2, 3, 4, 6))]


def test_a_worker_that_goes_on_to_another_queue_passes_no_quarantine_by(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        quarantined = {str(offset): [1, 0, clock.now(), False] for offset in range(1, 6)}
        (tmp_path / "quarantine.json").write_text(json.dumps({f"group {OTHER}": quarantined}))
        running: set[int] = set()
        most = 0

        async def call(message: Message) -> None:
            nonlocal most
            is_quarantined = queue_of(message) == 1 and 1 <= message.offset <= 5
            if is_quarantined:
                running.add(message.offset)
            most = max(most, len(running))
            await asyncio.sleep(0.01)
            running.discard(message.offset)

        journal = Journal(tmp_path, clock, print)
        declared = subscription(order_by=lambda message: message.offset % 2, concurrency=2)
        mode = in_order(Handler(declared, call), journal=journal)
        opened(mode, QUEUE, message(0), message(1))
        process_queue, _ = opened(mode, OTHER, *(message(at, queue=OTHER) for at in range(6)))
        await asyncio.sleep(5)
        await mode.callers.stop()
        journal.close()
        assert process_queue.commit_offset == 6
        assert most == 1

    run_virtual(main)


@in_virtual_time
async def test_a_queue_gets_the_call_that_was_freed_on_the_way_to_another_handler() -> None:
    called: set[tuple[str, int]] = set()

    async def first(message: Message) -> None:
        called.add(("first", queue_of(message)))
        await asyncio.sleep(0.1)

    async def second(message: Message) -> None:
        called.add(("second", queue_of(message)))
        await asyncio.sleep(600)

    mode = in_order(
        Handler(subscription("first", tags="first", orderly=True, concurrency=1), first),
        Handler(subscription("second", tags="second", orderly=True, concurrency=1), second),
    )
    opened(mode, QUEUE, message(0, "first"), message(1, "second"))
    opened(mode, OTHER, message(0, "first", OTHER))
    await asyncio.sleep(1)
    await mode.callers.stop()
    assert called == {("first", 0), ("second", 0), ("first", 1)}


async def test_a_thread_frees_the_call_of_the_handler_that_it_comes_from() -> None:
    seen, end = threading.Event(), threading.Event()

    def first(message: Message) -> None:
        if queue_of(message) == 1:
            seen.set()

    def second(_: Message) -> None:
        end.wait(30)

    mode = in_order(
        Handler(subscription("first", tags="first", orderly=True, concurrency=1, is_async=False), first),
        Handler(subscription("second", tags="second", orderly=True, concurrency=1, is_async=False), second),
    )
    opened(mode, QUEUE, message(0, "first"), message(1, "second"))
    opened(mode, OTHER, message(0, "first", OTHER))
    assert await asyncio.to_thread(seen.wait, 20)
    end.set()
    await mode.callers.stop()


@pytest.mark.parametrize("by_key", [False, True])
def test_a_queue_that_is_given_up_during_a_pause_keeps_no_messages(by_key: bool) -> None:
    async def main() -> None:
        async def call(_: Message) -> None: ...

        options = {"order_by": lambda message: message.offset % 10} if by_key else {"orderly": True}
        mode = in_order(Handler(subscription(**options), call))
        mode.context.member.pauses.pause("topic", "operator")
        opened(mode, OTHER, message(0, queue=OTHER))
        _, delivery = opened(mode, QUEUE, *map(message, range(100)))
        lines = list(delivery.runs())
        await asyncio.sleep(1)
        delivery.end()
        await delivery.drained()
        assert sum(len(line.items) for line in lines) == 0
        await mode.callers.stop()

    run_virtual(main)


@in_virtual_time
async def test_nothing_starts_after_a_halt_that_waited_for_a_free_call() -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)
        await asyncio.sleep(0.2)
        mode.callers.halt()

    declared = subscription(order_by=lambda message: message.offset, concurrency=1)
    mode = in_order(Handler(declared, call))
    opened(mode, QUEUE, *map(message, range(3)))
    await asyncio.sleep(1)
    assert called == [0]


@in_virtual_time
async def test_a_message_behind_a_failed_one_does_not_count_as_started() -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)
        if message.offset == 0:
            raise ValueError
        await asyncio.sleep(0.05)

    declared = subscription(order_by=lambda message: message.offset in (0, 500), concurrency=64)
    mode = in_order(Handler(declared, call))
    _, delivery = opened(mode, QUEUE, *map(message, range(501)))
    await asyncio.sleep(0.12)
    before = called.copy()
    delivery.end()
    await delivery.drained()
    await mode.callers.stop()
    assert called == before


@in_virtual_time
async def test_what_comes_after_the_end_does_not_start() -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)

    mode = in_order(Handler(subscription(order_by=lambda message: message.offset), call))
    process_queue, delivery = opened(mode, QUEUE)
    delivery.fail(ValueError("ours"))
    await delivery.drained()
    delivery.deliver(process_queue.put([message(0)]))
    await asyncio.sleep(1)
    await mode.callers.stop()
    assert called == []


@pytest.mark.parametrize("by_key", [False, True])
def test_what_another_member_handles_is_not_noted_down_here(tmp_path: Path, by_key: bool) -> None:
    async def main() -> None:
        journal = Journal(tmp_path, VirtualClock(asyncio.get_running_loop()), print)
        noted: list[tuple[int, int]] = []

        async def forward(_: Message) -> None:
            await asyncio.sleep(0.5)
            noted.extend(in_flight(tmp_path))

        options = {"order_by": lambda message: message.offset} if by_key else {"orderly": True}
        mode = in_order(Handler(subscription(**options), forward, runs_here=False), journal=journal)
        process_queue, _ = opened(mode, QUEUE, *map(message, range(3)))
        await asyncio.sleep(5)
        await mode.callers.stop()
        journal.close()
        assert process_queue.commit_offset == 3
        assert noted == []

    run_virtual(main)


@pytest.mark.parametrize("by_key", [False, True])
def test_what_is_handled_here_is_noted_down_beside_what_another_member_handles(tmp_path: Path, by_key: bool) -> None:
    async def main() -> None:
        journal = Journal(tmp_path, VirtualClock(asyncio.get_running_loop()), print)
        noted: list[tuple[int, int]] = []

        async def nothing(_: Message) -> None: ...

        async def call(_: Message) -> None:
            noted.extend(in_flight(tmp_path))

        options: dict[str, Any] = {"order_by": lambda message: message.offset} if by_key else {}
        there = Handler(subscription("there", tags="there", **options), nothing, runs_here=False)
        topic = consumed_by(there, Handler(subscription("here", tags="here", **options), call))
        context = mode_context(topic.handlers, journal=journal, dead_letters=DeadLetters())
        mode = MessageMode([topic], context, in_order=by_key)
        opened(mode, QUEUE, message(0, "there"), message(1, "here"), message(2, "there"))
        await asyncio.sleep(5)
        await mode.callers.stop()
        journal.close()
        assert noted == [(1, 1)]

    run_virtual(main)


@in_virtual_time
async def test_a_parked_message_waits_for_its_own_time_beside_another_one() -> None:
    loop = asyncio.get_running_loop()
    called: dict[int, list[float]] = {0: [], 1: []}

    async def call(message: Message) -> None:
        called[message.offset].append(loop.time())
        if len(called[message.offset]) == 1:
            raise Park(60 if message.offset == 0 else 1, "later")

    topic = consumed_by(Handler(subscription(), call))
    mode = MessageMode([topic], mode_context(topic.handlers, dead_letters=DeadLetters()))
    process_queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    messages = [message(0), message(1)]
    process_queue.put(messages)
    mode.open(process_queue).deliver(messages)
    await asyncio.sleep(100)
    await mode.callers.stop()
    assert {at: times[1] - times[0] for at, times in called.items()} == {0: pytest.approx(60), 1: pytest.approx(1)}


@in_virtual_time
async def test_attempts_of_a_message_that_does_not_come_again_are_forgotten_when_it_is_passed() -> None:
    async def call(_: Message) -> None: ...

    mode = in_order(Handler(subscription(orderly=True), call))
    mode.context.attempts.keep(QUEUE, [Failed(1, 2), Failed(3, 1), Failed(9, 1)])
    process_queue, delivery = opened(mode, QUEUE, message(0), message(2), message(4))
    await asyncio.sleep(1)
    assert process_queue.commit_offset == 5
    assert delivery.retries.earlier == {9: Failed(9, 1)}
    await mode.callers.stop()


@in_virtual_time
async def test_a_key_that_cannot_be_told_here_makes_no_dead_letter_of_a_message_that_another_member_wants() -> None:
    running, done, most = set[int](), list[int](), 0

    def key_of(message: Message) -> object:
        if message.tag != "ours":
            return {}[message.tag] if message.offset % 2 else []
        return None

    async def call(message: Message) -> None:
        nonlocal most
        if message.tag == "theirs":
            running.add(message.offset)
            most = max(most, len(running))
            await asyncio.sleep(1)
            running.remove(message.offset)
        done.append(message.offset)

    class Forwarded:
        def caller(self, topic: str, message: Message) -> Any:
            return mode.callers.one(theirs)

    ours, theirs = (
        Handler(subscription(tag, tags=tag, order_by=key_of), call, runs_here=tag == "ours")
        for tag in ("ours", "theirs")
    )
    mode = in_order(ours, forwarding=Forwarded())
    process_queue, _ = opened(mode, QUEUE, *(message(at, "theirs" if at % 3 else "ours") for at in range(9)))
    await asyncio.sleep(0.5)
    assert done == [0, 3, 6]
    await asyncio.sleep(10)
    await mode.callers.stop()
    assert process_queue.commit_offset == 9
    assert (done[3:], most, theirs.stats.dead_lettered) == ([1, 2, 4, 5, 7, 8], 1, 0)
