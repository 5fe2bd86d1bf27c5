"""The clients of a simulated cluster: a producer, and the members of one group.

Everything follows from the seed. The brokers, the producer and every member are processes of their own, with
clocks of their own; what they do to each other goes over a network whose latency and chunks the seed draws.
What happens is written into one history.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocketapp.client.instance import ClientInstance
from rocketapp.config.client import ClientConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.config.producer import ProducerConfig
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.member import Member as GroupMember
from rocketapp.consumer.modes.poll import PolledBatch
from rocketapp.consumer.pull.flow import FlowControl
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.errors import SendRefused, SendUnknown, TransportError
from rocketapp.model import event as events
from rocketapp.model.outcome import COMMIT, Decisions, Pause
from rocketapp.model.outgoing import Outgoing
from rocketapp.model.policy import Policy
from rocketapp.model.subscription import ALL_TAGS
from rocketapp.producer.producer import Producer
from rocketapp.testing.virtual_time import VirtualClock
from rocketapp.wire.record import Message
from tests.simulation import history as facts
from tests.simulation.brokers import Broker, RouteServer
from tests.simulation.pop_brokers import PopBroker
from tests.simulation.processes import Process
from tests.simulation.threads import SimulatedThreads
from tests.simulation.world import GROUP, TAGS, Topic, World, number_of
from tests.unit.consumer.fake_cluster import consumed_by, subscription


class _Client:
    """A process with a client of the cluster."""

    def __init__(self, world: World, name: str, pid: int) -> None:
        self.world, self.name, self._pid = world, name, pid
        self.process, self.clock = Process(name), VirtualClock(world.loop)
        self.client: ClientInstance

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def observe(self, event: events.Event) -> None:
        self.world.observed.append((self.world.loop.time(), self.name, event))

    async def connect(self) -> None:
        world = self.world
        self.client = ClientInstance(
            config=ClientConfig(name_server=world.name_server),
            dial=world.network.dialer(self.name),
            clock=self.clock,
            random=world.random(f"{self.name} client"),
            observe=self.observe,
            client_ip="10.0.1.1",
            pid=self._pid,
            subscribed=self._subscribed(),
        )
        while True:
            try:
                return await self.client.start()
            except TransportError:
                await asyncio.sleep(1)

    def _subscribed(self) -> str:
        """The digest that its client id tells."""
        return ""

    def _producer(self) -> Producer:
        return Producer(
            client=self.client,
            config=ProducerConfig(),
            group=f"producer-{self.name}",
            clock=self.clock,
            random=self.world.random(f"{self.name} producer"),
        )


class Sender(_Client):
    """A process that only publishes; its numbers count up from 1."""

    def __init__(self, world: World, name: str = "sender") -> None:
        super().__init__(world, name, 1)
        self.producer: Producer
        self._number = 0

    async def start(self) -> None:
        await self.process.start(self._start())

    async def _start(self) -> None:
        await self.connect()
        self.producer = self._producer()
        await self.producer.start()

    def send_all(self, topic: str, key: str, count: int, pause: Callable[[], float]) -> asyncio.Task[None]:
        """Send `count` messages of one key, one after the other."""
        return self.process.start(self._send_all(topic, key, count, pause))

    async def _send_all(self, topic: str, key: str, count: int, pause: Callable[[], float]) -> None:
        for _ in range(count):
            await self._send(topic, key)
            await asyncio.sleep(pause())

    async def send(self, topic: str, key: str = "", **more: Any) -> int:
        """Send one message; its number."""
        return await self.process.start(self._send(topic, key, **more))

    async def _send(self, topic: str, key: str, **more: Any) -> int:
        self._number += 1
        number, outcome = self._number, "ok"
        if key and any(each.keyed for each in self.world.topics if each.name == topic):
            more["properties"] = {"key": key}
        try:
            await self.producer.send(Outgoing(topic=topic, body=b"%d" % number, order_key=key or None, **more))
        except SendRefused:
            outcome = "refused"
        except SendUnknown:
            outcome = "unknown"
        self.world.history.append(facts.Sent(self.world.loop.time(), number, key, outcome))
        return number

    async def stop(self) -> None:
        await self.process.start(self._stop())

    async def _stop(self) -> None:
        await self.producer.stop()
        await self.client.stop()


class Member(_Client):
    """A process with one consumer of the group."""

    polls_of: tuple[int, ...] = 3, 20
    """Most messages that each pull of a polled call brings."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, 100 + int(name.rpartition("-")[2]))
        self.consumer: PushConsumer
        self.producer: Producer
        self.is_joined = False
        self.running = 0
        """Handlers that run now."""
        self.notes_in: Path | None = None
        """The directory where it notes down what it has in flight, like others of its machine; None: nowhere."""
        self._notes: Journal | None = None
        self._notes_file = Path()

    async def join(self) -> None:
        self.world.fault(facts.JOIN, self.name)
        await self.process.start(self._join())

    async def _join(self) -> None:
        await self.connect()
        self.producer = self._producer()
        await self.producer.start()
        self.consumer = self.make_consumer()
        await self.consumer.join()
        self.consumer.begin()
        self.is_joined = True

    def make_consumer(self) -> PushConsumer:
        world = self.world
        member = GroupMember(
            GROUP,
            self.topics(),
            client=self.client,
            config=ConsumerConfig(**self.options()),
            clock=self.clock,
            random=world.random(f"{self.name} consumer"),
        )
        return PushConsumer(
            member,
            send_raw=self.producer.send_raw,
            flow_control=FlowControl(1 << 27),
            journal=self._crash_notes(),
            threads=self._threads,  # type: ignore[arg-type]
        )

    def topics(self) -> list[ConsumedTopic]:
        """What it consumes."""
        return [self.consumed(topic) for topic in self.world.topics]

    def options(self) -> dict[str, Any]:
        """Of ConsumerConfig."""
        return dict(self.world.consumer)

    def _crash_notes(self) -> Journal | None:
        if self.notes_in is not None:
            before = set(self.notes_in.iterdir())
            self._notes = Journal(self.notes_in, self.clock, lambda _: None)
            (self._notes_file,) = (path for path in set(self.notes_in.iterdir()) - before if path.suffix == ".hand")
        return self._notes

    def forget_notes(self) -> None:
        """It notes nothing down any more, and leaves no descriptor behind."""
        if self._notes is not None:
            self._notes.close()

    def _threads(self) -> SimulatedThreads:
        threads = SimulatedThreads()
        self.process.at_burial.append(threads.end)
        return threads

    async def leave(self, *, drain_timeout: float = 60.0) -> bool:
        """A clean end; whether everything that was started has been finished and committed."""
        self.world.fault(facts.LEAVE, self.name)
        return await self.process.start(self.leaving(drain_timeout))

    async def leaving(self, drain_timeout: float) -> bool:
        self.is_joined = False
        is_clean = await self.consumer.stop(drain_timeout=drain_timeout, cut=asyncio.Event())
        await self.producer.stop()
        await self.client.stop()
        self.forget_notes()
        return is_clean

    def crash(self, *, silently: bool = False) -> None:
        """kill -9; `silently`: the machine is gone too, so no other side hears its connections end."""
        self.is_joined = False
        if self._notes is not None:
            # What it has noted down is left as by a process that is gone: nobody holds a lock on it.
            shutil.copy(self._notes_file, self._notes_file.with_name(f"dead-{self._notes_file.name}"))
            self._notes_file.unlink()
        self.process.kill()
        if silently:
            self.world.network.hold(self.name)
        else:
            self.world.network.cut(self.name)
        self.world.fault(facts.CRASH, self.name)

    def freeze(self) -> None:
        self.process.freeze()
        self.world.fault(facts.FREEZE, self.name)

    def thaw(self) -> None:
        self.world.fault(facts.THAW, self.name)
        self.process.thaw()

    def observe(self, event: events.Event) -> None:
        super().observe(event)
        now, history = self.world.loop.time(), self.world.history
        if isinstance(event, events.Assigned):
            history.append(facts.Assigned(now, self.name, name_of(event.queue)))
        elif isinstance(event, events.Released):
            history.append(facts.Released(now, self.name, name_of(event.queue)))
        elif isinstance(event, events.CommitFailed):
            history.append(facts.Fault(now, facts.UNANSWERED, name_of(event.queue)))
        elif isinstance(event, events.Dropped):
            history.append(facts.Dropped(now, self.name, name_of(event.message.queue), event.message.offset))

    def consumed(self, topic: Topic) -> ConsumedTopic:
        wanted = [tag for tag in TAGS if topic.tags == ALL_TAGS or tag in topic.tags]
        shares = [replace(topic, tags=tag, sync=TAGS.index(tag) % 2 > 0) for tag in wanted] if topic.by_tag else [topic]
        return replace(consumed_by(*map(self._handler, shares)), broadcast=topic.broadcast)

    def _handler(self, topic: Topic) -> Handler:
        retries = 0 if topic.broadcast and not topic.orderly else topic.retries
        about = subscription(
            f"simulated:{topic.name}{topic.tags if topic.by_tag else ''}",
            topic=topic.name,
            group=GROUP,
            tags=topic.tags,
            is_async=not topic.sync,
            concurrency=topic.concurrency,
            orderly=topic.orderly,
            batch=topic.batch,
            retries=retries if topic.every is None else -1,
            start=topic.start,
            order_by="key" if topic.keyed else None,
            commit="manual" if topic.by_hand else "auto",
            rate=topic.rate,
            every=topic.every,
            mode="pop" if topic.popped else "push",
            retry=None if topic.breaker is None else Policy(breaker=topic.breaker),
        )
        call = self._handle_sync if topic.sync else self.handle if topic.every is None else self._poll
        decisions = Decisions() if topic.by_hand else None
        return Handler(about, call if decisions is None else self._by_hand(decisions), decisions=decisions)

    def _by_hand(self, decisions: Decisions) -> Callable[[Message], Any]:
        async def handle(message: Message) -> Any:
            decisions.begin(message.queue)
            result = await self.handle(message)
            if result is not None or (said := self.world.decide(message)) is None:
                return result
            decisions.say(message.queue, said)
            now, queue = self.world.loop.time(), name_of(message.queue)
            self.world.history.append(facts.Decided(now, self.name, queue, said == COMMIT))
            return None if said == COMMIT else said

        return handle

    @contextlib.contextmanager
    def call(self, messages: Iterable[Message]) -> Iterator[None]:
        """Write down that a call with these messages begins, and how it ends; nothing when its process dies."""
        loop = self.world.loop
        # When a dead process is taken apart, its workers may go on to other messages.
        history = [] if self.process.is_dead else self.world.history
        abouts = [(self.name, name_of(one.queue), one.offset, number_of(one.body), one.attempt) for one in messages]
        history.extend(facts.Started(loop.time(), *about) for about in abouts)
        self.running += 1
        try:
            yield
        except (asyncio.CancelledError, Pause):
            history.extend(facts.Cancelled(loop.time(), *about) for about in abouts)
            raise
        except Exception:
            history.extend(facts.Finished(loop.time(), *about, False) for about in abouts)
            raise
        finally:
            self.running -= 1
        history.extend(facts.Finished(loop.time(), *about, True) for about in abouts)

    async def handle(self, item: Any) -> Any:
        """A message, or a batch of them."""
        messages = item if isinstance(item, list) else [item]
        with self.call(messages):
            for message in messages:
                result = await self.behave(message)
        return result

    async def behave(self, message: Message) -> Any:
        """What its handler does with one message."""
        return await self.world.behave(message)

    async def _poll(self, batch: PolledBatch) -> None:
        """Some pulls, each message handled after the other; all of them end with the call."""
        with contextlib.ExitStack() as pulled:
            for most in self.polls_of:
                messages = await batch.take(most)
                pulled.enter_context(self.call(messages))
                for message in messages:
                    await self.behave(message)

    def _handle_sync(self, message: Message) -> Any:
        """In a simulated thread."""
        assert self.world.block is not None
        with self.call([message]):
            return self.world.block(message)


