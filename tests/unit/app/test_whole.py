"""A whole app on an embedded broker, in memory: what a user writes, from publish to outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from rocketapp import Context, Message, RocketApp
from rocketapp.app.declare.phases import declared_of
from rocketapp.app.run.lifecycle import Lifecycle
from rocketapp.app.run.wiring import Runtime
from rocketapp.app.settings import Settings
from rocketapp.clock import SystemClock
from rocketapp.config.app import AppConfig
from rocketapp.config.broker import BrokerConfig
from rocketapp.config.client import ClientConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.model.snapshot import HandlerStats
from rocketapp.plugin import hookimpl
from rocketapp.transport.memory import MemoryNetwork

Run = Callable[..., Awaitable[Lifecycle]]


class Order(msgspec.Struct):
    id: str


class Expect:
    """Collects what handlers saw; a test waits until all of it is there."""

    def __init__(self, *expected: Any) -> None:
        self.left, self.seen = sorted(expected), list[Any]()
        self.all = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, fact: Any) -> None:
        self._loop.call_soon_threadsafe(self._take, fact)

    def _take(self, fact: Any) -> None:
        self.seen.append(fact)
        if sorted(self.seen) == self.left:
            self.all.set()

    def wait_for(self, *expected: Any) -> None:
        """This is all there will be now."""
        self.left = sorted(expected)
        self.all.clear()

    async def wait(self) -> None:
        try:
            await asyncio.wait_for(self.all.wait(), 60)
        except TimeoutError:
            pytest.fail(f"expected {self.left}, seen {self.seen}")


@pytest.fixture
async def run() -> AsyncIterator[Run]:
    """Starts apps against one broker; both end with the test."""
    network, clock, started = MemoryNetwork(), SystemClock(), list[Lifecycle]()
    broker = EmbeddedBroker(
        config=BrokerConfig(listen="127.0.0.1:1"), memory=True, clock=clock, random=Random(1), observe=lambda _: None
    )
    address = await broker.start(network)

    async def start(app: RocketApp, client: Mapping[str, Any] = MappingProxyType({}), **consumer: Any) -> Lifecycle:
        settings = Settings(
            app=AppConfig(version="1.2"),
            client=ClientConfig(name_server=address, **client),
            consumer=ConsumerConfig(**{"suspend": 0.05, **consumer}),
        )
        lifecycle = Lifecycle(app, settings, Runtime(dial=network.dial, clock=clock, random=Random(2)))
        await lifecycle.start()
        started.append(lifecycle)
        return lifecycle

    yield start
    clean = [await lifecycle.stop(asyncio.Event()) for lifecycle in started]
    await broker.stop()
    assert all(clean)


async def settled(lifecycle: Lifecycle, wanted: HandlerStats) -> None:
    """Wait until the counters say so."""
    async with asyncio.timeout(60):
        while lifecycle.counters != wanted:  # noqa: ASYNC110 - a counter has no event to wait for
            await asyncio.sleep(0.01)


async def test_what_on_startup_publishes_is_handled_by_tag_type_and_kind(run: Run) -> None:
    app = RocketApp("shop")
    expect = Expect("paid 1", "rest 2", "moved tea", "rest in a thread")

    @app.subscribe("orders", tags="paid")
    async def settle(order: Order, message: Message, context: Context) -> None:
        assert (message.tag, message.keys, context.attempt) == ("paid", ["k"], 1)
        expect(f"paid {order.id}")

    @app.subscribe("orders")
    def rest(order: Order) -> None:
        expect(f"rest {order.id}")
        if order.id == "2":
            app.publish_sync("orders", Order("in a thread"))

    @app.subscribe("stock", orderly=True)
    async def move(item: str) -> None:
        expect(f"moved {item}")

    @app.on_startup
    async def open_shop(app: RocketApp) -> None:
        await app.publish("orders", Order("1"), tag="paid", keys=["k"])
        await app.publish("orders", Order("2"), tag="refunded")
        await app.publish("stock", "tea", order_key="tea")

    lifecycle = await run(app)
    await expect.wait()
    await settled(lifecycle, HandlerStats(handled=4))


async def test_a_body_that_inflates_beyond_the_limit_is_a_dead_letter(run: Run) -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    async def settle(text: str) -> None: ...

    @app.on_startup
    async def open_shop(app: RocketApp) -> None:
        await app.publish("orders", "0" * 10_000)

    lifecycle = await run(app, client={"max_inflated_bytes": 9_999})
    await settled(lifecycle, HandlerStats(dead_lettered=1))
    assert lifecycle.counters == HandlerStats(dead_lettered=1)


async def test_an_undecodable_payload_is_dead_at_once_and_filters_count(run: Run) -> None:
    app = RocketApp("shop")
    expect = Expect("2")

    class Odd:
        @hookimpl
        def message_filter(self) -> Any:
            return lambda message: b"3" not in message.body

    declared_of(app).plugins.register(Odd())

    @app.subscribe("orders")
    def settle(order: Order) -> None:
        expect(order.id)

    lifecycle = await run(app)
    await app.publish_many("orders", [b"no order", Order("2"), Order("3")])
    await expect.wait()
    await settled(lifecycle, HandlerStats(handled=2, dead_lettered=1, filtered=1))
    assert lifecycle.counters == HandlerStats(handled=2, dead_lettered=1, filtered=1)


async def test_a_batch_is_handed_over_as_payloads(run: Run) -> None:
    app = RocketApp("shop")
    handed = list[list[str]]()

    @app.subscribe("clicks", batch=10, batch_wait=0.05)
    async def count(orders: list[Order]) -> None:
        handed.append([order.id for order in orders])

    lifecycle = await run(app)
    await app.publish_many("clicks", [*(Order(str(number)) for number in range(20)), b"broken"])
    await settled(lifecycle, HandlerStats(handled=20, dead_lettered=1))
    assert sorted(flat(handed), key=int) == [str(number) for number in range(20)]
    assert max(map(len, handed)) > 1


def flat(lists: Iterable[Iterable[str]]) -> list[str]:
    return [one for each in lists for one in each]


async def test_a_sync_handler_pauses_its_topic_from_its_thread_until_it_is_resumed(run: Run) -> None:
    app, expect = RocketApp("shop"), Expect("one")

    @app.subscribe("orders", concurrency=1, start="first")
    def settle(message: Message) -> None:
        if message.text() == "one":
            app.pause("orders", reason="the till is closed")
        expect(message.text())

    running = await run(app)
    await app.publish("orders", "one")
    await expect.wait()
    for text in ("two", "three"):
        await app.publish("orders", text)
    # The pause comes from the thread before the message is seen, so it holds by now.
    assert {*running.snapshot().groups[0].blocked.values()} == {"paused: the till is closed"}
    assert (await running.idle()).reasons != ()
    assert expect.seen == ["one"]
    expect.wait_for("one", "two", "three")
    await asyncio.to_thread(app.resume, "orders", reason="the till is closed")
    await expect.wait()


async def test_pauses_of_module_level_and_of_start_functions_hold_from_the_first_message_on(run: Run) -> None:
    app, expect = RocketApp("shop"), Expect("stock")
    app.pause("orders", "migration")
    app.pause(group="reports")

    @app.subscribe("orders", start="first")
    @app.subscribe("stock", start="first")
    @app.subscribe("returns", start="first")
    @app.subscribe("orders", group="reports", start="first")
    async def settle(message: Message) -> None:
        expect(message.topic)

    @app.on_startup
    async def begin() -> None:
        for topic in ("orders", "returns", "stock"):
            await app.publish(topic, "x")
        app.pause("returns")

    running = await run(app)
    await expect.wait()
    assert {why for group in running.snapshot().groups for why in group.blocked.values()} == {
        "paused: migration",
        "paused: paused by the app",
        "paused: migration, paused by the app",
    }
    assert expect.seen == ["stock"]
    expect.wait_for("orders", "returns", "stock")
    app.resume("orders", group="shop")
    app.resume("returns")
    await expect.wait()
    expect.wait_for("orders", "orders", "returns", "stock")
    app.resume(group="reports", reason="paused by the app")
    app.resume("orders", "migration")
    await expect.wait()
