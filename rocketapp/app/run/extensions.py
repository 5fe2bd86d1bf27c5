"""What plugins add to the engine, collected once at start: an allocation strategy, an offset store, sinks, and wrappers
around publishing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.offsets.stores import OffsetStore
from rocketapp.errors import ConfigError, PluginError, SetupError
from rocketapp.hooks.hook_types import PublishCall, Sending
from rocketapp.hooks.manager import HookResult, Plugins
from rocketapp.hooks.surface import Surface
from rocketapp.model.outgoing import SendResult
from rocketapp.model.subscription import Subscription, kind_of
from rocketapp.state.allocation import (
    Allocation,
    Average,
    ByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    Nearby,
    parse_queue,
)

if TYPE_CHECKING:
    from rocketapp.consumer.modes.sink import Sink


_OPTION = "consumer.allocation"


def allocation_of(config: ConsumerConfig, plugins: Plugins, surface: Surface) -> Allocation:
    """The strategy that the settings name.

    Raises ConfigError for an unknown name or a missing option of the strategy, PluginError for a plugin's wrong answer.
    """
    theirs: dict[str, Allocation] = {}
    for answer in plugins.ask("allocation_strategy", app=surface):
        name = _name_of(answer)
        if name.upper() in _OURS or name in theirs:
            raise PluginError(answer.plugin, f"allocation_strategy: another strategy is named {name!r} already")
        theirs[name] = answer.value
    return named(config, theirs)


def named(config: ConsumerConfig, theirs: Mapping[str, Allocation] | None = None) -> Allocation:
    """The strategy that the settings name, of ours and of plugins. Raises ConfigError."""
    theirs, wanted = theirs or {}, config.allocation.strip()
    if wanted in theirs:
        return theirs[wanted]
    if (make := _OURS.get(wanted.upper())) is None:
        raise ConfigError(_OPTION, f"{wanted!r} is not one of {', '.join([*_OURS, *theirs])}")
    return make(config)


def _by_config(config: ConsumerConfig) -> ByConfig:
    if not config.allocation_queues:
        raise ConfigError(_OPTION, "CONFIG needs consumer.allocation_queues: this process's queues, topic@broker:id")
    try:
        return ByConfig(tuple(map(parse_queue, config.allocation_queues)))
    except ValueError as error:
        raise ConfigError("consumer.allocation_queues", str(error)) from None


def _by_machine_room(config: ConsumerConfig) -> ByMachineRoom:
    if not config.machine_rooms:
        raise ConfigError(_OPTION, "MACHINE_ROOM needs consumer.machine_rooms: what precedes @ in names of brokers")
    return ByMachineRoom(frozenset(config.machine_rooms))


def _nearby(make_inner: Make, config: ConsumerConfig) -> Nearby:
    of_broker = _finder("consumer.broker_room", config.broker_room)
    return Nearby(make_inner(config), of_broker, _finder("consumer.member_room", config.member_room))


def _finder(option: str, expression: str) -> Callable[[str], str]:
    if not expression:
        raise ConfigError(_OPTION, f"MACHINE_ROOM_NEARBY needs {option}: a regular expression that finds the room")
    try:
        return partial(_found, re.compile(expression))
    except re.error as error:
        raise ConfigError(option, f"{expression!r} cannot be read as a regular expression: {error}") from None


def _found(expression: re.Pattern[str], text: str) -> str:
    match = expression.search(text)
    if match is None:
        return ""
    return (match[1] if expression.groups else match[0]) or ""


Make = Callable[[ConsumerConfig], Allocation]
_SHARES: Mapping[str, Make] = {
    "AVG": lambda _: Average(),
    "AVG_BY_CIRCLE": lambda _: ByCircle(),
    "CONSISTENT_HASH": lambda config: ConsistentHash(config.virtual_nodes),
}
_OURS: Mapping[str, Make] = {
    **_SHARES,
    "CONFIG": _by_config,
    "MACHINE_ROOM": _by_machine_room,
    **{f"MACHINE_ROOM_NEARBY-{name}": partial(_nearby, make) for name, make in _SHARES.items()},
}
"""By the name that the settings have."""


def _name_of(answer: HookResult) -> str:
    name = getattr(answer.value, "name", None)
    if not isinstance(name, str) or not name or not callable(getattr(answer.value, "allocate", None)):
        answer.refuse("an object with name and allocate()")
    return name


_METHODS = ("open", "close", "take", "read", "write")


def offset_store_of(plugins: Plugins, surface: Surface) -> OffsetStore | None:
    """The offset store of a plugin, or None. Raises PluginError for a missing method, and for a second store."""
    answers = plugins.ask("offset_store", app=surface)
    for answer in answers:
        missing = [name for name in _METHODS if not callable(getattr(answer.value, name, None))]
        if missing:
            answer.refuse(f"an OffsetStore, this has no {', '.join(missing)}")
    if len(answers) > 1:
        raise PluginError(answers[1].plugin, f"offset_store: plugin {answers[0].plugin} keeps the offsets already")
    store: OffsetStore | None = answers[0].value if answers else None
    return store


def check_clusters(store: OffsetStore | None, clusters: Iterable[str]) -> None:
    """Raises SetupError for subscriptions on more than one cluster together with an offset store.

    A store identifies a queue by topic, broker and id, and clusters often name their brokers alike.
    """
    names = [cluster or "the unnamed one" for cluster in dict.fromkeys(clusters)]
    if store is not None and len(names) > 1:
        problem = f"an offset store keeps the offsets of one cluster, and handlers subscribe on {', '.join(names)}"
        raise SetupError("", f"{problem}: give each cluster an app of its own")


def sink_of(plugins: Plugins, subscriptions: Sequence[Subscription]) -> Sink | None:
    """The sink of a plugin for the topic of these subscriptions, or None. Raises PluginError."""
    found = [(one, answer) for one in subscriptions for answer in plugins.ask("sink", subscription=one)]
    if not found:
        return None
    from rocketapp.consumer.modes.sink import Sink

    subscription, answer = found[0]
    where = f"topic {subscription.topic!r} of {subscription.handler_name} ({subscription.place})"
    if len(found) > 1 and found[1][1].plugin != answer.plugin:
        raise PluginError(answer.plugin, f"sink: plugin {found[1][1].plugin} wants to consume {where} as well")
    if not callable(answer.value) and not isinstance(answer.value, Sink):
        answer.refuse("a function, a Sink")
    problems = (
        (len(subscriptions) > 1, "has other handlers in its group, by tag: leave one"),
        (kind_of(subscription).in_order, "is declared in order: remove that, a sink has its own order"),
        (subscription.broadcast, "is broadcast: remove that, a sink takes each message once"),
        (subscription.mode == "pop", 'has mode="pop": remove that, the queues of a sink are pulled'),
        (subscription.rate, f"has rate={subscription.rate}: remove that, a sink takes messages as they are pulled"),
    )
    for is_so, problem in problems:
        if is_so:
            raise PluginError(answer.plugin, f"sink: {where} {problem}")
    sink = answer.value if isinstance(answer.value, Sink) else Sink(new_writer=answer.value)
    return replace(sink, plugin=answer.plugin)


def fold_publish(call: PublishCall, plugins: Plugins, surface: Surface) -> PublishCall:
    """`call` inside the plugins' publish wrappers, the last registered outermost. Raises PluginError."""
    answers = plugins.ask_for_functions("publish_wrapper", app=surface)
    for answer in answers:
        call = answer.around(answer.value, call)
    return _outermost(call, ", ".join(answer.plugin for answer in answers)) if answers else call


def _outermost(call: PublishCall, plugins: str) -> PublishCall:
    """Checks that wrappers return one result for each message: otherwise nothing says that it is stored."""

    async def send(sending: Sending) -> Sequence[SendResult]:
        results = await call(sending)
        count = len(results) if isinstance(results, Sequence) else None
        if sending.kind != "one_way" and count != len(sending.messages):
            said = repr(results) if count is None else f"{count} results"
            raise PluginError(
                plugins, f"publish_wrapper returned {said} for {len(sending.messages)} messages: one each is needed"
            )
        return results

    return send
