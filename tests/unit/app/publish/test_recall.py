"""Taking a delayed message back from handlers of both kinds, and from a client without an app."""

from __future__ import annotations

import pytest

from rocketapp import Client, Context, Message, NotRecalled, RocketApp, SyncClient
from rocketapp.testing import TestApp
from rocketapp.testing.broker import serving
from rocketapp.wire.requests.recall import RecallHandle

HANDLE = RecallHandle("reminders", "broker-a", 1795169734001, "ID").encode()
"""Of a time that is over."""


def test_handlers_of_both_kinds_take_back_what_waits_and_hear_what_is_too_late() -> None:
    app = RocketApp("shop")
    said: dict[str, NotRecalled] = {}
    came: list[str] = []

    @app.subscribe("reminders")
    async def remind(message: Message) -> None:
        came.append(message.text())

    @app.subscribe("paid", tags="async")
    async def forget(message: Message) -> None:
        try:
            await app.recall("reminders", message.text(), timeout=2)
        except NotRecalled as error:
            said["async"] = error

    @app.subscribe("paid", tags="sync")
    def forget_too(message: Message) -> None:
        try:
            app.recall_sync("reminders", message.text())
        except NotRecalled as error:
            said["sync"] = error

    with TestApp(app) as t:
        waiting = [t.publish("reminders", name.encode(), delay=45) for name in ("one", "two", "three")]
        for tag, result in zip(("async", "sync"), waiting, strict=False):
            t.publish("paid", str(result.recall_handle).encode(), tag=tag)
        t.settle()
        assert (came, said) == (["three"], {})
        for tag in ("async", "sync"):
            t.publish("paid", str(waiting[2].recall_handle).encode(), tag=tag)
        t.settle()
    assert said.keys() == {"async", "sync"}
    assert all("reminders" in str(error) and "604" in str(error) and not error.perhaps for error in said.values())


def test_a_handler_takes_back_what_it_has_published_to_the_cluster_of_its_message() -> None:
    app = RocketApp("shop", clusters={"eu": "127.0.0.2:9876"}, cluster="eu")
    came: list[str] = []

    @app.subscribe("reminders")
    async def remind(message: Message) -> None:
        came.append(message.text())

    @app.subscribe("paid")
    async def forget(message: Message) -> None:
        sent = await app.publish("reminders", message.body, delay=45)
        await app.recall("reminders", str(sent.recall_handle))

    @app.subscribe("paid-in-a-shop")
    def forget_too(message: Message, context: Context) -> None:
        sent = context.publish_sync("reminders", message.body, delay=45)
        context.recall_sync("reminders", str(sent.recall_handle))

    with TestApp(app) as t:
        t.publish("paid", "1", cluster="eu")
        t.publish("paid-in-a-shop", "2", cluster="eu")
        t.settle()
        assert (came, t.retried, len(t.handled)) == ([], [], 2)


async def test_clients_take_back_too_and_name_what_is_not_a_handle() -> None:
    with serving() as address:
        async with Client(address) as client:
            result = await client.publish("reminders", b"1", delay=1)
            with pytest.raises(NotRecalled, match="604"):
                await client.recall("reminders", HANDLE)
            with pytest.raises(TypeError, match="recall_handle of a SendResult"):
                await client.recall("reminders", result.recall_handle)  # type: ignore[arg-type]


def test_a_client_without_a_loop_takes_back_too() -> None:
    with serving() as address, SyncClient(address) as client:
        client.publish("reminders", b"1")
        with pytest.raises(NotRecalled, match="604"):
            client.recall("reminders", HANDLE, timeout=2)
