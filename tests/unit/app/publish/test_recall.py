"""Taking a delayed message back from handlers of both kinds, and from a client without an app."""

from __future__ import annotations

import pytest

from rocketapp import Client, Message, NotRecalled, RocketApp, SyncClient
from rocketapp.testing import TestApp
from rocketapp.testing.broker import serving
from rocketapp.wire.requests.recall import RecallHandle

HANDLE = RecallHandle("reminders", "broker-a", 1795169734001, "ID").encode()


def test_handlers_of_both_kinds_reach_the_broker_and_hear_what_it_says() -> None:
    app = RocketApp("shop")
    said: dict[str, NotRecalled] = {}

    @app.subscribe("paid", tags="async")
    async def forget(message: Message) -> None:
        try:
            await app.recall("reminders", HANDLE, timeout=2)
        except NotRecalled as error:
            said["async"] = error

    @app.subscribe("paid", tags="sync")
    def forget_too(message: Message) -> None:
        try:
            app.recall_sync("reminders", HANDLE)
        except NotRecalled as error:
            said["sync"] = error

    with TestApp(app) as t:
        t.publish("reminders", b"1")
        t.publish("paid", b"1", tag="async")
        t.publish("paid", b"1", tag="sync")
        t.settle()
    assert said.keys() == {"async", "sync"}
    assert all("reminders" in str(error) and "370" in str(error) and not error.perhaps for error in said.values())


async def test_clients_take_back_too_and_name_what_is_not_a_handle() -> None:
    with serving() as address:
        async with Client(address) as client:
            result = await client.publish("reminders", b"1", delay=1)
            with pytest.raises(NotRecalled, match="370"):
                await client.recall("reminders", HANDLE)
            with pytest.raises(TypeError, match="recall_handle of a SendResult"):
                await client.recall("reminders", result.recall_handle)  # type: ignore[arg-type]


def test_a_client_without_a_loop_takes_back_too() -> None:
    with serving() as address, SyncClient(address) as client:
        client.publish("reminders", b"1")
        with pytest.raises(NotRecalled, match="370"):
            client.recall("reminders", HANDLE, timeout=2)
