"""Where a call that runs for long stands: in a task or a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.watch.slow_calls import places_of_calls
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import subscription
from tests.unit.consumer.reports import OneCalled, Reports, message
from tests.unit.scripted import eventually

END = threading.Event()


def in_thread(_: Message) -> None:
    END.wait(10)


async def on_loop(_: Message) -> None:
    async def deeper() -> None:
        await asyncio.Event().wait()

    await deeper()


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    END.clear()
    yield
    END.set()


@pytest.mark.parametrize(("call", "offset"), [(in_thread, 1), (on_loop, 2)], ids=["thread", "loop"])
async def test_the_users_line_is_found_by_the_item(call: Any, offset: int) -> None:
    item = message(0)
    called = OneCalled(Handler(subscription("app:settle", is_async=call is on_loop), call), Reports())
    called.submit(item)
    place = f"test_places.py:{call.__code__.co_firstlineno + offset}"
    await eventually(lambda: places_of_calls().get(id(item)) == place)
    assert places_of_calls()[id(item)] == place
    END.set()
    await called.callers.stop()
    await eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith("handler")])


async def test_without_a_call_there_is_no_place() -> None:
    assert places_of_calls() == {}
