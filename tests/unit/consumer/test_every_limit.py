"""Every limit that can be changed while a member runs, with every way of consuming: it has an effect, or is refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from rocketapp.app.declare.changes import NAMES, LimitChange
from rocketapp.app.declare.registry import ConsumedGroup
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.errors import SetupError
from rocketapp.model.snapshot import QueueSnapshot
from rocketapp.model.subscription import SubscriptionData
from rocketapp.wire.codes import RequestCode
from tests.unit.consumer.fake_cluster import FakeCluster, Member, consumed, subscription
from tests.unit.consumer.pop.pop_cluster import PopCluster
from tests.unit.scripted import in_virtual_time

POPS = {"pop_batch_size", "pop_max_messages", "pop_invisible_time"}
PULLED = set(NAMES) - POPS
WAYS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "concurrent": ({}, PULLED),
    "sync": ({"is_async": False}, PULLED),
    "broadcast": ({"broadcast": True}, PULLED),
    "orderly": ({"orderly": True}, PULLED - {"queue_max_span"}),
    "keyed": ({"order_by": lambda message: message.body}, PULLED - {"batch"}),
    "polled": ({"every": 0.5}, PULLED - {"queue_max_span", "rate", "batch"}),
    "popped": ({"mode": "pop"}, POPS | {"concurrency", "rate", "batch", "queue_max_bytes"}),
}
"""How its handler is declared, and the limits that it has."""
OF_WORKERS = {"concurrency", "rate", "batch"}
"""What a sync handler has of its own: the rest is the same as for an async one."""


async def until(condition: Callable[[], bool], seconds: float) -> None:
    """As `eventually`, with few looks: most stories take long in virtual time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition is anybody's, so nothing here is an event to wait for
            await asyncio.sleep(0.25)


class Work:
    """A handler that waits in its calls until `gate` is set; with `first_only` in the call for the first message."""

    def __init__(self, *, waits: bool, first_only: bool) -> None:
        self.gate, self.waits, self.first_only = threading.Event(), waits, first_only
        self.running, self.sizes = 0, list[int]()

    def begin(self, messages: list[Any]) -> bool:
        """Whether this call waits."""
        self.sizes.append(len(messages))
        is_first = any(message.body.startswith(b"0 ") for message in messages)
        return self.waits and bool(messages) and (is_first or not self.first_only)

    def in_thread(self, item: Any) -> None:
        if self.begin(item if isinstance(item, list) else [item]):
            self.running += 1
            self.gate.wait()
            self.running -= 1

    async def on_loop(self, item: Any) -> None:
        messages = await item.take(32) if hasattr(item, "take") else item if isinstance(item, list) else [item]
        if self.begin(messages):
            self.running += 1
            await until(self.gate.is_set, 1000)
            self.running -= 1


class Seen(NamedTuple):
    cluster: FakeCluster
    member: Member
    work: Work

    def held(self) -> int:
        """Unfinished messages."""
        return sum(one.unfinished for one in self._queues())

    def reach(self) -> int:
        """Messages that were pulled."""
        return sum(one.position for one in self._queues() if one.position is not None)

    def _queues(self) -> list[QueueSnapshot]:
        return [one for one in self.member.consumer.snapshot().queues if one.queue.topic == "topic"]

    def asked(self, code: RequestCode, name: str) -> str:
        return str(self.cluster.requests(code, topic="topic")[-1].fields[name])

    def last_size(self) -> int:
        """Of the batches, when all is done: those that waited for a call keep their size."""
        self.work.gate.set()
        return self.work.sizes[-1] if sum(self.work.sizes) == 96 + 8 else 4


class Effect(NamedTuple):
    """What is set or declared at the start, the other value, and what differs then."""

    start: dict[str, Any]
    value: float
    seen: Callable[[Seen], object]
    waits: bool = True
    first_only: bool = False
    queues: int = 1
    then: object = None
    """What is seen then, where that is known."""
    more: int = 0
    """Messages that are sent after the change."""


