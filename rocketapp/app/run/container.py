"""What a user's container derives from to replace parts of ours.

Imported for apps that have a container alone: dependency_injector takes a sixth of the time of a start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from dependency_injector import containers, providers

from rocketapp.app.settings import Settings
from rocketapp.client.instance import ClientInstance
from rocketapp.clock import Clock
from rocketapp.consumer.offsets.stores import OffsetStore
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.consumer.workers.threads import MakeThreads
from rocketapp.model.event import Observe
from rocketapp.producer.producer import Producer
from rocketapp.state.allocation import Allocation
from rocketapp.transport.stream import Dial


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


def replaced(container: Any) -> dict[str, providers.Provider[Any]]:
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


def fill(container: Any, given: Mapping[str, Any]) -> Callable[[], None]:
    """Give a container what it left open: a redeclared factory may refer to it. Returns what takes it back."""
    left_open = given.keys() - replaced(container).keys() if _derives(container) else ()
    filled = {name: container.providers[name] for name in left_open}
    for name, provider in filled.items():
        provider.override(providers.Object(given[name]))

    def release() -> None:
        for provider in filled.values():
            provider.reset_last_overriding()

    return release


def _derives(instance: Any) -> bool:
    """Instances are dynamic containers; what they were made from is their declarative parent."""
    parent = getattr(instance, "declarative_parent", None)
    return isinstance(parent, type) and issubclass(parent, Container)
