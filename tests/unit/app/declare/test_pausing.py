"""What `app.pause` and `app.resume` refuse, and which topics they mean."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from rocketapp import Message, RocketApp, SetupError
from tests.unit.app.parts import Diary, NotedClient, container_of, lifecycle_of


def app_of(diary: Diary | None = None) -> RocketApp:
    app = RocketApp("shop", container=container_of(diary or Diary()))

    @app.subscribe("orders")
    @app.subscribe("stock", group="reports")
    async def settle(message: Message) -> None: ...

    return app


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "app.pause: needs a topic, a group= or a cluster="),
    "an empty topic": ({"topic": ""}, "no handler of this app has the topic '': known are orders, stock"),
    "a topic list": ({"topic": ["orders"]}, "no handler of this app has the topic ['orders']: did you mean orders?"),
    "an unknown topic": ({"topic": "order"}, "no handler of this app has the topic 'order': did you mean orders?"),
    "an unknown group": ({"group": "report"}, "no handler of this app has the group 'report': did you mean reports?"),
    "a topic of another group": (
        {"topic": "orders", "group": "reports"},
        "no handler of this app has the topic 'orders' in group 'reports': known are stock",
    ),
    "an unknown cluster": (
        {"topic": "orders", "cluster": "eu"},
        "no handler of this app has the cluster 'eu': known are ",
    ),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_pause_of_what_is_not_there_is_refused_with_the_nearest_name(what: str) -> None:
    arguments, text = WRONG[what]
    app = app_of()
    lifecycle = lifecycle_of(app)
    await lifecycle.start()
    with pytest.raises(SetupError) as caught:
        app.pause(**arguments)
    await lifecycle.stop(asyncio.Event())
    assert text in str(caught.value)
    assert "test_pausing.py" in str(caught.value)


async def test_before_the_start_an_unknown_name_is_refused_when_the_app_starts() -> None:
    app = app_of()
    app.pause("order")
    with pytest.raises(SetupError, match="did you mean orders"):
        await lifecycle_of(app).start()


async def test_a_topic_of_one_of_two_clusters_is_paused_resumed_and_adjusted_alone() -> None:
    diary = Diary()
    app = RocketApp("shop", container=container_of(diary), clusters={"eu": "h:1", "us": "h:2"})

    @app.subscribe("orders", cluster="eu")
    @app.subscribe("orders", cluster="us")
    @app.subscribe("stock")
    async def settle(message: Message) -> None: ...

    lifecycle = lifecycle_of(app)
    await lifecycle.start()
    diary.lines.clear()
    app.pause("orders", cluster="us", reason="moving")
    app.resume("orders", cluster="eu")
    app.adjust("orders", cluster="us", concurrency=3)
    app.pause(cluster="")
    app.resume("orders")
    assert diary.lines == [
        "orders pauses on us",
        "orders resumes on eu",
        "orders of us has {'concurrency': 3}",
        "stock pauses on ",
        "orders resumes on us",
        "orders resumes on eu",
    ]
    with pytest.raises(SetupError, match="the topic 'stock' in cluster 'eu': known are orders"):
        app.pause("stock", cluster="eu")
    await lifecycle.stop(asyncio.Event())


async def test_a_pause_that_comes_while_the_app_connects_holds_before_anything_is_consumed() -> None:
    diary = Diary()
    app = app_of(diary)

    class Connecting(NotedClient):
        async def start(self) -> None:
            app.pause("stock", "moving")
            await asyncio.to_thread(app.pause, "orders", "moving")
            with pytest.raises(SetupError, match="did you mean orders"):
                app.pause("order")
            await super().start()

    lifecycle = lifecycle_of(app, client=partial(Connecting, diary))
    await lifecycle.start()
    assert diary.lines.index("orders pauses on ") < diary.lines.index("consumer shop joins")
    assert diary.lines.index("stock pauses on ") < diary.lines.index("consumer reports joins")
    await lifecycle.stop(asyncio.Event())
