"""What `app.adjust` refuses, and that it holds from handlers, threads and functions of the start."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rocketapp import Message, RocketApp, SetupError
from rocketapp.app.declare.changes import LimitChange
from rocketapp.app.declare.registry import ConsumedGroup
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.modes.sink import Sink
from rocketapp.model.subscription import SubscriptionData
from rocketapp.testing import TestApp
from tests.unit.app.parts import Diary, Looking, container_of, lifecycle_of


def app_of() -> RocketApp:
    app = RocketApp("shop", container=container_of(Diary()))

    @app.subscribe("orders", group="orders")
    @app.subscribe("popped", group="popped", mode="pop")
    async def settle(message: Message) -> None: ...

    @app.subscribe("turns", group="turns", orderly=True, batch=5)
    async def take_turns(messages: list[Message]) -> None: ...

    @app.subscribe("stock", group="reports")
    def count(message: Message) -> None: ...

    return app


WRONG: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "nothing": ((), {}, "give at least one of batch, concurrency, pop_batch_size"),
    "no name": (([],), {"concurrency": 1}, "no handler of this app has the topic []: known are"),
    "a topic": (("order",), {"concurrency": 1}, "has the topic 'order': did you mean orders?"),
    "too few calls": (("orders",), {"concurrency": 0}, "concurrency=0 is out of bounds"),
    "too many threads": ((), {"concurrency": 1001}, "from 1 to 1000 for a sync handler: tests.unit.app.declare"),
    "too many messages": (("orders",), {"queue_max_messages": 70_000}, "70000 is above the most, 65535"),
    "a text": (("orders",), {"pull_interval": "1"}, "pull_interval='1': '1' is text, not a number"),
    "no rate": (("orders",), {"rate": 5}, "orders has no rate: change concurrency, pull"),
    "a popped topic": (
        ("popped",),
        {"queue_max_messages": 5},
        "popped has no queue_max_messages: change concurrency",
    ),
    "a pulled topic": (("orders",), {"pop_batch_size": 5}, "orders has no pop_batch_size: change concurrency"),
    "no batch": (("orders",), {"batch": 5}, "topic_max_messages, or declare it"),
    "an endless batch": (("turns",), {"batch": 0}, "batch=0 is out of bounds"),
    "a span in order": (
        ("turns",),
        {"queue_max_span": 9, "batch": 2},
        "turns has no queue_max_span: change batch",
    ),
    "too short": (("popped",), {"pop_invisible_time": 4.0}, "pop_invisible_time=4.0: 4.0 is below the least, 5"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_what_cannot_be_changed_is_refused_in_one_line(what: str) -> None:
    arguments, limits, text = WRONG[what]
    app = app_of()
    lifecycle = lifecycle_of(app)
    await lifecycle.start()
    with pytest.raises(SetupError) as caught:
        app.adjust(*arguments, **limits)
    await lifecycle.stop(asyncio.Event())
    assert text in str(caught.value)
    assert "test_adjusting.py" in str(caught.value) and "\n" not in str(caught.value)


def test_a_plugin_that_consumes_a_topic_has_its_own_pace() -> None:
    change = LimitChange(topic="orders", group=None, values={"rate": 1.0, "queue_max_messages": 9}, place="app.py:1")
    sink = Sink(new_writer=cast("Any", None), max_messages=5)
    topic = ConsumedTopic("orders", "last", 16, (), SubscriptionData("orders"), sink=sink)
    with pytest.raises(SetupError, match="orders has no queue_max_messages, rate"):
        change.by_group([ConsumedGroup("", "shop", (topic,))])


def test_before_the_start_and_for_other_names_it_is_refused() -> None:
    with pytest.raises(SetupError, match="app 'shop' is not running: set limits in the settings, or at subscribe"):
        app_of().adjust("orders", concurrency=5)
    with pytest.raises(TypeError, match=r"takes no 'pull_batch': did you mean pull_batch_size\?"):
        app_of().adjust("orders", pull_batch=5)  # type: ignore[call-arg]


async def test_functions_of_the_start_and_handlers_in_threads_change_limits() -> None:
    looking = Looking()
    app = RocketApp("shop", plugins=[looking])

    @app.on_startup
    async def begin() -> None:
        app.adjust(concurrency=3, queue_max_messages=50)

    @app.subscribe("orders", start="first")
    def slower(message: Message) -> None:
        app.adjust("orders", concurrency=1, queue_max_messages=None)

    @app.subscribe("stock", start="first")
    async def other(message: Message) -> None: ...

    async with TestApp(app) as t:
        (group,) = looking.app.snapshot().groups
        both = {"concurrency": 3, "queue_max_messages": 50}
        retries = {"queue_max_messages": 50}
        assert group.adjusted == {"orders": both, "stock": both, "%RETRY%shop": retries}
        await t.publish("orders", b"1")
        await t.settle()
        (group,) = looking.app.snapshot().groups
        assert group.adjusted == {"orders": {"concurrency": 1}, "stock": both, "%RETRY%shop": retries}
