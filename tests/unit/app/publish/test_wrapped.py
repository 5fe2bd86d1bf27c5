"""Publish wrappers of plugins: folded once, outermost last, and what fails is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from rocketapp import RocketApp, SendRefused, SendResult, SetupError
from rocketapp.app.run.lifecycle import Lifecycle
from rocketapp.plugin import Outgoing, PluginError, PublishCall, PublishWrapper, Sending, Surface, hookimpl
from tests.unit.app.parts import Diary, container_of, lifecycle_of


class Stamping:
    """Adds a property to every message, and notes every call."""

    def __init__(self, diary: Diary, stamp: str = "stamped") -> None:
        self.diary, self.stamp = diary, stamp

    @hookimpl
    def publish_wrapper(self, app: Surface) -> PublishWrapper:
        self.diary.note(f"{self.stamp}: asked by {app.name}")

        def wrap(call: PublishCall) -> PublishCall:
            async def stamping(sending: Sending) -> Sequence[SendResult]:
                self.diary.note(f"{self.stamp}: {sending.kind} of {len(sending.messages)} to {sending.cluster!r}")
                return await call(replace(sending, messages=[self.stamped(one) for one in sending.messages]))

            return stamping

        return wrap

    def stamped(self, message: Outgoing) -> Outgoing:
        return replace(message, body=message.body + f" {self.stamp}".encode())


class Other(Stamping):
    """The same under another name."""


def wrapping(built: Any) -> Any:
    """A plugin whose wrapper builds this."""

    class Wrapping:
        @hookimpl
        def publish_wrapper(self) -> Any:
            return lambda call: built(call) if callable(built) else built

    return Wrapping


@asynccontextmanager
async def running(diary: Diary, *plugins: object, **more: Any) -> AsyncIterator[tuple[RocketApp, Lifecycle]]:
    app = RocketApp("shop", container=container_of(diary), plugins=plugins, **more)
    lifecycle = lifecycle_of(app)
    await lifecycle.start()
    diary.lines.clear()
    yield app, lifecycle
    await lifecycle.stop(asyncio.Event())


async def test_every_way_to_publish_goes_through_the_wrapper() -> None:
    diary = Diary()
    async with running(diary, Stamping(diary), clusters={"eu": "eu:1"}) as (app, _):
        assert (await app.publish("orders", "a")).queue_offset == 0
        assert [one.queue_offset for one in await app.publish_many("orders", ["b", "c"], cluster="eu")] == [0, 1]
        assert await app.publish_one_way("orders", "d") is None
        await asyncio.to_thread(app.publish_sync, "orders", "e")
    assert diary.lines[:9] == [
        "stamped: send of 1 to ''",
        "send orders a stamped to h:1",
        "stamped: many of 2 to 'eu'",
        "send orders b stamped to eu:1",
        "send orders c stamped to eu:1",
        "stamped: one_way of 1 to ''",
        "send orders d stamped to h:1",
        "stamped: send of 1 to ''",
        "send orders e stamped to h:1",
    ]


async def test_the_last_registered_wrapper_is_outermost() -> None:
    diary = Diary()
    async with running(diary, Stamping(diary, "inner"), Other(diary, "outer")) as (app, _):
        await app.publish("orders", "a")
    assert "send orders a outer inner to h:1" in diary.lines


async def test_a_wrapper_may_send_to_another_cluster() -> None:
    diary = Diary()

    def built(call: PublishCall) -> PublishCall:
        return lambda sending: call(replace(sending, cluster="eu" if sending.cluster == "" else "no"))

    async with running(diary, wrapping(built), clusters={"eu": "eu:1"}) as (app, _):
        await app.publish("orders", "a")
        with pytest.raises(SetupError, match="cluster='no' is unknown"):
            await app.publish("orders", "a", cluster="eu")
    assert "send orders a to eu:1" in diary.lines


async def test_plugins_are_asked_once_per_start_and_before_anything_connects() -> None:
    diary = Diary()
    lifecycle = lifecycle_of(RocketApp("shop", container=container_of(diary), plugins=[Stamping(diary)]))
    await lifecycle.start()
    assert diary.lines[0] == "stamped: asked by shop"
    assert diary.lines.count("stamped: asked by shop") == 1
    await lifecycle.stop(asyncio.Event())


async def test_a_plugin_that_declines_stands_in_front_of_no_publish() -> None:
    class Declines:
        @hookimpl
        def publish_wrapper(self) -> None: ...

    app = RocketApp("shop", container=container_of(Diary()), plugins=[Declines])
    lifecycle = lifecycle_of(app)
    before = lifecycle.send
    await lifecycle.start()
    assert lifecycle.send is before
    await lifecycle.stop(asyncio.Event())


async def test_what_the_producer_raises_reaches_the_caller_as_it_is() -> None:
    diary = Diary()
    diary.failing["send orders a stamped to h:1"] = SendRefused("orders", "no route")
    diary.failing["send orders b stamped to h:1"] = KeyError("a defect of the engine")
    async with running(diary, Stamping(diary)) as (app, _):
        with pytest.raises(SendRefused, match="no route"):
            await app.publish("orders", "a")
        with pytest.raises(KeyError):
            await app.publish("orders", "b")


async def test_a_wrapper_that_loses_results_never_makes_a_message_look_stored() -> None:
    def built(call: PublishCall) -> PublishCall:
        async def swallowing(sending: Sending) -> Any:
            return [] if sending.kind == "many" else None

        return swallowing

    async with running(Diary(), wrapping(built)) as (app, _):
        with pytest.raises(PluginError, match="Wrapping: publish_wrapper returned None for 1 messages"):
            await app.publish("orders", "a")
        with pytest.raises(PluginError, match="returned 0 results for 2 messages"):
            await app.publish_many("orders", ["a", "b"])


@pytest.mark.parametrize(("built", "what"), [(5, "built 5, which cannot be called"), ({}.pop, "raised KeyError")])
async def test_a_wrapper_that_cannot_be_built_stops_the_start(built: Any, what: str) -> None:
    diary = Diary()
    app = RocketApp("shop", container=container_of(diary), plugins=[wrapping(built)])
    with pytest.raises(PluginError, match=what):
        await lifecycle_of(app).start()
    assert diary.lines == []
