"""What an OTLP collector sees of an app: its figures, read when they are collected."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rocketapp import DeadLetter, Message, RocketApp
from rocketapp.model.metrics import metrics_of
from rocketapp.plugin import AppSnapshot, Metric, ReadMetrics, hookimpl
from rocketapp.plugins.counts import DISTRIBUTIONS
from rocketapp.plugins.telemetry import metrics
from rocketapp.plugins.telemetry.config import TelemetryConfig
from rocketapp.plugins.telemetry.metrics import Glances
from tests.unit.plugins.telemetry.collector import Collector, values
from tests.unit.plugins.telemetry.given import Settled, running

NOTHING = AppSnapshot(cache_limit_bytes=1, groups=())


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as one:
        yield one


def last_export(collector: Collector) -> dict[str, Any]:
    """Metric by name, of the last request."""
    (of_resource,) = collector.metric_requests[-1].resource_metrics
    return {metric.name: metric for scope in of_resource.scope_metrics for metric in scope.metrics}


def number(metric: Any, **labels: str) -> float:
    """The value of the only point with these labels."""
    (point,) = [
        each for each in metric.ListFields()[-1][1].data_points if labels.items() <= values(each.attributes).items()
    ]
    return point.as_int if point.WhichOneof("value") == "as_int" else point.as_double


async def test_the_collector_receives_every_figure(collector: Collector) -> None:
    settled = Settled(4)
    app = RocketApp("shop", plugins=[settled])

    @app.subscribe("orders")
    async def settle(message: Message) -> None:
        if message.body == b"dead":
            raise DeadLetter("hopeless")

    @app.subscribe("stock", group="store", orderly=True)
    def move(message: Message) -> None:
        if message.attempt == 1:
            raise ValueError

    telemetry = TelemetryConfig(endpoint=collector.endpoint, traces=False, metrics_interval=3600.0)
    async with running(app, telemetry):
        await app.publish_many("orders", [b"1", b"2", b"dead"])
        await app.publish("stock", b"tea")
        await settled.all.wait()
    assert collector.trace_requests == []
    found = last_export(collector)
    assert found.keys() >= {each.name for each in DISTRIBUTIONS}
    # The queues have been given back by now.
    gone = {"rocketapp.queue.lag", "rocketapp.queue.unfinished", "rocketapp.group.unmatched"}
    assert {figure.name for figure in metrics_of(NOTHING)} - found.keys() == gone
    destination, error = "messaging.destination.name", "error.type"
    consumed = found["messaging.client.consumed.messages"]
    assert number(consumed, **{destination: "orders", error: "DeadLetter"}) == 1
    assert sum(point.as_int for point in consumed.sum.data_points) == 5
    assert number(found["messaging.client.sent.messages"], **{destination: "orders"}) == 3
    assert number(found["rocketapp.handler.dead_letters"], **{destination: "orders"}) == 1
    assert number(found["rocketapp.handler.retries"], **{destination: "stock"}) == 1
    assert number(found["rocketapp.handler.done"], **{destination: "stock"}) == 1
    process = {
        (values(point.attributes)[destination], values(point.attributes).get(error, "")): (
            point.count,
            sum(point.bucket_counts),
        )
        for point in found["messaging.process.duration"].histogram.data_points
    }
    assert process == {
        ("orders", ""): (2, 2),
        ("orders", "DeadLetter"): (1, 1),
        ("stock", ""): (1, 1),
        ("stock", "ValueError"): (1, 1),
    }


class Cache:
    """A plugin that measures something."""

    @hookimpl
    def metrics(self) -> ReadMetrics:
        hits = Metric(name="shop.hits", kind="counter", unit="{hit}", meaning="Hits.", samples=(({"shop": "one"}, 7),))
        return lambda now: [hits]


async def test_the_collector_receives_what_plugins_measure(collector: Collector) -> None:
    telemetry = TelemetryConfig(endpoint=collector.endpoint, traces=False, metrics_interval=3600.0)
    async with running(RocketApp("shop", plugins=[Cache()]), telemetry):
        pass
    found = last_export(collector)["shop.hits"]
    assert (number(found, shop="one"), found.unit, found.sum.is_monotonic) == (7, "{hit}", True)


async def test_traces_and_metrics_at_once_without_durations(collector: Collector) -> None:
    settled = Settled(1)
    app = RocketApp("shop", plugins=[settled])

    @app.subscribe("orders")
    async def settle(message: Message) -> None: ...

    async with running(app, TelemetryConfig(endpoint=collector.endpoint, durations=False, metrics_interval=3600.0)):
        await app.publish("orders", b"1")
        await settled.all.wait()
    assert [span.name for span in collector.spans] == ["send orders", "process orders"]
    assert "messaging.process.duration" not in last_export(collector)


class Looked:
    """Counts the snapshots, and in which thread they were taken."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def snapshot(self) -> AppSnapshot:
        self.threads.append(threading.get_ident())
        return AppSnapshot(cache_limit_bytes=1, groups=())


async def test_a_snapshot_is_taken_on_the_loop_and_serves_a_whole_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    app, now = Looked(), [0.0]
    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: now[0]))
    glances = Glances(app, asyncio.get_running_loop())  # type: ignore[arg-type]
    now[0] = 10.0
    await asyncio.to_thread(lambda: [glances.now() for _ in range(20)])
    assert app.threads == [threading.get_ident()] * 2


async def test_a_collector_that_does_not_listen_is_not_waited_for_long(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "12")
    app = RocketApp("shop")

    @app.subscribe("orders")
    async def settle(message: Message) -> None: ...

    with socket.create_server(("127.0.0.1", 0)) as unused:
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
    loop = asyncio.get_running_loop()
    async with running(app, TelemetryConfig(endpoint=endpoint, metrics_interval=3600.0)):
        await app.publish("orders", b"1")
        began = loop.time()
    assert loop.time() - began < 4  # its exporters try for five seconds at least
    assert any("the last spans and metrics were not exported within 3 s" in one for one in caplog.messages)
