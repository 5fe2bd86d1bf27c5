"""Providers of the user, given to the plugin or set for the process, get the app's spans and metrics."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from rocketapp import DeadLetter, Message, Policy, RocketApp
from rocketapp.plugins.telemetry.config import TelemetryConfig
from rocketapp.plugins.telemetry.plugin import Telemetry
from tests.unit.plugins.telemetry.given import Settled, running

PROGRAM = """
import asyncio

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rocketapp import Message, RocketApp
from rocketapp.plugins.telemetry.config import TelemetryConfig
from tests.unit.plugins.telemetry.given import Settled, running
from tests.unit.plugins.telemetry.test_own_provider import numbers

exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([reader]))


async def main() -> None:
    settled = Settled(1)
    app = RocketApp("shop", plugins=[settled])

    @app.subscribe("orders")
    def settle(message: Message) -> None:
        with trace.get_tracer("mine").start_as_current_span("pay"):
            pass

    async with running(app, TelemetryConfig(enabled=True)):
        with trace.get_tracer("mine").start_as_current_span("request"):
            await app.publish("orders", b"1")
        await settled.all.wait()
        print("consumed", numbers(reader)["messaging.client.consumed.messages"])


asyncio.run(main())
spans = {span.name: span for span in exporter.get_finished_spans()}
for name in ("request", "send orders", "process orders", "pay"):
    parent = spans[name].parent
    above = [span.name for span in spans.values() if parent and span.context.span_id == parent.span_id]
    print(name, "<", *above)
"""


def points(reader: InMemoryMetricReader) -> dict[str, Any]:
    """What is collected now: the points of each metric by its name."""
    data = reader.get_metrics_data()
    resources = [] if data is None else data.resource_metrics
    scopes = [scope for resource in resources for scope in resource.scope_metrics]
    return {metric.name: metric.data.data_points for scope in scopes for metric in scope.metrics}


def numbers(reader: InMemoryMetricReader) -> dict[str, float]:
    """The sum of each metric that has one number per set of labels."""
    return {
        name: sum(one.value for one in found)
        for name, found in points(reader).items()
        if all(hasattr(one, "value") for one in found)
    }


def test_spans_of_the_process_and_of_the_app_are_one_trace() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=300)
    assert run.stdout.splitlines() == [
        "consumed 1",
        "request <",
        "send orders < request",
        "process orders < send orders",
        "pay < process orders",
    ], run.stderr


async def test_providers_that_the_plugin_is_given_are_used_without_any_setting() -> None:
    exporter, reader, settled = InMemorySpanExporter(), InMemoryMetricReader(), Settled(3)
    traces = TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(tracer_provider=traces, meter_provider=MeterProvider([reader]))
    app = RocketApp("shop", plugins=[telemetry, settled])

    @app.subscribe("orders", orderly=True)  # a retry comes at once
    async def settle(message: Message) -> None:
        if message.body == b"bad" and message.attempt == 1:
            raise ValueError

    async with running(app, TelemetryConfig()):
        for body in (b"1", b"2", b"bad"):
            await app.publish("orders", body)
        await settled.all.wait()
        found = points(reader)
    assert len([span for span in exporter.get_finished_spans() if span.name == "process orders"]) == 4
    assert sum(one.value for one in found["messaging.client.sent.messages"]) == 3
    assert sum(one.value for one in found["rocketapp.handler.retries"]) == 1
    process = {one.attributes.get("error.type"): one.count for one in found["messaging.process.duration"]}
    assert process == {None: 3, "ValueError": 1}
    for name in ("messaging.process.duration", "messaging.client.consumed.messages"):
        brokers = {(one.attributes["server.address"], one.attributes["server.port"]) for one in found[name]}
        assert brokers == {("127.0.0.1", "1")}
    (send,) = found["messaging.client.operation.duration"]
    assert (send.count, send.explicit_bounds[0], dict(send.attributes)) == (
        3,
        0.005,
        {
            "messaging.system": "rocketmq",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": "orders",
            "server.address": "127.0.0.1",
            "server.port": "1",
        },
    )
    # A provider that is shut down after the app collects once more.
    assert numbers(reader)["messaging.client.consumed.messages"] == 4


class WithoutTextError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


async def test_a_failure_whose_text_cannot_be_read_ends_its_span_and_means_what_its_policy_says() -> None:
    exporter, settled, traces = InMemorySpanExporter(), Settled(1), TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(exporter))
    policy = Policy(on={WithoutTextError: DeadLetter})
    app = RocketApp("shop", plugins=[Telemetry(tracer_provider=traces), settled], retry=policy)

    @app.subscribe("orders")
    async def settle(message: Message) -> None:
        raise WithoutTextError

    async with running(app, TelemetryConfig()):
        await app.publish("orders", b"1")
        await settled.all.wait()
    (span,) = [span for span in exporter.get_finished_spans() if span.name == "process orders"]
    attributes = dict(span.attributes or {})
    assert (attributes["rocketapp.outcome"], attributes["error.type"]) == ("dead letter", "WithoutTextError")
    assert span.status.status_code is StatusCode.ERROR


async def test_an_app_that_starts_again_is_still_seen() -> None:
    reader = InMemoryMetricReader()
    app = RocketApp("shop", plugins=[Telemetry(meter_provider=MeterProvider([reader]))])

    @app.subscribe("orders")
    async def settle(message: Message) -> None: ...

    for _ in range(2):
        async with running(app, TelemetryConfig()):
            assert numbers(reader)["rocketapp.group.members"] == 1


@pytest.mark.parametrize("config", [TelemetryConfig(enabled=False), TelemetryConfig(traces=False, metrics=False)])
async def test_settings_turn_given_providers_off(config: TelemetryConfig) -> None:
    reader = InMemoryMetricReader()
    app = RocketApp(
        "shop", plugins=[Telemetry(meter_provider=MeterProvider([reader]), tracer_provider=TracerProvider())]
    )
    async with running(app, config):
        assert points(reader) == {}
