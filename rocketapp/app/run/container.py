"""The parts of a running app, and which of them a user's container replaces.

Only this file and `app.inject` know dependency_injector. A container that does not derive from ours replaces nothing,
even if its providers have the names of ours; any container can provide arguments of handlers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from dependency_injector import containers, providers

from rocketapp.app.run.extensions import allocation_of, connections, offset_store_of
from rocketapp.app.run.surface import AppSurface
from rocketapp.app.settings.settings import Settings
from rocketapp.client.instance import ClientInstance
from rocketapp.client.traces import trace_topic_of
from rocketapp.clock import Clock
from rocketapp.config.client import ClientConfig
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.member import Member
from rocketapp.consumer.offsets.stores import OffsetStore
from rocketapp.consumer.pull.flow import FlowControl
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.consumer.watch.blocked import BlockedLoop
from rocketapp.consumer.workers.threads import MakeThreads, Threads
from rocketapp.hooks.manager import Plugins
from rocketapp.model.event import Observe
from rocketapp.producer.producer import Producer
from rocketapp.state.allocation import Allocation
from rocketapp.transport.access import tls_of
from rocketapp.transport.stream import Dial
from rocketapp.transport.web import ReadUrl, read_url


class Container(containers.DeclarativeContainer):
    """Derive from it and redeclare what shall be yours.

    clock, random, dial, threads, allocation, offset_store: one of each serves a run. client, producer and consumer are
    factories, called with the keyword arguments of ours: the first two once per cluster, the last one once per group.
    settings, observe: those of the run, for providers that refer to them.
    """

    settings: providers.Provider[Settings] = providers.Dependency()
    observe: providers.Provider[Observe] = providers.Dependency()
    dial: providers.Provider[Dial] = providers.Dependency()
    clock: providers.Provider[Clock] = providers.Dependency()
    random: providers.Provider[Random] = providers.Dependency()
    threads: providers.Provider[MakeThreads] = providers.Dependency()
    allocation: providers.Provider[Allocation] = providers.Dependency()
    offset_store: providers.Provider[OffsetStore | None] = providers.Dependency()
    client: providers.Provider[ClientInstance] = providers.Factory(ClientInstance)
    producer: providers.Provider[Producer] = providers.Factory(Producer)
    consumer: providers.Provider[PushConsumer] = providers.Factory(PushConsumer)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a run gets from its process: network, time, chance and threads. Tests give their own."""

    dial: Dial
    clock: Clock
    random: Random
    threads: MakeThreads = Threads
    """(name, most): makes the threads of one sync handler."""
    read_url: ReadUrl = read_url
    journal: Journal | None = None
    """Where what is in hand is noted down, for the case that the process dies; its owner closes it."""
    worker: int | None = None
    """The number of this process, for what it keeps on disk; None: nothing is kept."""


class Wiring:
    """What the clients, producers and consumers of one run are made of, by us or by the user's container."""

    def __init__(self, settings: Settings, world: World, plugins: Plugins, surface: AppSurface, user: Any) -> None:
        """`user`: the app's container, or None. Raises ConfigError and PluginError."""
        self._settings, self._world, self._user = settings, world, user
        self._filled: list[providers.Provider[Any]] = []
        self._replaced = _replaced(user)
        self._new_connection = connections(plugins, surface)
        self._tls = tls_of(settings.client)
        self._given: dict[str, Any] = {
            "settings": settings,
            "observe": surface.observe,
            "dial": world.dial,
            "clock": world.clock,
            "random": world.random,
            "threads": world.threads,
            "allocation": allocation_of(settings.consumer, plugins, surface),
            "offset_store": offset_store_of(plugins, surface),
        }
        for name, value in self._given.items() if _derives(user) else ():
            if name not in self._replaced:
                # A redeclared factory may refer to what its container left open.
                self._filled.append(user.providers[name])
                user.providers[name].override(providers.Object(value))
        self.clock: Clock = self._value("clock")
        self.allocation: Allocation = self._value("allocation")
        self.offset_store: OffsetStore | None = self._value("offset_store")
        self._random: Random = self._value("random")
        self._observe: Observe = self._value("observe")
        self.blocked_loop: BlockedLoop = BlockedLoop(self._observe)
        self._flow_control = FlowControl(settings.consumer.cache_max_bytes)

    def _value(self, name: str) -> Any:
        return self._replaced[name]() if name in self._replaced else self._given[name]

    def _factory(self, name: str) -> Any:
        return self._replaced.get(name, Container.providers[name])

    def client(self, config: ClientConfig, subscribed: str) -> ClientInstance:
        """The view of one cluster, whose name server `config` names. `subscribed`: a digest of what its groups want."""
        client: ClientInstance = self._factory("client")(
            config=config,
            dial=self._value("dial"),
            clock=self.clock,
            random=self._random,
            observe=self._observe,
            new_connection=self._new_connection,
            tls=self._tls,
            read_url=self._world.read_url,
            subscribed=subscribed,
        )
        return client

    def producer(self, client: ClientInstance, group: str) -> Producer:
        """The producer of one cluster."""
        config = self._settings.client
        producer: Producer = self._factory("producer")(
            client=client,
            config=self._settings.producer,
            group=group,
            clock=self.clock,
            random=self._random,
            max_inflated_bytes=config.max_inflated_bytes,
            trace_topic=trace_topic_of(config),
        )
        return producer

    def consumer(
        self,
        client: ClientInstance,
        producer: Producer,
        *,
        cluster: str,
        group: str,
        topics: Sequence[ConsumedTopic],
        expected_members: int,
    ) -> PushConsumer:
        """The consumer of one group."""
        if self._settings.client.enable_msg_trace and producer.traces is not None:
            from rocketapp.consumer.traced import traced

            topics = traced(topics, group, producer.traces, self._random)
        member = Member(
            group,
            topics,
            client=client,
            config=self._settings.consumer,
            clock=self.clock,
            random=self._random,
            allocation=self.allocation,
            cluster=cluster,
            worker=self._world.worker,
            app_version=self._settings.app.version,
            max_inflated_bytes=self._settings.client.max_inflated_bytes,
        )
        consumer: PushConsumer = self._factory("consumer")(
            member=member,
            sender=producer,
            flow_control=self._flow_control,
            offset_store=self.offset_store,
            journal=self._world.journal,
            threads=self._value("threads"),
            expected_members=expected_members,
        )
        return consumer

    async def start_resources(self) -> None:
        """Initialize the Resource providers of the user's container."""
        if self._user is not None:
            await _awaited(self._user.init_resources())

    async def stop_resources(self) -> None:
        if self._user is not None:
            await _awaited(self._user.shutdown_resources())

    def release(self) -> None:
        """Take back what was given: the user's container is as it was, and may serve another run."""
        for provider in self._filled:
            provider.reset_last_overriding()


def _derives(instance: Any) -> bool:
    """Instances are dynamic containers; what they were made from is their declarative parent."""
    parent = getattr(instance, "declarative_parent", None)
    return isinstance(parent, type) and issubclass(parent, Container)


def _replaced(container: Any) -> dict[str, providers.Provider[Any]]:
    """The parts that a container redeclares or has overridden. (Inheritance alone rewires nothing: what refers
    to the inherited provider goes on doing so.)
    """
    if not _derives(container):
        return {}
    ours, theirs = Container.providers, container.declarative_parent.providers
    return {
        name: container.providers[name]
        for name in ours
        if theirs[name] is not ours[name] or container.providers[name].last_overriding is not None
    }


async def _awaited(value: Any) -> None:
    if value is not None:
        await value