def name_of(queue: Any) -> str:
    """A queue, as histories name it."""
    return f"{queue.topic}@{queue.broker_name}:{queue.queue_id}"


class Cluster:
    """The brokers of a world, the name server if they have one of their own, and a process that publishes."""

    def __init__(self, world: World, *, brokers: int = 1, invisible: float | None = None) -> None:
        """`invisible`: for popped topics, the seconds for which members want messages in flight to be hidden."""
        self.brokers: list[Any] = [
            Broker(world) if invisible is None else PopBroker(world, invisible=invisible) for _ in range(brokers)
        ]
        self.routes = RouteServer(world) if brokers > 1 or invisible is not None else None
        self.sender = Sender(world)

    async def start(self) -> None:
        if self.routes is not None:
            await self.routes.start()
        for broker in self.brokers:
            await broker.start()
        await self.sender.start()

    async def stop(self) -> None:
        """Leave nothing behind."""
        await self.sender.stop()
        for broker in self.brokers:
            if broker.is_running:
                await broker.stop()
            broker.bury()
        if self.routes is not None:
            self.routes.bury()


async def catch_up(world: World, within: float, *, look: float = 0.25) -> bool:
    """Wait until nothing is left to do; whether that was so in time."""
    world.history.append(facts.Calm(world.loop.time()))
    until = world.loop.time() + within
    while any(broker.lag() for broker in world.brokers):
        if world.loop.time() >= until:
            return False
        await asyncio.sleep(look)
    world.history.append(facts.Idle(world.loop.time()))
    return True
