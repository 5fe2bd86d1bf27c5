"""Messages that are held, withdrawn or discarded before they were started."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import Outcome, Park, Pause
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed_by, subscription
from tests.unit.consumer.modes.contexts import DroppedFailures, mode_context
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.scripted import eventually, in_virtual_time
from tests.virtual import run_virtual


def dropping(topics: list[ConsumedTopic], handlers: Sequence[Handler]) -> MessageMode:
    """A mode that does not try failed messages again."""
    return MessageMode(topics, mode_context(handlers, redelivery=DroppedFailures()))


@in_virtual_time
async def test_what_lies_below_a_started_message_is_finished_but_not_when_all_is_discarded() -> None:
    called: list[int] = []

    async def slow(message: Message) -> None:
        called.append(message.offset)
        await asyncio.sleep(1)

    async def quick(message: Message) -> None:
        called.append(message.offset)

    handlers = [
        Handler(subscription("slow", tags="slow", concurrency=1), slow),
        Handler(subscription("quick", tags="quick"), quick),
    ]
    topic = consumed_by(*handlers)
    concurrently = dropping([topic], topic.handlers)
    queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    delivery = concurrently.open(queue)
    messages = [message(offset, "slow" if offset < 9 else "quick") for offset in range(10)]
    queue.put(messages)
    delivery.deliver(messages)
    await asyncio.sleep(0.5)
    assert sorted(called) == [0, 9]
    delivery.end()
    await asyncio.sleep(2)
    assert sorted(called) == [0, 1, 2, 9]
    delivery.discard()
    await asyncio.sleep(5)
    assert sorted(called) == [0, 1, 2, 9]
    await concurrently.callers.stop()


@in_virtual_time
async def test_another_completion_decides_what_becomes_of_failed_messages() -> None:
    async def call(message: Message) -> None:
        if message.offset == 1:
            raise ValueError

    topic = consumed_by(Handler(subscription(), call))
    way = dropping([topic], topic.handlers)
    queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    messages = [message(offset) for offset in range(3)]
    queue.put(messages)
    way.open(queue).deliver(messages)
    await eventually(lambda: len(queue) == 0)
    assert queue.commit_offset == 3
    await way.callers.stop()


class Paused:
    """A delivery of one concurrent handler, which takes a second per message."""

    def __init__(self, queue: MessageQueue = QUEUE, *topics: str, batch: int | None = None) -> None:
        self.called: list[Any] = []
        self.said: list[Outcome] = []
        options: dict[str, Any] = {"concurrency": 2, "batch": batch}
        handlers = [Handler(subscription(topic=topic, **options), self._call) for topic in topics or ("topic",)]
        self.process_queue: ProcessQueue[Message] = ProcessQueue(queue, 0)
        self.way = dropping([consumed_by(handler) for handler in handlers], handlers)
        self.delivery = self.way.open(self.process_queue)

    async def _call(self, item: Any) -> Outcome | None:
        self.called.append(item.offset if isinstance(item, Message) else [message.offset for message in item])
        await asyncio.sleep(1)
        return self.said.pop() if self.said else None

    def deliver(self, *messages: Message) -> None:
        self.process_queue.put(messages)
        self.delivery.deliver(messages)


@in_virtual_time
async def test_nothing_starts_during_a_pause_and_messages_go_on_in_their_order() -> None:
    paused = Paused()
    paused.deliver(*map(message, range(6)))
    await asyncio.sleep(0.5)
    paused.way.context.member.pauses.pause("topic", "test")
    paused.deliver(message(6))
    await asyncio.sleep(10)
    assert paused.called == [0, 1]
    assert paused.process_queue.commit_offset == 2
    paused.way.context.member.pauses.resume("topic")
    await asyncio.sleep(10)
    assert paused.called == list(range(7))
    assert paused.process_queue.commit_offset == 7
    await paused.way.callers.stop()


@in_virtual_time
async def test_a_batch_waits_for_the_end_of_the_pause() -> None:
    paused = Paused(batch=4)
    paused.deliver(*map(message, range(3)))
    paused.way.context.member.pauses.pause("topic", "test")
    paused.deliver(*map(message, range(3, 7)))
    await asyncio.sleep(10)
    assert paused.called == []
    paused.way.context.member.pauses.resume("topic")
    await asyncio.sleep(10)
    assert paused.called == [[0, 1, 2, 3], [4, 5, 6]]
    await paused.way.callers.stop()


@in_virtual_time
@pytest.mark.parametrize("said", [Pause("down"), Park(3.0, "copies")], ids=["pause", "copies"])
async def test_what_was_parked_of_a_batch_comes_again_as_a_batch(said: Outcome) -> None:
    paused = Paused(batch=4)
    paused.said.append(said)
    paused.deliver(*map(message, range(4)))
    await asyncio.sleep(10)
    paused.way.context.member.pauses.resume("topic")
    await asyncio.sleep(10)
    assert paused.called == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert paused.process_queue.commit_offset == 4
    await paused.way.callers.stop()


@in_virtual_time
async def test_a_pause_of_one_topic_leaves_the_other_topics_of_a_retry_queue_alone() -> None:
    queue = MessageQueue("%RETRY%group", "broker-a", 0)
    paused = Paused(queue, "held", "other")
    paused.way.context.member.pauses.pause("held", "test")
    held = [message(offset, queue=queue, origin="held") for offset in (0, 2)]
    other = [message(offset, queue=queue, origin="other") for offset in (1, 3)]
    paused.deliver(held[0], other[0], held[1], other[1])
    await asyncio.sleep(10)
    assert paused.called == [1, 3]
    paused.way.context.member.pauses.resume("held")
    await asyncio.sleep(10)
    assert paused.called == [1, 3, 0, 2]
    await paused.way.callers.stop()


@in_virtual_time
async def test_a_paused_queue_is_given_up_without_starting_what_waits() -> None:
    paused = Paused()
    paused.deliver(*map(message, range(6)))
    await asyncio.sleep(0.5)
    paused.way.context.member.pauses.pause("topic", "test")
    paused.delivery.end()
    async with asyncio.timeout(2):
        await paused.delivery.drained()
    assert paused.called == [0, 1]
    assert paused.process_queue.commit_offset == 2
    await paused.way.callers.stop()


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.lists(st.sampled_from("ab"), min_size=2, max_size=8)),
        st.tuples(st.sampled_from(["hold", "go_on", "end", "discard"]), st.none()),
        st.tuples(st.just("finish"), st.integers(0, 7)),
        st.tuples(st.just("turn"), st.none()),
    ),
    max_size=20,
)


@settings(deadline=None, max_examples=100)
@given(steps=_STEPS, batch=st.sampled_from([None, 3]))
def test_no_interleaving_commits_past_an_unfinished_message_or_starts_one_twice(
    steps: list[tuple[str, Any]], batch: int | None
) -> None:
    """Two handlers told apart by tag; any of the running calls may end next."""

    async def story() -> None:
        running: dict[int, asyncio.Future[None]] = {}
        started: list[int] = []
        finished: set[int] = set()

        async def call(item: Any) -> None:
            messages: list[Message] = [item] if isinstance(item, Message) else item
            assert not is_held
            started.extend(each.offset for each in messages)
            running[messages[0].offset] = end = asyncio.get_running_loop().create_future()
            await end
            finished.update(each.offset for each in messages)

        handlers = [
            Handler(subscription(tag, tags=tag, batch=batch, concurrency=concurrency), call)
            for tag, concurrency in (("a", 1), ("b", 3))
        ]
        way = dropping([consumed_by(*handlers)], handlers)
        process_queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
        delivery = way.open(process_queue)
        is_held = was_held = is_given_up = is_void = False

        async def check() -> None:
            await asyncio.sleep(1)
            assert len(started) == len(set(started))
            assert finished.issuperset(range(process_queue.commit_offset))

        for kind, argument in steps:
            if kind == "deliver" and not is_given_up:
                first = process_queue.end_offset
                messages = process_queue.put([message(first + index, tag) for index, tag in enumerate(argument)])
                delivery.deliver(messages)
            elif kind == "hold":
                way.context.member.pauses.pause("topic", "test")
                is_held, was_held = True, was_held or is_given_up
            elif kind == "go_on":
                is_held = False
                way.context.member.pauses.resume("topic")
            elif kind == "end" and not is_given_up:
                is_given_up, was_held = True, is_held
                delivery.end()
            elif kind == "discard":
                is_given_up = is_void = True
                delivery.discard()
            elif kind == "finish" and running:
                running.pop(sorted(running)[argument % len(running)]).set_result(None)
            await check()
        if not is_void:
            if not is_given_up:
                was_held = is_held
                delivery.end()
            drained = asyncio.ensure_future(delivery.drained())
            for _ in range(100):
                for end in running.values():
                    end.set_result(None)
                running.clear()
                await check()
            assert drained.done()
            # Only a hold leaves messages behind that lie below a started one, so that it will be repeated.
            assert was_held or process_queue.commit_offset == process_queue.end_offset
            assert was_held or process_queue.commit_offset > max(started, default=-1)
        await way.callers.stop()

    run_virtual(story)


@in_virtual_time
async def test_messages_of_many_handlers_come_in_one_run_and_one_that_hangs_uses_up_its_own_concurrency_alone() -> None:
    called: dict[str, list[int]] = {"quick": [], "slow": [], "other": []}
    running = most = 0

    def call_of(name: str) -> Any:
        async def call(message: Message) -> None:
            nonlocal running, most
            called[name].append(message.offset)
            if name == "slow":
                running += 1
                most = max(most, running)
                await asyncio.sleep(10)
                running -= 1

        return call

    handlers = [Handler(subscription(tag, tags=tag, concurrency=2), call_of(tag)) for tag in called]
    way = dropping([consumed_by(*handlers)], handlers)
    queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    delivery = way.open(queue)
    tags = ["quick", "slow", "other"]
    for first in range(0, 18, 6):
        messages = [message(first + at, tags[at % 3]) for at in range(6)]
        queue.put(messages)
        delivery.deliver(messages)
        await asyncio.sleep(1)
        assert called["quick"] == list(range(0, first + 6, 3))
        assert called["other"] == list(range(2, first + 6, 3))
        assert called["slow"] == [1, 4]
        assert [handler.name for handler, _ in way.callers.in_flight()] == ["slow", "slow"]
    await asyncio.sleep(50)
    assert called["slow"] == [1, 4, 7, 10, 13, 16]
    assert most == 2
    assert queue.commit_offset == 18
    assert [handler.stats.handled for handler in handlers] == [6, 6, 6]
    await way.callers.stop()


@in_virtual_time
async def test_a_stop_cancels_a_call_that_was_begun_beside_those_of_others_and_acknowledges_nothing_of_it() -> None:
    cancelled: list[int] = []

    async def slow(message: Message) -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            cancelled.append(message.offset)
            raise

    async def quick(message: Message) -> None:
        """Done at once."""

    handlers = [Handler(subscription("slow", tags="slow"), slow), Handler(subscription("quick", tags="quick"), quick)]
    way = dropping([consumed_by(*handlers)], handlers)
    queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    messages = [message(0, "slow"), message(1, "quick"), message(2, "slow")]
    queue.put(messages)
    way.open(queue).deliver(messages)
    await asyncio.sleep(1)
    await way.callers.stop()
    assert sorted(cancelled) == [0, 2]
    assert [one.offset for one in queue.unfinished()] == [0, 2]


@in_virtual_time
async def test_a_pause_from_within_a_run_of_many_handlers_lets_no_other_of_them_start() -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)
        if message.offset == 1:
            way.context.member.pauses.pause("topic", "test")

    handlers = [Handler(subscription(tag, tags=tag), call) for tag in ("a", "b")]
    way = dropping([consumed_by(*handlers)], handlers)
    queue: ProcessQueue[Message] = ProcessQueue(QUEUE, 0)
    messages = [message(offset, "ab"[offset % 2]) for offset in range(6)]
    queue.put(messages)
    way.open(queue).deliver(messages)
    await asyncio.sleep(1)
    assert called == [0, 1]
    way.context.member.pauses.resume("topic")
    await eventually(lambda: queue.commit_offset == 6)
    assert sorted(called) == list(range(6))
    await way.callers.stop()


@in_virtual_time
async def test_what_was_sent_back_while_its_call_ran_is_not_parked() -> None:
    paused = Paused()
    paused.said.append(Pause("down"))
    paused.deliver(message(0))
    await asyncio.sleep(0.5)
    paused.process_queue.finish(message(0))
    await asyncio.sleep(5)
    paused.way.context.member.pauses.resume("topic")
    await asyncio.sleep(5)
    assert paused.called == [0]
    await paused.way.callers.stop()
