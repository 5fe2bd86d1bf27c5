"""A plugin sees what the running app does, and nothing before the start."""

from __future__ import annotations

import asyncio

from rocketapp import Message, RocketApp, hookimpl
from rocketapp.hooks.surface import Surface
from rocketapp.model.snapshot import AppSnapshot
from rocketapp.model.stats import HandlerStats
from tests.unit.app.test_whole import Run, run

__all__ = ["run"]


class Looking:
    """Keeps the surface for the test."""

    app: Surface
    early: AppSnapshot

    @hookimpl
    def app_setup(self, app: Surface) -> None:
        self.app, self.early = app, app.snapshot()


async def test_a_snapshot_tells_queues_counters_leases_and_reasons(run: Run) -> None:
    looking = Looking()
    app = RocketApp("shop", plugins=[looking])
    entered, go_on = asyncio.Event(), asyncio.Event()

    @app.subscribe("orders")
    async def settle(message: Message) -> None:
        if message.body == b"slow":
            entered.set()
            await go_on.wait()

    @app.subscribe("stock", group="store", orderly=True)
    async def move(message: Message) -> None: ...

    @app.on_startup
    async def open_shop(app: RocketApp) -> None:
        for body in ("1", "slow"):
            await app.publish("orders", body)
        await app.publish("stock", "tea")

    lifecycle = await run(app)
    await entered.wait()
    async with asyncio.timeout(20):
        while lifecycle.counters.handled < 2:  # noqa: ASYNC110 - a counter has no event to wait for
            await asyncio.sleep(0.01)
    app.pause("stock", reason="counting")
    assert looking.early.groups == ()
    now = looking.app.snapshot()
    shop, store = sorted(now.groups, key=lambda group: group.group)
    assert [(group.group, group.cluster, group.members) for group in (shop, store)] == [
        ("shop", "", 1),
        ("store", "", 1),
    ]
    assert shop.client_id == store.client_id != ""
    assert shop.pulls > 0
    (handler,) = shop.handlers
    assert (handler.topic, handler.stats) == ("orders", HandlerStats(handled=1))
    busy = [queue for queue in shop.queues if queue.unfinished]
    assert [(queue.queue.topic, queue.unfinished, queue.lag, queue.lease) for queue in busy] == [
        ("orders", 1, 1, "none")
    ]
    assert now.cache_bytes == busy[0].unfinished_bytes > 0
    locked = [queue for queue in store.queues if queue.queue.topic == "stock"]
    assert {(queue.lease, queue.standing_still) for queue in locked} == {("held", "paused: counting")}
    go_on.set()
