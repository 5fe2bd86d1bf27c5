"""Everything that is built before anything connects: observers, chains, groups, the container.

Errors of plugins and declarations come from here, so that nothing has to be undone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import NamedTuple

from rocketapp.app.call.chain import fold
from rocketapp.app.call.policies import with_policies
from rocketapp.app.call.signature import Kind
from rocketapp.app.declare.phases import TwoPhases, declared_of
from rocketapp.app.declare.registry import Bound, GroupPlan, TopicPlan
from rocketapp.app.publish.publishing import Publishing
from rocketapp.app.run.allocations import allocation_of
from rocketapp.app.run.container import Wiring
from rocketapp.app.run.offset_stores import check_clusters, offset_store_of
from rocketapp.app.run.parts import GivenParts
from rocketapp.app.run.periodic import Periodic
from rocketapp.app.run.remote_calls import connections
from rocketapp.app.run.surface import AppSurface
from rocketapp.app.run.ways import plugged_in
from rocketapp.app.settings.settings import Settings
from rocketapp.client.access import tls_of
from rocketapp.clock import Clock
from rocketapp.consumer.crashes import Crashes
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.workers.threads import MakeThreads
from rocketapp.errors import SetupError
from rocketapp.hooks.blame import code_of, raised_by
from rocketapp.hooks.keys import keys_of
from rocketapp.hooks.manager import Plugins
from rocketapp.model.handler_kind import kind_of
from rocketapp.model.snapshot import AppSnapshot
from rocketapp.model.subscription import Subscription
from rocketapp.transport.stream import Dial
from rocketapp.transport.web import ReadUrl, read_url


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

    @property
    def shared(self) -> list[PlannedConsumer]:
        """The groups whose members share the queues: all but broadcast ones."""
        return [planned for planned in self.groups if not planned.topics[0].broadcast]


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
    worker: int | None = None,
    read_url: ReadUrl = read_url,
) -> Assembly:
    """`publishing`: for handlers that publish. Raises SetupError, PluginError or ConfigError."""
    declared = declared_of(app)
    group = settings.app.group or app.name
    subscriptions = with_policies(declared.registry.subscriptions(group, settings.consumer), plugins, settings.options)
    surface = AppSurface(
        app, settings, subscriptions, publishing=publishing, periodic=periodic, plugins=plugins, snapshot=snapshot
    )
    given = GivenParts(
        settings=settings,
        observe=surface.observe,
        dial=dial,
        clock=clock,
        random=random,
        threads=threads,
        new_connection=connections(plugins, surface),
        crashes=crashes,
        worker=worker,
        tls=tls_of(settings.client),
        allocation=allocation_of(settings.consumer, plugins, surface),
        read_url=read_url,
        offset_store=offset_store_of(plugins, surface),
    )
    wiring = Wiring(declared.container, given)
    version = int(wiring.clock.now() * 1000)
    groups = tuple(
        PlannedConsumer(plan, tuple(_consumed(topic, plugins, publishing) for topic in plan.topics))
        for plan in declared.registry.plans(subscriptions, version=version)
    )
    assembly = Assembly(groups, surface, wiring)
    check_clusters(wiring.offset_store, (planned.plan.cluster for planned in assembly.shared))
    return assembly


def _consumed(plan: TopicPlan, plugins: Plugins, publishing: Publishing) -> ConsumedTopic:
    first = plan.bound[0].subscription
    handlers = tuple(handler_of(one, plugins, publishing) for one in plan.bound)
    subscriptions = [one.subscription for one in plan.bound]
    way = plugged_in(plugins, subscriptions) if kind_of(first).by_message else None
    return ConsumedTopic(
        topic=plan.topic,
        start=first.start,
        retries=first.retries,
        handlers=handlers,
        data=plan.data,
        plugged_in=way,
        broadcast=first.broadcast,
    )


def _check_idempotency(subscription: Subscription, plugins: Plugins) -> None:
    """A handler that asks for it and would not get it handles copies unseen."""
    wanted = subscription.idempotent
    if wanted and not getattr(wanted, "keeps_marks", True):
        problem = f"idempotent= needs {wanted!r}, which is not among the app's plugins: RocketApp(plugins=[...])"
        raise SetupError(subscription.place, problem)
    if wanted and not getattr(wanted, "keeps_marks", False) and "idempotency" not in plugins.names():
        problem = "idempotent= needs the plugin idempotency, which is disabled or not installed: enable it"
        raise SetupError(subscription.place, problem)


def handler_of(bound: Bound, plugins: Plugins, publishing: Publishing) -> Handler:
    """The function behind all that stands in front of it. Code without an owner is the user's."""
    _check_idempotency(bound.subscription, plugins)
    arguments = bound.binding.arguments or ()
    if any(argument.kind is Kind.PROVIDER for argument in arguments):
        from rocketapp.app.inject.circles import refuse_circles  # with the container's library

        refuse_circles(arguments, bound.subscription.place)
    call = bound.binding.call(bound.subscription, publishing)
    # What is raised below the plugins' wrappers is not theirs, also where the function itself has returned.
    users = [call, bound.binding.function]
    if callable(bound.subscription.idempotent):
        users.append(keys_of(bound.subscription, bound.subscription.idempotent))
    owners = {code: "" for code in map(code_of, users) if code is not None}
    call = fold(call, bound.subscription, plugins, owners)
    return Handler(
        bound.subscription, call, owner_of=partial(raised_by, owners=owners), decisions=bound.binding.decisions
    )
