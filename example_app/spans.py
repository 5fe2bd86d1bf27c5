"""OpenTelemetry's spans as lines on the console, while a developer looks; in production they go to a collector.

rocketapp makes the spans when `telemetry.enabled` is set, and gives them to the process's tracer provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from example_app.options import ShopOptions
from rocketapp.plugin import Surface, hookimpl

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


class ConsoleSpans:
    """A plugin, because it has to act before telemetry starts: the app's own functions come later."""

    @hookimpl
    def app_setup(self, app: Surface) -> None:
        if not app.options(ShopOptions).console_spans:
            return
        # Only here: an app that does not ask for it needs no SDK.
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line_of)))
        trace.set_tracer_provider(provider)


def line_of(span: ReadableSpan) -> str:
    """One line a span; those of one order have the same trace, from its first message to the carrier."""
    said = span.attributes or {}
    outcome = said.get("rocketapp.outcome", "")
    trace_id = f"{span.context.trace_id:032x}" if span.context is not None else ""
    milliseconds = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
    return f"span {trace_id[:8]} {span.name:<24} {milliseconds:7.1f} ms  {outcome}".rstrip() + "\n"
