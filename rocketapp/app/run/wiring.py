"""Builds everything that an app needs before it connects: observers, handler chains, groups, parts of a container.

Errors of plugins and declarations are raised here, where nothing has to be undone. A user's container that does not
derive from ours replaces nothing, even if its providers have the same names; any container can provide arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Literal

from rocketapp.app.call.chain import Layer, fold
from rocketapp.app.declare.declaration import Declaration
from rocketapp.app.declare.phases import TwoPhases, declared_of, publishing_of
from rocketapp.app.declare.registry import ConsumedGroup, union_of
from rocketapp.app.publishing import Publishing
from rocketapp.app.run.extensions import allocation_of, check_clusters, offset_store_of, sink_of
from rocketapp.app.run.surface import AppSurface
from rocketapp.app.settings import Settings
from rocketapp.client.instance import ClientInstance
from rocketapp.client.traces import trace_topic_of
from rocketapp.clock import Clock
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.member import Member
from rocketapp.consumer.offsets.stores import OffsetStore
from rocketapp.consumer.pull.flow import FlowControl
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.consumer.watch.slow_calls import BlockedLoop
from rocketapp.consumer.workers.in_threads import MakeThreads, Threads
from rocketapp.errors import SetupError
from rocketapp.hooks.idempotency import keys_of
from rocketapp.hooks.manager import Plugins, code_of, raised_by
from rocketapp.model.outcome import Decisions
from rocketapp.model.snapshot import AppSnapshot, HandlerStats
from rocketapp.model.subscription import Subscription
from rocketapp.producer.producer import Producer
from rocketapp.state.allocation import Allocation
from rocketapp.transport.access import tls_of
from rocketapp.transport.http_get import ReadUrl, read_url
from rocketapp.transport.stream import Dial


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What an app gets from its process: network, clock, randomness and threads. Tests pass their own.

    threads: makes the threads of sync handlers.
    journal: records what is in flight, in case the process dies; its owner closes it.
    worker: the number of this process, for what it keeps on disk; None: nothing is kept.
    client, producer, consumer: the classes that connect to a cluster, send, and consume for a group.
    """

    dial: Dial
    clock: Clock
    random: Random
    threads: MakeThreads = Threads
    read_url: ReadUrl = read_url
    journal: Journal | None = None
    worker: int | None = None
    client: Callable[..., ClientInstance] = ClientInstance
    producer: Callable[..., Producer] = Producer
    consumer: Callable[..., PushConsumer] = PushConsumer


def parts_of(container: Any, clock: Clock) -> tuple[Clock, OffsetStore | None]:
    """The clock and offset store of a container that derives from ours; otherwise this clock, and None."""
    if container is None:
        return clock, None
    from rocketapp.app.run.container import Container

    # Instances are dynamic containers; what they were made from is their declarative parent.
    parent = getattr(container, "declarative_parent", None)
    derives = isinstance(parent, type) and issubclass(parent, Container)
    return (container.clock() or clock, container.offset_store()) if derives else (clock, None)


class Wiring:
    """The parts of an app, built but not connected.

    client: makes the client of one cluster from its `config`, and `subscribed`, a digest of its groups' subscriptions.
    producer: makes the producer of one cluster from its `client`.
    """

    def __init__(
        self,
        app: TwoPhases,
        settings: Settings,
        runtime: Runtime,
        plugins: Plugins,
        *,
        snapshot: Callable[[], AppSnapshot],
    ) -> None:
        """Raises SetupError, PluginError or ConfigError."""
        self._settings, self._runtime = settings, runtime
        self.clock: Clock
        self.clock, store = parts_of(declared_of(app).container, runtime.clock)
        surface = AppSurface(app, settings, clock=self.clock, plugins=plugins, snapshot=snapshot)
        self.surface: AppSurface = surface
        self.allocation: Allocation = allocation_of(settings.consumer, plugins, surface)
        self.offset_store: OffsetStore | None = offset_store_of(plugins, surface) if store is None else store
        self.blocked_loop: BlockedLoop = BlockedLoop(surface.observe)
        self._flow_control = FlowControl(settings.consumer.cache_max_bytes)
        self.groups: tuple[ConsumedGroup, ...] = plans_of(surface.handlers, plugins, publishing_of(app))
        check_clusters(self.offset_store, (plan.cluster for plan in self.shared))
        self.client: Callable[..., ClientInstance] = partial(
            runtime.client,
            dial=runtime.dial,
            clock=self.clock,
            random=runtime.random,
            observe=surface.observe,
            tls=tls_of(settings.client),
            read_url=runtime.read_url,
        )
        self.producer: Callable[..., Producer] = partial(
            runtime.producer,
            config=settings.producer,
            group=settings.producer.group or app.name,
            clock=self.clock,
            random=runtime.random,
            max_inflated_bytes=settings.client.max_inflated_bytes,
            trace_topic=trace_topic_of(settings.client),
        )

    @property
    def shared(self) -> list[ConsumedGroup]:
        """The groups whose members share queues: all but broadcast groups."""
        return [plan for plan in self.groups if not plan.topics[0].broadcast]

    def consumer(
        self, plan: ConsumedGroup, client: ClientInstance, producer: Producer, *, expected_members: int
    ) -> PushConsumer:
        """The consumer of one group."""
        topics: Sequence[ConsumedTopic] = plan.topics
        if self._settings.client.message_trace and producer.traces is not None:
            from rocketapp.consumer.traced import traced

            topics = traced(topics, plan.group, producer.traces, self._runtime.random)
        member = Member(
            plan.group,
            topics,
            client=client,
            config=self._settings.consumer,
            clock=self.clock,
            random=self._runtime.random,
            allocation=self.allocation,
            cluster=plan.cluster,
            worker=self._runtime.worker,
            app_version=self._settings.app.version,
            max_inflated_bytes=self._settings.client.max_inflated_bytes,
        )
        return self._runtime.consumer(
            member=member,
            send_raw=producer.send_raw,
            flow_control=self._flow_control,
            offset_store=self.offset_store,
            journal=self._runtime.journal,
            threads=self._runtime.threads,
            expected_members=expected_members,
        )


