"""The strategy is chosen by name: one of ours with what it needs, or a plugin's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from rocketapp import ConfigError
from rocketapp.app.run.extensions import allocation_of
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.hooks.manager import Plugins
from rocketapp.model.message_queue import MessageQueue
from rocketapp.plugin import Allocation, PluginError, Surface, hookimpl

QUEUE = MessageQueue("orders", "idc1@b", 0)
NOWHERE = cast(Surface, None)


class Newest:
    """Everything to the member that comes last."""

    name = "newest"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        return queues if me == members[-1] else ()


class Gives:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    @hookimpl
    def allocation_strategy(self) -> Any:
        return self._answer


def chosen(*plugins: object, **options: Any) -> Allocation:
    registered = Plugins()
    for number, plugin in enumerate(plugins):
        registered.register(plugin, f"plugin{number}")
    return allocation_of(ConsumerConfig(**options), registered, NOWHERE)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "AVG"),
        ({"allocation": "avg_by_circle"}, "AVG_BY_CIRCLE"),
        ({"allocation": "CONSISTENT_HASH", "virtual_nodes": 50}, "CONSISTENT_HASH"),
        ({"allocation": "CONFIG", "allocation_queues": ("orders@b:0",)}, "CONFIG"),
        ({"allocation": "MACHINE_ROOM", "machine_rooms": ("idc1",)}, "MACHINE_ROOM"),
        (
            {"allocation": "MACHINE_ROOM_NEARBY-AVG", "broker_room": "^[^@]+", "member_room": "@([^#]+)#"},
            "MACHINE_ROOM_NEARBY-AVG",
        ),
    ],
)
def test_ours_are_chosen_by_javas_names(options: dict[str, Any], name: str) -> None:
    assert chosen(**options).name == name


def test_rooms_are_found_by_expressions_in_the_names_of_brokers_and_members() -> None:
    strategy = chosen(allocation="MACHINE_ROOM_NEARBY-AVG", broker_room="^[^@]+", member_room="@([^#]+)#")
    members = ["10.0.0.1@idc1#7#1", "10.0.0.2@idc2#7#2"]
    assert list(strategy.allocate("g", members[0], [QUEUE], members)) == [QUEUE]
    assert list(strategy.allocate("g", members[1], [QUEUE], members)) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"allocation": "ROUND_ROBIN"}, "consumer.allocation: 'ROUND_ROBIN' is not one of AVG, AVG_BY_CIRCLE"),
        ({"allocation": "CONFIG"}, "CONFIG needs consumer.allocation_queues"),
        ({"allocation": "CONFIG", "allocation_queues": ("orders",)}, "consumer.allocation_queues: 'orders' is not"),
        ({"allocation": "MACHINE_ROOM"}, "MACHINE_ROOM needs consumer.machine_rooms"),
        ({"allocation": "MACHINE_ROOM_NEARBY-AVG", "broker_room": "."}, "NEARBY needs consumer.member_room"),
        (
            {"allocation": "MACHINE_ROOM_NEARBY-AVG", "broker_room": "("},
            r"consumer.broker_room: '\(' cannot be read as a regular",
        ),
    ],
)
def test_what_a_strategy_lacks_is_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        chosen(**options)


def test_a_plugins_strategy_is_used_when_the_settings_name_it() -> None:
    newest = Newest()
    assert chosen(Gives(newest), Gives(None), allocation="newest") is newest
    assert chosen(Gives(newest)).name == "AVG"
    with pytest.raises(ConfigError, match=r"'oldest' is not one of AVG, .*, newest"):
        chosen(Gives(newest), allocation="oldest")


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        (["AVG"], "plugin plugin0: allocation_strategy returned 'AVG': return an object with name and allocate"),
        ([Newest(), Newest()], "plugin plugin1: .*'newest' already"),
    ],
)
def test_a_wrong_answer_names_its_plugin(answers: list[Any], problem: str) -> None:
    with pytest.raises(PluginError, match=problem):
        chosen(*map(Gives, answers))
