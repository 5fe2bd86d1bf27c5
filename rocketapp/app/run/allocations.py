"""The allocation strategy of an app: one of ours or a plugin's, chosen by `consumer.allocation`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.errors import ConfigError, PluginError
from rocketapp.hooks.manager import HookResult, Plugins
from rocketapp.hooks.surface import Surface
from rocketapp.state.allocation.average import AVERAGE, Average
from rocketapp.state.allocation.strategy import Allocation

# A strategy is imported when the settings name it: every start would pay for all of them.
if TYPE_CHECKING:
    from rocketapp.state.allocation.by_config import ByConfig
    from rocketapp.state.allocation.consistent_hash import ConsistentHash
    from rocketapp.state.allocation.machine_room import ByMachineRoom
    from rocketapp.state.allocation.nearby import Nearby

log: logging.Logger = logging.getLogger("rocketapp.app")
_OPTION = "consumer.allocation"


def allocation_of(config: ConsumerConfig, plugins: Plugins, surface: Surface) -> Allocation:
    """The one that the settings name.

    Raises ConfigError for an unknown name and for what the strategy lacks, PluginError for a wrong answer of a plugin.
    """
    ours = _ours(config)
    theirs: dict[str, Allocation] = {}
    for answer in plugins.ask("allocation_strategy", app=surface):
        name = _name_of(answer)
        if name.upper() in ours or name in theirs:
            raise PluginError(answer.plugin, f"allocation_strategy: another strategy is named {name!r} already")
        theirs[name] = answer.value
    return named(config, theirs)


def named(config: ConsumerConfig, theirs: Mapping[str, Allocation] | None = None) -> Allocation:
    """The one that the settings name, of ours and those of plugins. Raises ConfigError."""
    theirs, ours, wanted = theirs or {}, _ours(config), config.allocation.strip()
    if wanted in theirs:
        return theirs[wanted]
    if (make := ours.get(wanted.upper())) is None:
        raise ConfigError(_OPTION, f"{wanted!r} is not one of {', '.join([*ours, *theirs])}")
    return make()


def tell_allocation(allocation: Allocation, groups: Sequence[str]) -> None:
    """Log a choice that is not the usual one: a member with another would consume queues twice, or not at all."""
    if not groups or allocation.name == AVERAGE.name:
        return
    names = ", ".join(dict.fromkeys(groups))
    log.info("queues are shared by %s (consumer.allocation), as by all members of %s", allocation.name, names)


def _ours(config: ConsumerConfig) -> dict[str, Callable[[], Allocation]]:
    by_name: dict[str, Callable[[], Allocation]] = {
        "AVG": Average,
        "AVG_BY_CIRCLE": _by_circle,
        "CONSISTENT_HASH": partial(_consistent_hash, config),
    }
    nearby = {f"MACHINE_ROOM_NEARBY-{name}": partial(_nearby, config, make) for name, make in by_name.items()}
    return {
        **by_name,
        "CONFIG": partial(_by_config, config),
        "MACHINE_ROOM": partial(_by_machine_room, config),
        **nearby,
    }


def _by_circle() -> Allocation:
    from rocketapp.state.allocation.by_circle import ByCircle

    return ByCircle()


def _consistent_hash(config: ConsumerConfig) -> ConsistentHash:
    from rocketapp.state.allocation.consistent_hash import ConsistentHash

    return ConsistentHash(config.virtual_nodes)


def _by_config(config: ConsumerConfig) -> ByConfig:
    from rocketapp.state.allocation.by_config import ByConfig, parse_queue

    if not config.allocation_queues:
        raise ConfigError(_OPTION, "CONFIG needs consumer.allocation_queues: this process's queues, topic@broker:id")
    try:
        return ByConfig(tuple(map(parse_queue, config.allocation_queues)))
    except ValueError as error:
        raise ConfigError("consumer.allocation_queues", str(error)) from None


def _by_machine_room(config: ConsumerConfig) -> ByMachineRoom:
    from rocketapp.state.allocation.machine_room import ByMachineRoom

    if not config.machine_rooms:
        raise ConfigError(_OPTION, "MACHINE_ROOM needs consumer.machine_rooms: what precedes @ in names of brokers")
    return ByMachineRoom(frozenset(config.machine_rooms))


def _nearby(config: ConsumerConfig, make_inner: Callable[[], Allocation]) -> Nearby:
    from rocketapp.state.allocation.nearby import Nearby

    of_broker = _finder("consumer.broker_room", config.broker_room)
    return Nearby(make_inner(), of_broker, _finder("consumer.member_room", config.member_room))


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


def _name_of(answer: HookResult) -> str:
    name = getattr(answer.value, "name", None)
    if not isinstance(name, str) or not name or not callable(getattr(answer.value, "allocate", None)):
        problem = f"allocation_strategy returned {answer.value!r}: return an object with name and allocate(), or None"
        raise PluginError(answer.plugin, problem)
    return name
