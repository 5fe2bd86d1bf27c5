"""A plugin's sink: messages are done when a table has stored them, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from rocketapp import DeadLetter, Message, Pause, Policy, Retry, RocketApp, Skip
from rocketapp.app.publishing import Publishing
from rocketapp.app.run.lifecycle import Lifecycle
from rocketapp.app.run.wiring import Runtime
from rocketapp.app.settings import Settings
from rocketapp.clock import SystemClock
from rocketapp.config.broker import BrokerConfig
from rocketapp.config.client import ClientConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.plugin import (
    NewWriter,
    PluginError,
    QueueSession,
    QueueStart,
    Sink,
    StoredRecords,
    Subscription,
    events,
    hookimpl,
)
from rocketapp.testing import TestApp
from rocketapp.transport.memory import MemoryNetwork


class Gathering:
    """Adds `app.gather(topic, size)`: stores lists of `size` messages, and what is left when a queue is given back."""

    def __init__(self) -> None:
        self.stored: list[list[str]] = []
        self.problems: list[BaseException] = []
        """Raised by the next calls of `store`."""
        self.events: list[events.Event] = []
        self.changed = asyncio.Event()
        self._sizes: dict[str, int] = {}

    @hookimpl
    def app_methods(self, app: RocketApp) -> Mapping[str, Callable[..., Any]]:
        def gather(topic: str, size: int, tags: str = "*") -> None:
            self._sizes[topic] = size
            app.subscribe(topic, tags=tags, start="first", retries=1)(self.stored_alone)

        return {"gather": gather}

    @hookimpl
    def sink(self, subscription: Subscription) -> NewWriter | None:
        size = self._sizes.get(subscription.topic)
        return None if size is None else lambda session: GatheringWriter(self, session, size)

    @hookimpl
    def observe_events(self) -> events.Observe:
        return self.observe

    def observe(self, event: events.Event) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    async def stored_alone(self, message: Message) -> None:
        """A message that comes back for a retry."""
        self.store([message])

    def store(self, messages: Sequence[Message]) -> None:
        if self.problems:
            raise self.problems.pop(0)
        self.stored.append([message.text() for message in messages])
        self.changed.set()

    async def has(self, wanted: list[list[str]]) -> None:
        await self.until(lambda: sorted(self.stored) == sorted(wanted))


class GatheringWriter:
    def __init__(self, sink: Gathering, session: QueueSession, size: int) -> None:
        self.sink, self.session, self.size = sink, session, size
        self.waiting: list[Message] = []

    def take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.tag == "bad":
                self.session.failed(message, ValueError("no row"))
                continue
            self.waiting.append(message)
            if len(self.waiting) == self.size:
                self.flush()

    def flush(self) -> None:
        batch, self.waiting = self.waiting, []
        try:
            self.sink.store(batch)
        except OSError as error:
            self.session.broken(error)
        else:
            self.session.done(batch)

    async def drain(self) -> None:
        if self.waiting:
            self.flush()

    def discard(self) -> None:
        self.waiting.clear()


@asynccontextmanager
async def cluster() -> AsyncIterator[Callable[[RocketApp], Lifecycle]]:
    """Makes runs of apps at one broker in memory, with one queue per topic."""
    network, clock = MemoryNetwork(), SystemClock()
    broker = EmbeddedBroker(
        config=BrokerConfig(listen="127.0.0.1:1", topic_queues=1),
        memory=True,
        clock=clock,
        random=Random(1),
        observe=lambda _: None,
    )
    address = await broker.start(network)
    settings = Settings(client=ClientConfig(name_server=address), consumer=ConsumerConfig(commit_interval=0.05))
    yield lambda app: Lifecycle(app, settings, Runtime(dial=network.dial, clock=clock, random=Random(2)))
    await broker.stop()


def sinking(sink: Gathering, size: int, tags: str = "*") -> RocketApp:
    app: Any = RocketApp("shop", plugins=[sink])
    app.gather("rows", size, tags)
    return app


async def test_messages_are_done_when_they_are_stored_and_the_rest_when_the_queue_is_given_back() -> None:
    async with cluster() as run:
        sink = Gathering()
        app = sinking(sink, 2)
        lifecycle = run(app)
        await lifecycle.start()
        for text in "abcde":
            await app.publish("rows", text, order_key="one")
        await sink.has([["a", "b"], ["c", "d"]])
        assert lifecycle.counters.handled == 4
        assert await lifecycle.stop(asyncio.Event())
        assert sink.stored[2:] == [["e"]]
        # Nothing comes again.
        again = Gathering()
        app = sinking(again, 1)
        lifecycle = run(app)
        await lifecycle.start()
        await app.publish("rows", "f", order_key="one")
        await again.has([["f"]])
        await lifecycle.stop(asyncio.Event())


@asynccontextmanager
async def running(size: int) -> AsyncIterator[tuple[Gathering, RocketApp]]:
    """An app that sinks `rows`; at the end of the block it is stopped, cleanly."""
    async with cluster() as run:
        sink = Gathering()
        app = sinking(sink, size)
        lifecycle = run(app)
        await lifecycle.start()
        yield sink, app
        assert await lifecycle.stop(asyncio.Event())


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        pytest.param(ConnectionError("table away"), "ConnectionError: table away", id="the writer is broken"),
        pytest.param(KeyError("column"), "KeyError: 'column'", id="the writer raises"),
    ],
)
async def test_what_was_not_stored_is_read_again_and_the_plugin_is_named(problem: Exception, told: str) -> None:
    async with running(2) as (sink, app):
        sink.problems.append(problem)
        for text in "ab":
            await app.publish("rows", text, order_key="one")
        await sink.has([["a", "b"]])
    (event,) = [event for event in sink.events if isinstance(event, events.LoopFailed)]
    assert event.error == f"plugin {__name__}.Gathering: {told}"


async def test_a_failed_message_is_retried_by_the_handler() -> None:
    async with running(1) as (sink, app):
        await app.publish("rows", "x", tag="bad")
        await app.publish("rows", "a")
        await sink.has([["a"]])
        await sink.until(lambda: any(isinstance(event, events.Retried) for event in sink.events))
    assert sink.stored == [["a"]]


async def test_another_tag_with_the_same_hash_does_not_reach_a_writer() -> None:
    """Brokers compare hashes of tags; "AaAa" and "BBBB" have the same one."""
    async with cluster() as run:
        sink = Gathering()
        app = sinking(sink, 1, "AaAa")
        lifecycle = run(app)
        await lifecycle.start()
        for tag in ("AaAa", "BBBB", "AaAa"):
            await app.publish("rows", tag, tag=tag, order_key="one")
        await sink.has([["AaAa"], ["AaAa"]])
        await sink.until(lambda: lifecycle.counters.unmatched == 1)
        assert await lifecycle.stop(asyncio.Event())


async def test_a_paused_topic_gives_a_writer_nothing() -> None:
    async with cluster() as run:
        sink = Gathering()
        app = sinking(sink, 1)
        app.pause("rows")
        lifecycle = run(app)
        await lifecycle.start()
        await app.publish("rows", "a")
        app.resume("rows")
        await sink.has([["a"]])
        assert await lifecycle.stop(asyncio.Event())


class Told(GatheringWriter):
    def discard(self) -> None:
        assert isinstance(self.sink, TableSink)
        self.sink.discarded += 1


class TableSink(Gathering):
    """Keeps its own offset, and consumes under locks."""

    def __init__(self, offset: int | None, most: int | None = None) -> None:
        super().__init__()
        self.offset, self.most = offset, most
        self.starts: list[QueueStart] = []
        self.discarded = 0

    @hookimpl
    def sink(self, subscription: Subscription) -> Sink | None:  # type: ignore[override]
        size = self._sizes.get(subscription.topic)
        if size is None:
            return None
        return Sink(
            new_writer=lambda session: Told(self, session, size),
            locked=True,
            begin=self.begin,
            max_messages=self.most,
        )

    async def begin(self, start: QueueStart) -> int | None:
        self.starts.append(start)
        if self.problems:
            raise self.problems.pop(0)
        return self.offset


class RecordsSink(Gathering):
    """Takes records that are not decoded, and stores what one pull brought together."""

    @hookimpl
    def sink(self, subscription: Subscription) -> Sink | None:  # type: ignore[override]
        size = self._sizes.get(subscription.topic)
        return None if size is None else Sink(new_writer=lambda session: Records(self, session), records=True)


class Records:
    def __init__(self, sink: Gathering, session: QueueSession) -> None:
        self.sink, self.session = sink, session

    def take(self, records: Sequence[StoredRecords]) -> None:
        for piece in records:
            try:
                self.sink.store(piece.messages())
            except OSError as error:
                self.session.broken(error)
                return
            self.session.done([piece])

    async def drain(self) -> None:
        pass

    def discard(self) -> None:
        pass


@pytest.mark.parametrize("tags", ["*", "AaAa"])
async def test_records_that_are_not_decoded_are_done_as_they_were_taken(tags: str) -> None:
    async with cluster() as run:
        sink = RecordsSink()
        app = sinking(sink, 1, tags)
        app.pause("rows")
        lifecycle = run(app)
        await lifecycle.start()
        for text in "abc":
            await app.publish("rows", text, tag="BBBB" if text == "b" else "AaAa", order_key="one")
        sink.problems.append(ConnectionError("table away"))
        app.resume("rows")
        wanted = ["a", "b", "c"] if tags == "*" else ["a", "c"]
        await sink.until(lambda: sorted(text for some in sink.stored for text in some) == wanted)
        assert lifecycle.counters.handled == len(wanted)
        assert await lifecycle.stop(asyncio.Event())
        # All of it was committed: nothing comes again.
        again = Gathering()
        lifecycle = run(sinking(again, 1))
        await lifecycle.start()
        await publish(lifecycle, "d")
        await again.has([["d"]])
        assert await lifecycle.stop(asyncio.Event())


def leases(lifecycle: Lifecycle) -> list[str]:
    (group,) = lifecycle.snapshot().groups
    return [queue.lease for queue in group.queues if queue.queue.topic == "rows"]


async def consume(sink: Gathering, run: Callable[[RocketApp], Lifecycle], *texts: str) -> Lifecycle:
    app = sinking(sink, 1)
    lifecycle = run(app)
    await lifecycle.start()
    await publish(lifecycle, *texts)
    return lifecycle


async def publish(lifecycle: Lifecycle, *texts: str) -> None:
    for text in texts:
        await Publishing(lambda: lifecycle).publish("rows", text, order_key="one")


async def test_a_session_begins_where_the_plugin_says_and_the_broker_hears_of_it() -> None:
    async with cluster() as run:
        first = Gathering()
        lifecycle = await consume(first, run, "a", "b", "c")
        await first.has([["a"], ["b"], ["c"]])
        assert await lifecycle.stop(asyncio.Event())
        second = TableSink(1)
        lifecycle = await consume(second, run)
        await second.has([["b"], ["c"]])
        assert leases(lifecycle) == ["held"]
        assert await lifecycle.stop(asyncio.Event())
        (start,) = second.starts
        assert (start.queue.topic, start.offset, start.min_offset, start.max_offset) == ("rows", 3, 0, 3)


async def test_without_an_answer_a_session_begins_at_the_committed_offset() -> None:
    async with cluster() as run:
        first = Gathering()
        lifecycle = await consume(first, run, "a")
        await first.has([["a"]])
        assert await lifecycle.stop(asyncio.Event())
        second = TableSink(None)
        lifecycle = await consume(second, run, "b")
        await second.has([["b"]])
        assert await lifecycle.stop(asyncio.Event())


async def test_a_begin_that_raises_is_asked_again_and_its_error_is_the_reason_to_stand_still() -> None:
    async with cluster() as run:
        sink = TableSink(None)
        sink.problems.append(ConnectionError("table away"))
        lifecycle = await consume(sink, run, "a")
        await sink.has([["a"]])
        assert len(sink.starts) == 2
        (told,) = {event.reason for event in sink.events if isinstance(event, events.QueueBlocked)}
        assert told.endswith("ConnectionError: table away")
        assert await lifecycle.stop(asyncio.Event())


class Holding(GatheringWriter):
    """Stands still for a reason until the sink is told to go on."""

    def take(self, messages: Sequence[Message]) -> None:
        self.waiting.extend(messages)
        self.session.blocked("the table is away")

    async def drain(self) -> None:
        self.session.moving()
        self.flush()


class HoldingSink(TableSink):
    @hookimpl
    def sink(self, subscription: Subscription) -> Sink | None:  # type: ignore[override]
        return Sink(new_writer=lambda session: Holding(self, session, 1), max_messages=2)


async def test_a_writer_says_why_its_queue_is_blocked_and_its_own_limit_stops_the_pulls() -> None:
    async with cluster() as run:
        sink = HoldingSink(None)
        lifecycle = await consume(sink, run, *"abcdef")
        await sink.until(lambda: any(isinstance(event, events.QueueBlocked) for event in sink.events))
        (group,) = lifecycle.snapshot().groups
        (queue,) = [one for one in group.queues if one.queue.topic == "rows"]
        assert queue.blocked == "the table is away"
        assert await lifecycle.stop(asyncio.Event())
        assert any(isinstance(event, events.Moving) for event in sink.events)


class SayingSink(TableSink):
    """Its first session says why it stands still, and breaks."""

    @hookimpl
    def sink(self, subscription: Subscription) -> Sink | None:  # type: ignore[override]
        return Sink(new_writer=lambda session: Saying(self, session, 1))


class Saying(GatheringWriter):
    def flush(self) -> None:
        if self.sink.problems:
            self.session.blocked("the table is away")
        super().flush()


async def test_what_a_writer_says_of_its_queue_ends_with_its_session() -> None:
    async with cluster() as run:
        sink = SayingSink(None)
        sink.problems.append(ConnectionError("table away"))
        lifecycle = await consume(sink, run, "a")
        await sink.has([["a"]])
        (told,) = [event.reason for event in sink.events if isinstance(event, events.QueueBlocked)]
        assert told == "the table is away"
        await sink.until(lambda: any(isinstance(event, events.Moving) for event in sink.events))
        (group,) = lifecycle.snapshot().groups
        assert {queue.blocked for queue in group.queues} == {""}
        assert await lifecycle.stop(asyncio.Event())


class BreakingSink(TableSink):
    """Its first attempt at the message b ends the session."""

    def store(self, messages: Sequence[Message]) -> None:
        if messages[0].text() == "b" and not self.discarded:
            raise OSError("table away")
        super().store(messages)


async def test_a_writer_that_breaks_under_a_lock_is_discarded_and_its_messages_come_again() -> None:
    async with cluster() as run:
        sink = BreakingSink(0)
        lifecycle = await consume(sink, run, "a")
        await sink.has([["a"]])
        sink.offset = 1
        await publish(lifecycle, "b")
        await sink.has([["a"], ["b"]])
        assert sink.discarded == 1
        assert await lifecycle.stop(asyncio.Event())
        assert sink.discarded == 2


def refused(app: RocketApp) -> str:
    async def start() -> None:
        async with cluster() as run:
            await run(app).start()

    with pytest.raises(PluginError) as caught:
        asyncio.run(start())
    return str(caught.value)


class Wants:
    """Consumes every topic."""

    @hookimpl
    def sink(self) -> Any:
        return lambda session: None


class Also(Wants):
    """The same."""


class Wrong(Wants):
    @hookimpl
    def sink(self) -> Any:
        return 5


@pytest.mark.parametrize(
    ("plugins", "options", "problem"),
    [
        ([Wants, Also], {}, "Also wants to consume topic 'rows'"),
        ([Wrong], {}, "returned 5: return a function, a Sink"),
        ([Wants], {"orderly": True}, "is declared in order"),
        ([Wants], {"tags": "a"}, "has other handlers in its group"),
        ([Wants], {"rate": 5}, "has rate=5"),
    ],
)
def test_what_cannot_work_stops_the_start(plugins: list[Any], options: dict[str, Any], problem: str) -> None:
    app = RocketApp("shop", plugins=plugins)
    app.subscribe("rows", **options)(lambda message: None)
    if "tags" in options:
        app.subscribe("rows")(lambda message: None)
    assert problem in refused(app)


class Failing:
    """Consumes by a sink, and says of the first message that it failed, for the reason that its text names."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.events: list[events.Event] = []

    @hookimpl
    def observe_events(self) -> events.Observe:
        return self.events.append

    @hookimpl
    def sink(self) -> NewWriter:
        return lambda session: FailingWriter(self, session)


