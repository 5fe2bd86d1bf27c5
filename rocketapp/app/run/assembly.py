"""Everything that is built before anything connects: observers, chains, groups, the container.

Errors of plugins and declarations come from here, so that nothing has to be undone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar, Unpack

from rocketapp.app.call.chain import fold
from rocketapp.app.call.policies import Policies
from rocketapp.app.declare.phases import TwoPhases, declared_of
from rocketapp.app.declare.registry import Bound, GroupPlan, TopicPlan
from rocketapp.app.inject.providers import ContainerProviders
from rocketapp.app.publish.publishing import Publishing
from rocketapp.app.run.container import Wiring
from rocketapp.app.run.parts import GivenParts
from rocketapp.app.run.periodic import Periodic
from rocketapp.app.run.remote_calls import connections
from rocketapp.app.run.ways import plugged_in
from rocketapp.app.settings.settings import Settings
from rocketapp.clock import Clock
from rocketapp.consumer.crashes import Crashes
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.workers.threads import MakeThreads
from rocketapp.errors import PluginError, SetupError
from rocketapp.hooks.blame import code_of, raised_by
from rocketapp.hooks.idempotency import IdempotencyStore
from rocketapp.hooks.manager import Answer, Plugins
from rocketapp.model.event import Event, Observe
from rocketapp.model.outgoing import SendResult
from rocketapp.model.publish_options import PublishOptions
from rocketapp.model.snapshot import AppSnapshot
from rocketapp.model.subscription import Subscription
from rocketapp.transport.stream import Dial

log = logging.getLogger("rocketapp.app")
T = TypeVar("T")


class PlannedConsumer(NamedTuple):
    """One consumer to be."""

    plan: GroupPlan
    topics: tuple[ConsumedTopic, ...]


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts of one run."""

    groups: tuple[PlannedConsumer, ...]
    surface: AppSurface
    wiring: Wiring


def assemble(
    app: TwoPhases,
    settings: Settings,
    *,
    publishing: Publishing,
    dial: Dial,
    clock: Clock,
    random: Random,
    threads: MakeThreads,
    plugins: Plugins,
    periodic: Periodic,
    snapshot: Callable[[], AppSnapshot],
    crashes: Crashes | None = None,
) -> Assembly:
    """`publishing`: for handlers that publish. Raises SetupError or PluginError."""
    declared = declared_of(app)
    # Settings that were made in code may lack tables of plugins: these have their defaults.
    others = {name: kind() for name, kind in declared.tables.items() if name not in settings.plugins}
    settings = replace(settings, plugins={**settings.plugins, **others})
    group = settings.app.group or app.name
    policies = Policies(plugins)
    subscriptions = [policies.complete(one) for one in declared.registry.subscriptions(group, settings.consumer)]
    surface = AppSurface(
        app, settings, subscriptions, publishing=publishing, periodic=periodic, plugins=plugins, snapshot=snapshot
    )
    surface.observers = _observers(plugins, surface)
    given = GivenParts(
        settings=settings,
        observe=surface.observe,
        dial=dial,
        clock=clock,
        random=random,
        threads=threads,
        new_connection=connections(plugins, surface),
        crashes=crashes,
    )
    wiring = Wiring(declared.container, given)
    version = int(wiring.clock.now() * 1000)
    groups = tuple(
        PlannedConsumer(plan, tuple(_consumed(topic, plugins, policies, publishing) for topic in plan.topics))
        for plan in declared.registry.plans(group, settings.consumer, version=version)
    )
    return Assembly(groups, surface, wiring)


def _consumed(plan: TopicPlan, plugins: Plugins, policies: Policies, publishing: Publishing) -> ConsumedTopic:
    first = plan.bound[0].subscription
    bound = (one._replace(subscription=policies.complete(one.subscription)) for one in plan.bound)
    handlers = tuple(handler_of(one, plugins, publishing) for one in bound)
    way = plugged_in(plugins, [one.subscription for one in plan.bound])
    return ConsumedTopic(plan.topic, first.orderly, first.start, first.retries, handlers, plan.data, way)


def _check_idempotency(subscription: Subscription, plugins: Plugins) -> None:
    """A handler that asks for it and would not get it handles copies unseen."""
    wanted = subscription.idempotent
    if wanted and not getattr(wanted, "keeps_marks", False) and "idempotency" not in plugins.names():
        problem = "idempotent= needs the plugin idempotency, which is disabled or not installed: enable it"
        raise SetupError(subscription.place, problem)


def handler_of(bound: Bound, plugins: Plugins, publishing: Publishing) -> Handler:
    """The function behind all that stands in front of it. Code without an owner is the user's."""
    _check_idempotency(bound.subscription, plugins)
    call = bound.binding.call(bound.subscription, publishing)
    user_code = code_of(bound.binding.function)
    owners = {} if user_code is None else {user_code: ""}
    call = fold(call, bound.subscription, plugins, owners)
    return Handler(bound.subscription, call, owner_of=partial(raised_by, owners=owners))


def _observers(plugins: Plugins, surface: AppSurface) -> list[tuple[str, Observe]]:
    answers = plugins.ask("observe_events", app=surface)
    for answer in answers:
        if not callable(answer.value):
            raise PluginError(answer.plugin, f"observe_events returned {answer.value!r}: return a function, or None")
    return [(answer.plugin, answer.value) for answer in answers]


class AppSurface:
    """An app as its plugins see it (hooks.surface.Surface)."""

    def __init__(
        self,
        app: TwoPhases,
        settings: Settings,
        subscriptions: Sequence[Subscription],
        *,
        publishing: Publishing,
        periodic: Periodic,
        plugins: Plugins,
        snapshot: Callable[[], AppSnapshot],
    ) -> None:
        self._app, self._settings, self._publishing = app, settings, publishing
        self._periodic, self._plugins = periodic, plugins
        self.subscriptions: Sequence[Subscription] = tuple(subscriptions)
        self.snapshot = snapshot
        self.observers: list[tuple[str, Observe]] = []
        self._stores: list[Answer] | None = None

    @property
    def name(self) -> str:
        return self._app.name

    @property
    def version(self) -> str:
        return self._settings.app.version

    def options(self, table: type[T]) -> T:
        return self._settings.options(table)

    def provider(self, what: type[Any] | str) -> Callable[[], Any]:
        container = declared_of(self._app).container
        if container is None:
            raise LookupError(f"{what!r}: the app has no container, RocketApp(container=...)")
        return ContainerProviders(container).provider(what)

    def every(self, seconds: float, call: Callable[[], None]) -> None:
        self._periodic.add(seconds, call)

    def observe(self, event: Event) -> None:
        """To every observer; none of them can disturb the engine or another one."""
        for plugin, observer in self.observers:
            try:
                observer(event)
            except Exception:
                log.exception("plugin %s failed at the event %r", plugin, event)

    def idempotency_store(self) -> IdempotencyStore | None:
        if self._stores is None:
            self._stores = self._plugins.ask("idempotency_store", app=self)
        return self._stores[-1].value if self._stores else None

    async def publish(self, topic: str, body: Any, **options: Unpack[PublishOptions]) -> SendResult:
        return await self._publishing.publish(topic, body, **options)
