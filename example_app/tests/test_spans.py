"""What a developer sees of spans."""

from __future__ import annotations

import re

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from example_app.spans import line_of


def test_a_span_is_one_line_with_its_trace_and_what_became_of_the_message() -> None:
    # A provider of the test's own: that of the process can be set once only.
    span = TracerProvider().get_tracer("shop").start_span("process shop-orders")
    span.set_attribute("rocketapp.outcome", "done")
    span.end()
    assert isinstance(span, ReadableSpan)
    assert re.fullmatch(r"span [0-9a-f]{8} process shop-orders +\d+\.\d ms  done\n", line_of(span))
