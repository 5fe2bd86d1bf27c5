"""A plugin sees what the running app does, and nothing before the start."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketapp import Message, RocketApp
from rocketapp.model.snapshot import AppSnapshot, HandlerStats
from rocketapp.plugin import Metric, PluginError, ReadMetrics, Surface, hookimpl
from rocketapp.testing import TestApp
from tests.unit.app.parts import Looking
from tests.unit.app.test_whole import Run, run

__all__ = ["run"]


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
    async with asyncio.timeout(60):
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
    assert {(queue.lease, queue.blocked) for queue in locked} == {("held", "paused: counting")}
    go_on.set()


class Measuring:
    """A plugin with a metric; told to, it fails."""

    problems: list[Exception]

    def __init__(self) -> None:
        self.problems = []

    @hookimpl
    def metrics(self) -> ReadMetrics:
        def read(now: AppSnapshot) -> list[Metric]:
            if self.problems:
                raise self.problems.pop()
            groups = (({"shop": "one"}, len(now.groups)),)
            return [Metric(name="shop.groups", kind="gauge", unit="{group}", meaning="Groups.", samples=groups)]

        return read


async def test_a_snapshot_has_what_plugins_measure_and_does_without_those_that_fail(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    looking, measuring = Looking(), Measuring()
    app = RocketApp("shop", plugins=[looking, measuring])

    @app.subscribe("orders")
    async def settle(message: Message) -> None: ...

    await run(app)
    assert [metric.samples for metric in looking.app.snapshot().metrics] == [(({"shop": "one"}, 1),)]
    measuring.problems.append(ValueError("broken"))
    assert looking.app.snapshot().metrics == ()
    assert "Measuring failed at its metrics: ValueError: broken" in caplog.text


async def test_a_hook_that_does_not_return_a_function_is_refused(run: Run) -> None:
    class Wrong:
        @hookimpl
        def metrics(self) -> Any:
            return 5

    with pytest.raises(PluginError, match="metrics returned 5: return a function, or None"):
        await run(RocketApp("shop", plugins=[Wrong()]))


def test_an_async_function_that_would_never_be_called_again_and_again_is_refused() -> None:
    class Looking:
        @hookimpl
        def app_setup(self, app: Surface) -> None:
            async def look() -> None: ...

            app.every(1, look)  # type: ignore[arg-type]

    app = RocketApp("shop", plugins=[Looking])
    with pytest.raises(PluginError, match="an async function would never run: give a plain `def`"), TestApp(app):
        pass
