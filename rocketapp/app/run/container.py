"""The wiring of the stack. Only this file and `inject.providers` know dependency_injector.

`Container` names every part. A user's container that derives from it replaces parts by
redeclaring them; any container, derived or not, can provide arguments of handlers. A
container that does not derive replaces nothing, even if its providers have the names of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from random import Random
from typing import Any

from dependency_injector import containers, providers

from rocketapp.app.run import parts
from rocketapp.app.settings.settings import Settings
from rocketapp.client.instance import ClientInstance
from rocketapp.clock import Clock
from rocketapp.config.client import ClientConfig
from rocketapp.consumer.blocked_loop import BlockedLoop
from rocketapp.consumer.crashes import Crashes
from rocketapp.consumer.group.offset_store import OffsetStore
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.parts import ConsumerParts
from rocketapp.consumer.pull.flow_control import FlowControl
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.consumer.workers.threads import MakeThreads
from rocketapp.model.event import Observe
from rocketapp.producer.producer import Producer
from rocketapp.state.allocation.average import AVERAGE
from rocketapp.state.allocation.strategy import Allocation
from rocketapp.transport.stream import Dial
from rocketapp.transport.tls import Tls
from rocketapp.transport.watched import NewConnection
from rocketapp.transport.web import ReadUrl, read_url


class Container(containers.DeclarativeContainer):
    """The parts of a running app: which object each part is. `parts` says, typed, what they are made of.

    settings, observe: given at every start. clock, random, dial, threads, new_connection, crashes, worker, tls,
    allocation, read_url, offset_store: given at start unless redeclared. client, producer, consumer_parts and consumer
    are factories: called once per cluster, the last two once per group, with the arguments that differ.
    """

    settings: providers.Provider[Settings] = providers.Dependency()
    observe: providers.Provider[Observe] = providers.Dependency()
    dial: providers.Provider[Dial] = providers.Dependency()
    clock: providers.Provider[Clock] = providers.Dependency()
    random: providers.Provider[Random] = providers.Dependency()
    threads: providers.Provider[MakeThreads] = providers.Dependency()
    new_connection: providers.Provider[NewConnection] = providers.Dependency()
    crashes: providers.Provider[Crashes | None] = providers.Object(None)
    worker: providers.Provider[int | None] = providers.Object(None)
    tls: providers.Provider[Tls | None] = providers.Object(None)
    allocation: providers.Provider[Allocation] = providers.Object(AVERAGE)
    read_url: providers.Provider[ReadUrl] = providers.Object(read_url)
    offset_store: providers.Provider[OffsetStore | None] = providers.Object(None)
    flow_control: providers.Provider[FlowControl] = providers.Singleton(parts.make_flow_control, settings)
    blocked_loop: providers.Provider[BlockedLoop] = providers.Singleton(BlockedLoop, observe)
    app_parts: providers.Provider[parts.AppParts] = providers.Factory(
        parts.AppParts,
        settings=settings,
        observe=observe,
        dial=dial,
        clock=clock,
        random=random,
        threads=threads,
        new_connection=new_connection,
        flow_control=flow_control,
        blocked_loop=blocked_loop,
        crashes=crashes,
        worker=worker,
        tls=tls,
        allocation=allocation,
        read_url=read_url,
        offset_store=offset_store,
    )
    client: providers.Provider[ClientInstance] = providers.Factory(parts.make_client, app_parts)
    producer: providers.Provider[Producer] = providers.Factory(parts.make_producer, app_parts)
    consumer_parts: providers.Provider[ConsumerParts] = providers.Factory(parts.make_consumer_parts, app_parts)
    consumer: providers.Provider[PushConsumer] = providers.Factory(PushConsumer)


class Wiring:
    """The container of one run: ours, with what the user's replaces."""

    def __init__(self, container: Any, given: parts.GivenParts) -> None:
        """`given`: values for the providers that the user's container leaves open."""
        self.own: Container = Container()
        self._user: Any = container
        self._filled: list[providers.Provider[Any]] = []
        replaced = _replaced(container)
        for name in (field.name for field in fields(given)):
            value = getattr(given, name)
            self.own.providers[name].override(providers.Object(value))
            if _derives(container) and name not in replaced:
                # A redeclared factory may refer to what its container left open.
                self._filled.append(container.providers[name])
                container.providers[name].override(providers.Object(value))
        for name, provider in replaced.items():
            self.own.providers[name].override(provider)

    # Typed, so that the arguments of each call are checked, also where the user's container replaces a factory.

    @property
    def clock(self) -> Clock:
        return self.own.clock()

    @property
    def allocation(self) -> Allocation:
        return self.own.allocation()

    @property
    def offset_store(self) -> OffsetStore | None:
        return self.own.offset_store()

    @property
    def blocked_loop(self) -> BlockedLoop:
        return self.own.blocked_loop()

    def client(self, *, config: ClientConfig) -> ClientInstance:
        """The view of one cluster."""
        return self.own.client(config=config)

    def producer(self, *, client: ClientInstance, group: str) -> Producer:
        """The producer of one cluster."""
        return self.own.producer(client=client, group=group)

    def consumer(
        self,
        *,
        client: ClientInstance,
        producer: Producer,
        cluster: str,
        group: str,
        topics: Sequence[ConsumedTopic],
        expected_members: int,
    ) -> PushConsumer:
        """The consumer of one group."""
        made_of = self.own.consumer_parts(client=client, producer=producer, cluster=cluster)
        return self.own.consumer(group=group, topics=topics, parts=made_of, expected_members=expected_members)

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