SMALL = {"pull_batch_size": 8, "pop_batch_size": 8}
EFFECTS: dict[str, Effect] = {
    "concurrency": Effect({"concurrency": 2}, 5, lambda seen: seen.work.running, queues=8, then=5),
    "rate": Effect({"rate": 0.01}, 100.0, lambda seen: len(seen.work.sizes) > 20, waits=False, then=True),
    "batch": Effect({"batch": 4, "concurrency": 1}, 2, Seen.last_size, then=2, more=8),
    "queue_max_messages": Effect({"queue_max_messages": 20, **SMALL}, 60, Seen.held),
    "queue_max_bytes": Effect({"queue_max_bytes": 1024, **SMALL}, 1 << 20, Seen.held),
    "queue_max_span": Effect({"queue_max_span": 20, **SMALL}, 60, Seen.reach, first_only=True),
    "topic_max_messages": Effect({"topic_max_messages": 20, **SMALL}, 60, Seen.held),
    "topic_max_bytes": Effect({"topic_max_bytes": 1024, **SMALL}, 1 << 20, Seen.held),
    "pull_interval": Effect(
        {"pull_interval": 50.0, **SMALL},
        0.1,
        lambda seen: len(seen.cluster.requests(RequestCode.PULL_MESSAGE, topic="topic")) > 8,
        waits=False,
    ),
    "pull_batch_size": Effect(
        {"pull_batch_size": 8}, 16, lambda seen: seen.asked(RequestCode.PULL_MESSAGE, "maxMsgNums"), waits=False
    ),
    "pop_batch_size": Effect(
        {"pop_batch_size": 8}, 16, lambda seen: seen.asked(RequestCode.POP_MESSAGE, "maxMsgNums"), waits=False
    ),
    "pop_invisible_time": Effect(
        {"pop_invisible_time": 30.0},
        10.0,
        lambda seen: seen.asked(RequestCode.POP_MESSAGE, "invisibleTime"),
        waits=False,
    ),
    "pop_max_messages": Effect({"pop_max_messages": 20, **SMALL}, 60, Seen.held),
}


def change(way: str, name: str) -> None:
    """What `app.adjust` does before it changes anything. Raises SetupError."""
    effect, unused = EFFECTS[name], cast("Any", None)
    declared = subscription(**WAYS[way][0], **own_options(way, effect))
    topic = ConsumedTopic("topic", "last", 16, (Handler(declared, unused),), SubscriptionData("topic"))
    plan = ConsumedGroup("", "group", (topic,))
    limits = LimitChange(topic="topic", group=None, values={name: effect.value}, place="app.py:1")
    assert limits.by_group([plan]) == {0: {"topic": {name: effect.value}}}


def own_options(way: str, effect: Effect) -> dict[str, Any]:
    """Those of the handler, as far as it can be declared so."""
    without = {"keyed": {"batch"}, "polled": {"batch", "rate"}}.get(way, set())
    return {name: value for name, value in effect.start.items() if name in OF_WORKERS - without}


async def story(way: str, name: str, place: Path) -> None:
    effect = EFFECTS[name]
    cluster = PopCluster() if way == "popped" else FakeCluster()
    await cluster.start()
    queues = cluster.create("topic", effect.queues)
    for queue in queues:
        for number in range(96):
            cluster.send(queue, b"%d %s" % (number, b"x" * 100))
    work = Work(waits=effect.waits, first_only=effect.first_only)
    topic = consumed(work.in_thread if way == "sync" else work.on_loop, **WAYS[way][0], **own_options(way, effect))
    settings = {name: value for name, value in effect.start.items() if name not in OF_WORKERS}
    config = ConsumerConfig(subscription_check="off", broadcast_dir=str(place), **settings)
    member = await cluster.member(topic, config=config).start()
    seen = Seen(cluster, member, work)
    await until(lambda: bool(work.sizes), 60)
    if way != "sync":
        await asyncio.sleep(20)
    before = None if effect.then else effect.seen(seen)
    member.consumer.adjust({"topic": {name: effect.value}})
    for _ in range(effect.more):
        cluster.send(queues[0], b"x" * 100)
    await until(lambda: effect.seen(seen) == effect.then if effect.then else effect.seen(seen) != before, 100)
    work.gate.set()
    await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("name", sorted(NAMES))
@pytest.mark.parametrize("way", WAYS)
def test_a_limit_has_an_effect_or_is_refused_by_its_name(way: str, name: str, tmp_path: Path) -> None:
    if name not in WAYS[way][1]:
        with pytest.raises(SetupError, match=f"app.adjust: topic has no {name}: change "):
            change(way, name)
        return
    change(way, name)
    if way != "sync":
        in_virtual_time(story)(way, name, tmp_path)
    elif name in OF_WORKERS:
        asyncio.run(story(way, name, tmp_path))
