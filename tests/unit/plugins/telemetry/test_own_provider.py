"""A process that has set up OpenTelemetry by itself gets the app's spans there."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rocketapp import Message, RocketApp
from rocketapp.plugins.telemetry.config import TelemetryConfig
from tests.unit.plugins.telemetry.given import Settled, running

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)


async def main() -> None:
    settled = Settled(1)
    app = RocketApp("shop", plugins=[settled])

    @app.subscribe("orders")
    def settle(message: Message) -> None:
        with trace.get_tracer("mine").start_as_current_span("pay"):
            pass

    async with running(app, TelemetryConfig(enabled=True, metrics=False)):
        with trace.get_tracer("mine").start_as_current_span("request"):
            await app.publish("orders", b"1")
        await settled.all.wait()


asyncio.run(main())
spans = {span.name: span for span in exporter.get_finished_spans()}
for name in ("request", "send orders", "process orders", "pay"):
    parent = spans[name].parent
    above = [span.name for span in spans.values() if parent and span.context.span_id == parent.span_id]
    print(name, "<", *above)
"""


def test_spans_of_the_process_and_of_the_app_are_one_trace() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=300)
    assert run.stdout.splitlines() == [
        "request <",
        "send orders < request",
        "process orders < send orders",
        "pay < process orders",
    ], run.stderr
