"""The wiring of the stack, and the only file that knows dependency_injector.

`Container` names every part. A user's container that derives from it replaces parts by
redeclaring them; any container, derived or not, can provide arguments of handlers. A
container that does not derive replaces nothing, whatever its providers are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from dependency_injector import containers, providers

from rocketapp.client.instance import ClientInstance
from rocketapp.consumer.blocked_loop import BlockedLoop
from rocketapp.consumer.parts import ConsumerParts
from rocketapp.consumer.pull.flow_control import FlowControl
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.errors import SetupError
from rocketapp.producer.producer import Producer


class Container(containers.DeclarativeContainer):
    """The parts of a running app.

    settings, observe: given at every start. clock, random, dial: given at start unless
    redeclared. client, producer and consumer are factories: called once per cluster, per
    cluster, and per group of a cluster, with the arguments that differ; consumer_parts once per
    group, with its cluster's client and producer.
    """

    settings: providers.Provider[Any] = providers.Dependency()
    observe: providers.Provider[Any] = providers.Dependency()
    clock: providers.Provider[Any] = providers.Dependency()
    random: providers.Provider[Any] = providers.Dependency()
    dial: providers.Provider[Any] = providers.Dependency()
    flow_control: providers.Provider[Any] = providers.Singleton(FlowControl, settings.provided.consumer.cache_max_bytes)
    blocked_loop: providers.Provider[Any] = providers.Singleton(BlockedLoop, observe)
    client: providers.Provider[Any] = providers.Factory(
        ClientInstance, dial=dial, clock=clock, random=random, observe=observe
    )
    producer: providers.Provider[Any] = providers.Factory(
        Producer, config=settings.provided.producer, clock=clock, random=random, observe=observe
    )
    consumer_parts: providers.Provider[Any] = providers.Factory(
        ConsumerParts,
        config=settings.provided.consumer,
        app_version=settings.provided.app.version,
        clock=clock,
        random=random,
        observe=observe,
        flow_control=flow_control,
        blocked_loop=blocked_loop,
        max_inflated_bytes=settings.provided.client.max_inflated_bytes,
    )
    consumer: providers.Provider[Any] = providers.Factory(PushConsumer)


class Wiring:
    """The container of one run: ours, with what the user's replaces."""

    def __init__(self, container: Any, given: Mapping[str, object]) -> None:
        """`given`: values for the providers that the user's container leaves open."""
        self.own = Container()
        self._user: Any = container
        self._filled: list[providers.Provider[Any]] = []
        replaced = _replaced(container)
        for name, value in given.items():
            self.own.providers[name].override(providers.Object(value))
            if _derives(container) and name not in replaced:
                # A redeclared factory may refer to what its container left open.
                self._filled.append(container.providers[name])
                container.providers[name].override(providers.Object(value))
        for name, provider in replaced.items():
            self.own.providers[name].override(provider)

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


class ContainerProviders:
    """The user's container as `signature` sees it: where handlers' arguments come from."""

    def __init__(self, container: Any) -> None:
        self._container = container

    def marked(self, marker: Any) -> Callable[[], Any]:
        """`Provide["db"]`, `Provide[Shop.db]`: what to call for the value; for `Provider[...]` the provider itself."""
        # Who has a marker has imported the module; it is slow, so nobody else does.
        from dependency_injector.wiring import Closing, Provider, ProvidersMap

        if isinstance(marker, cast(type, Closing)):
            raise LookupError(
                "Closing[...] has no meaning for a handler: use Provide[...]; Resources close with the app"
            )
        provider = ProvidersMap(self._container).resolve_provider(marker.provider, marker.modifier)
        if provider is None:
            raise LookupError(f"the container has no provider {marker.provider!r}: it has {self._names()}")
        found = cast(Callable[[], Any], provider)
        return (lambda: found) if isinstance(marker, cast(type, Provider)) else found

    def of_type(self, kind: Any) -> Callable[[], Any] | None:
        """The provider whose class is exactly this one."""
        named = {
            name: provider
            for name, provider in self._container.providers.items()
            if isinstance(kind, type) and getattr(provider, "provides", None) is kind
        }
        if len(named) > 1:
            which = " and ".join(sorted(named))
            raise LookupError(
                f"{which} of the container all provide {kind.__qualname__}: choose one with = Provide[{min(named)!r}]"
            )
        return cast(Callable[[], Any], next(iter(named.values()))) if named else None

    def _names(self) -> str:
        return ", ".join(sorted(name for name in self._container.providers if not name.startswith("__"))) or "none"


def instance_of(container: object, place: str) -> Any:
    """A container class stands for one instance of it. Raises SetupError for anything else."""
    if isinstance(container, type) and issubclass(container, containers.DeclarativeContainer):
        container = container()
    if not containers.is_container(container):
        raise SetupError(place, f"container={container!r} is no dependency_injector container")
    return container


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
