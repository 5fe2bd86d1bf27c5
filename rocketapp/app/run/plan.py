"""Everything that is built before anything connects: observers, chains, groups, the container.

Errors of plugins and declarations come from here, so that nothing has to be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from rocketapp.app.call.chain import fold
from rocketapp.app.call.signature import Kind
from rocketapp.app.declare.phases import TwoPhases, declared_of
from rocketapp.app.declare.registry import Bound, ConsumedGroup, union_of
from rocketapp.app.publish.publishing import Publishing
from rocketapp.app.run.container import Wiring, World
from rocketapp.app.run.extensions import check_clusters, sink_of
from rocketapp.app.run.reading import policed_subscriptions
from rocketapp.app.run.surface import AppSurface, Periodic
from rocketapp.app.settings.settings import Settings
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.errors import SetupError
from rocketapp.hooks.blame import code_of, raised_by
from rocketapp.hooks.keys import keys_of
from rocketapp.hooks.manager import Plugins
from rocketapp.model.decisions import Decisions
from rocketapp.model.snapshot import AppSnapshot
from rocketapp.model.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts of one run."""

    groups: tuple[ConsumedGroup, ...]
    surface: AppSurface
    wiring: Wiring

    @property
    def shared(self) -> list[ConsumedGroup]:
        """The groups whose members share the queues: all but broadcast ones."""
        return [plan for plan in self.groups if not plan.topics[0].broadcast]


def assemble(
    app: TwoPhases,
    settings: Settings,
    world: World,
    plugins: Plugins,
    *,
    publishing: Publishing,
    periodic: Periodic,
    snapshot: Callable[[], AppSnapshot],
) -> Assembly:
    """`publishing`: for handlers that publish. Raises SetupError, PluginError or ConfigError."""
    declared = declared_of(app)
    subscriptions = policed_subscriptions(app, settings, plugins)
    surface = AppSurface(
        app, settings, subscriptions, publishing=publishing, periodic=periodic, plugins=plugins, snapshot=snapshot
    )
    wiring = Wiring(settings, world, plugins, surface, declared.container)
    bound, version = declared.registry.bound(subscriptions), int(wiring.clock.now() * 1000)
    assembly = Assembly(plans_of(bound, plugins, publishing, version=version), surface, wiring)
    check_clusters(wiring.offset_store, (plan.cluster for plan in assembly.shared))
    return assembly


def plans_of(
    bound: Iterable[Bound], plugins: Plugins, publishing: Publishing, *, version: int
) -> tuple[ConsumedGroup, ...]:
    """What is to be consumed; `version` is told to brokers (milliseconds since 1970)."""
    by_group: dict[tuple[str, str], dict[str, list[Bound]]] = {}
    for one in bound:
        topics = by_group.setdefault((one.subscription.cluster, one.subscription.group), {})
        topics.setdefault(one.subscription.topic, []).append(one)
    return tuple(
        ConsumedGroup(cluster, group, tuple(_consumed(same, plugins, publishing, version) for same in topics.values()))
        for (cluster, group), topics in by_group.items()
    )


def _consumed(bound: Sequence[Bound], plugins: Plugins, publishing: Publishing, version: int) -> ConsumedTopic:
    """One topic of a group, with the handlers that share its subscription."""
    subscriptions = [one.subscription for one in bound]
    first = subscriptions[0]
    handlers = tuple(handler_of(one, plugins, publishing) for one in bound)
    return ConsumedTopic(
        topic=first.topic,
        start=first.start,
        retries=first.retries,
        handlers=handlers,
        data=union_of(subscriptions, version),
        sink=sink_of(plugins, subscriptions) if bound[0].by_message else None,
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
    subscription, arguments = bound.subscription, bound.binding.arguments or ()
    _check_idempotency(subscription, plugins)
    if any(argument.kind is Kind.PROVIDER for argument in arguments):
        from rocketapp.app.inject import refuse_circles  # with the container's library

        refuse_circles(arguments, subscription.place)
    decisions = Decisions() if subscription.commit == "manual" else None
    call = bound.call(publishing, decisions)
    # What is raised below the plugins' wrappers is not theirs, also where the function itself has returned.
    users = [call, bound.binding.function]
    if callable(subscription.idempotent):
        users.append(keys_of(subscription, subscription.idempotent))
    owners = {code: "" for code in map(code_of, users) if code is not None}
    call = fold(call, subscription, plugins, owners)
    return Handler(subscription, call, owner_of=partial(raised_by, owners=owners), decisions=decisions)
