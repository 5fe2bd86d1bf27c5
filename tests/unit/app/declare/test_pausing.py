"""What `app.pause` and `app.resume` refuse."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketapp import Message, RocketApp, SetupError
from tests.unit.app.parts import Diary, container_of, lifecycle_of


def app_of() -> RocketApp:
    app = RocketApp("shop", container=container_of(Diary()))

    @app.subscribe("orders")
    @app.subscribe("stock", group="reports")
    async def settle(message: Message) -> None: ...

    return app


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "app.pause needs a topic or a group="),
    "an empty topic": ({"topic": ""}, "topic='' is not a name"),
    "an empty reason": ({"topic": "orders", "reason": ""}, "reason='' is not a name"),
    "a topic list": ({"topic": ["orders"]}, "topic=['orders'] is not a name"),
    "an unknown topic": ({"topic": "order"}, "no handler of this app takes topic 'order': did you mean orders?"),
    "an unknown group": ({"group": "report"}, "no handler of this app is in group 'report': did you mean reports?"),
    "a topic of another group": (
        {"topic": "orders", "group": "reports"},
        "no handler of this app takes topic 'orders' in group 'reports': known are stock",
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
