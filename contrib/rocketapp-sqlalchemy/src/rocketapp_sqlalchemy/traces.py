"""The trace of what writes goes on in what is sent: in between, its context is in the properties of the row."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


def context_of_writer() -> dict[str, str]:
    """The current trace as properties of a message; empty without one, and where OpenTelemetry is not in use."""
    carrier: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry import propagate

        propagate.inject(carrier)
    return carrier


@contextmanager
def trace_of(properties: Mapping[str, str]) -> Iterator[None]:
    """What is sent meanwhile belongs to the trace of these properties, if they have one."""
    if "traceparent" not in properties or "opentelemetry.trace" not in sys.modules:
        yield
        return
    from opentelemetry import context, propagate

    token = context.attach(propagate.extract(properties))
    try:
        yield
    finally:
        context.detach(token)