class FailingWriter:
    def __init__(self, plugin: Failing, session: QueueSession) -> None:
        self.plugin, self.session = plugin, session

    def take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            text = message.text()
            self.plugin.taken.append(text)
            if len(self.plugin.taken) > 1:
                self.session.done([message])
            else:
                self.session.failed(message, REASONS[text])

    async def drain(self) -> None: ...

    def discard(self) -> None: ...


REASONS: dict[str, Exception] = {
    "a policy's dead letter": ValueError("no row"),
    "a policy's skip": KeyError("column"),
    "dead": DeadLetter("no table"),
    "skip": Skip("empty"),
    "after": Retry(after=60),
    "pause": Pause("no disk"),
}


JUDGED = [
    ("a policy's dead letter", 0, [], ["ValueError: no row"]),
    ("a policy's skip", 1, [], []),
    ("dead", 0, [], ["DeadLetter: no table"]),
    ("skip", 1, [], []),
    ("after", 1, [60], []),
]


@pytest.mark.parametrize(
    ("text", "handled", "retried", "dead"),
    JUDGED,
)
def test_a_failure_of_a_writer_is_judged_as_one_of_the_handler(
    text: str, handled: int, retried: list[float], dead: list[str]
) -> None:
    failing = Failing()
    app = RocketApp("shop", plugins=[failing])

    @app.subscribe("rows", retry=Policy(on={ValueError: DeadLetter, KeyError: Skip}))
    async def store(message: Message) -> None: ...

    with TestApp(app) as t:
        t.publish("rows", text)
        t.advance(minutes=2)
    assert sum(event.count for event in failing.events if isinstance(event, events.Handled)) == handled
    assert [event.delay for event in failing.events if isinstance(event, events.Retried)] == retried
    assert [event.reason for event in failing.events if isinstance(event, events.DeadLettered)] == dead


def test_what_a_writer_stops_for_is_taken_again_when_its_topic_is_resumed() -> None:
    failing = Failing()
    app = RocketApp("shop", plugins=[failing])
    app.subscribe("rows")(lambda message: None)
    with TestApp(app, settings={"broker": {"topic_queues": 1}}) as t:
        t.publish("rows", "pause")
        t.advance(minutes=1)
        t.publish("rows", "after it")
        t.advance(minutes=1)
        assert failing.taken == ["pause"]
        app.resume("rows")
        t.settle()
        assert failing.taken == ["pause", "pause", "after it"]
