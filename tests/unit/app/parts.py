"""Parts of an app that only write down what is asked of them, wired by a container as users override theirs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from dependency_injector import providers

from rocketapp import RocketApp, SendResult
from rocketapp.app.declare.phases import declared_of
from rocketapp.app.run.container import Container
from rocketapp.app.run.lifecycle import Lifecycle
from rocketapp.app.run.wiring import Runtime
from rocketapp.app.settings import Settings
from rocketapp.clock import SystemClock
from rocketapp.config.app import AppConfig
from rocketapp.config.client import ClientConfig
from rocketapp.consumer.member import Member
from rocketapp.consumer.watch.figures import IdleReport
from rocketapp.errors import ConnectError
from rocketapp.hooks.surface import Surface
from rocketapp.model.event import Observe
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import Outgoing
from rocketapp.model.snapshot import AppSnapshot, HandlerStats
from rocketapp.plugin import hookimpl

QUEUE = MessageQueue("orders", "broker-a", 0)


class Diary:
    """What happened, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failing: dict[str, BaseException] = {}
        self.unreachable = 0
        """This number of starts of clients fails first."""

    def note(self, line: str) -> None:
        self.lines.append(line)
        if line in self.failing:
            raise self.failing[line]


class Looking:
    """A plugin that keeps what plugins see of the app."""

    app: Surface
    early: AppSnapshot

    @hookimpl
    def app_setup(self, app: Surface) -> None:
        self.app, self.early = app, app.snapshot()


class NotedClient:
    def __init__(self, diary: Diary, *, config: ClientConfig, observe: Observe, **_: Any) -> None:
        self.diary, self.config = diary, config
        self.client_id, self.observe = config.name_server, observe

    async def start(self) -> None:
        if self.diary.unreachable:
            self.diary.unreachable -= 1
            raise ConnectError(self.config.name_server, "connection refused")
        self.diary.note(f"client {self.config.name_server} starts")

    async def stop(self) -> None:
        self.diary.note(f"client {self.config.name_server} stops")


class NotedProducer:
    def __init__(self, diary: Diary, *, client: NotedClient, group: str, **_: Any) -> None:
        self.diary, self.client, self.group = diary, client, group
        self._offsets = itertools.count()
        self.sent: list[Outgoing] = []

    async def start(self) -> None:
        self.diary.note(f"producer {self.group} starts")

    async def stop(self) -> None:
        self.diary.note(f"producer {self.group} stops")

    async def send(self, message: Outgoing, *, timeout: float | None = None) -> SendResult:
        await asyncio.sleep(0)
        self.diary.note(f"send {message.topic} {message.body.decode()} to {self.client.config.name_server}")
        return SendResult("id", "offset-id", QUEUE, next(self._offsets))

    async def send_many(self, messages: Sequence[Outgoing]) -> list[SendResult]:
        return [await self.send(message) for message in messages]

    async def send_one_way(self, message: Outgoing) -> None:
        await self.send(message)

    send_raw = send_one_way


class NotedConsumer:
    def __init__(self, diary: Diary, *, member: Member, expected_members: int, **_: Any) -> None:
        self.diary, self.expected_members = diary, expected_members
        self.group, self.cluster, self.topics = member.name, member.cluster, member.topics
        self.counters = HandlerStats(handled=2, retried=1, dead_lettered=1, unmatched=3)

    async def join(self) -> None:
        self.diary.note(f"consumer {self.group} joins")

    def begin(self) -> None:
        self.diary.note(f"consumer {self.group} begins")

    def pause(self, topic: str, reason: str) -> None:
        self.diary.note(f"{topic} pauses on {self.cluster}")

    def resume(self, topic: str, reason: str | None) -> None:
        self.diary.note(f"{topic} resumes on {self.cluster}")

    def adjust(self, topics: Mapping[str, Mapping[str, float | None]]) -> None:
        self.diary.lines += [f"{topic} of {self.cluster} has {dict(limits)}" for topic, limits in topics.items()]

    async def stop(self, *, drain_timeout: float, cut: asyncio.Event) -> bool:
        self.diary.note(f"consumer {self.group} stops")
        return not cut.is_set()

    async def idle(self) -> IdleReport:
        return IdleReport(frozenset(), frozenset({QUEUE}), (f"{self.group} is busy",))

    def __repr__(self) -> str:
        return f"<{self.group}>"


class Noted(Container):
    """The container of an app whose parts write down, in this diary, what is asked of them."""

    diary = providers.Dependency(instance_of=Diary)


def container_of(diary: Diary) -> Any:
    return Noted(diary=diary)


async def never_dial(*_: Any) -> Any:
    raise AssertionError("nothing dials here")


def lifecycle_of(
    app: RocketApp,
    *,
    settings: Settings | None = None,
    expected_members: int = 1,
    plugins: Sequence[object] = (),
    **world: Any,
) -> Lifecycle:
    container = declared_of(app).container
    if container is not None and "diary" in container.providers:
        diary = container.diary()
        noted = {"client": NotedClient, "producer": NotedProducer, "consumer": NotedConsumer}
        world = {**{name: partial(kind, diary) for name, kind in noted.items()}, **world}
    return Lifecycle(
        app,
        settings or Settings(client=ClientConfig(name_server="h:1"), app=AppConfig(connect_timeout=60.0)),
        Runtime(**{"dial": never_dial, "clock": SystemClock(), "random": Random(1), **world}),
        expected_members=expected_members,
        plugins=plugins,
    )
