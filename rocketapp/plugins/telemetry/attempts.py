"""The spans of failed attempts, so that a retry can link to the attempt before it."""

from __future__ import annotations

import threading
from collections import OrderedDict

from opentelemetry.trace import SpanContext

_MOST = 10_000
"""Failed attempts that are remembered; the oldest is forgotten first."""


class FailedAttempts:
    """Of this process: a message that is sent back may come to another one. Called from any thread."""

    def __init__(self) -> None:
        self._spans: OrderedDict[tuple[str, str], SpanContext] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, group: str, message_id: str, span: SpanContext) -> None:
        with self._lock:
            self._spans[group, message_id] = span
            self._spans.move_to_end((group, message_id))
            if len(self._spans) > _MOST:
                self._spans.popitem(last=False)

    def take(self, group: str, message_id: str) -> SpanContext | None:
        """The last failed attempt, and forget it; None when it was not here."""
        with self._lock:
            return self._spans.pop((group, message_id), None)