async def resources(container: Any, what: Literal["init", "shutdown"]) -> None:
    """Open or close the Resource providers of the user's container; None: there is no container."""
    if container is not None and (waiting := getattr(container, f"{what}_resources")()) is not None:
        await waiting


def plans_of(handlers: Iterable[Declaration], plugins: Plugins, publishing: Publishing) -> tuple[ConsumedGroup, ...]:
    """The groups to consume, with their topics and handlers."""
    by_group: dict[tuple[str, str], dict[str, list[Declaration]]] = {}
    for one in handlers:
        topics = by_group.setdefault((one.subscription.cluster, one.subscription.group), {})
        topics.setdefault(one.subscription.topic, []).append(one)
    return tuple(
        ConsumedGroup(cluster, group, tuple(_consumed(same, plugins, publishing) for same in topics.values()))
        for (cluster, group), topics in by_group.items()
    )


def _consumed(same: Sequence[Declaration], plugins: Plugins, publishing: Publishing) -> ConsumedTopic:
    """One topic of a group with its handlers, which share its subscription."""
    subscriptions = [one.subscription for one in same]
    first = subscriptions[0]
    handlers = tuple(handler_of(one, plugins, publishing) for one in same)
    return ConsumedTopic(
        topic=first.topic,
        start=first.start,
        retries=first.retries,
        handlers=handlers,
        data=union_of(subscriptions),
        sink=None if same[0].is_polled else sink_of(plugins, subscriptions),
        broadcast=first.broadcast,
    )


def _check_idempotency(subscription: Subscription, layers: Iterable[Layer]) -> None:
    """Refuse a handler with `idempotent=` that no layer would make idempotent: it would handle copies unseen."""
    wanted = subscription.idempotent
    missing = f"{wanted!r}, which is not among the app's plugins: RocketApp(plugins=[...])"
    keeping = {"idempotency", "database"}
    if not getattr(wanted, "keeps_marks", False):
        missing = "the plugin idempotency, which is disabled or not installed: enable it"
        keeping = {"idempotency"}
    if wanted and keeping.isdisjoint(layer.name for layer in layers):
        raise SetupError(subscription.place, f"idempotent= needs {missing}")


def handler_of(declaration: Declaration, plugins: Plugins, publishing: Publishing) -> Handler:
    """The function inside all its layers. Code without an owner counts as the user's."""
    subscription = declaration.subscription
    decisions = Decisions() if subscription.commit == "manual" else None
    # What is raised below the plugins' wrappers is not theirs, also where the function itself has returned.
    users = [declaration.function] + ([] if subscription.filter is None else [subscription.filter])
    if callable(subscription.idempotent):
        users.append(keys_of(subscription, subscription.idempotent))
    owners = {code: "" for code in map(code_of, users) if code is not None}
    stats = HandlerStats()
    layers = declaration.layers(publishing, plugins, decisions=decisions, owners=owners, stats=stats)
    _check_idempotency(subscription, layers)
    call = fold(declaration.function, layers, owners)
    return Handler(subscription, call, stats, owner_of=partial(raised_by, owners=owners), decisions=decisions)
