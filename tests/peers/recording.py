"""What handlers under test write down: one JSON line per event, to the file that HANDLER_LOG names.

This file is copied beside the app under test, so it stands alone. Each line is one `write` to a file opened with
O_APPEND: lines of several processes do not mix, and what was written survives `kill -9`. `at` is the monotonic
clock, which all processes of one machine share.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import Any

from rocketapp.plugin import hookimpl

_LOG = os.open(os.environ["HANDLER_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def mark(event: str, **facts: Any) -> None:
    """An event without a message."""
    line = {"event": event, "at": time.monotonic(), "pid": os.getpid(), **facts}
    os.write(_LOG, json.dumps(line).encode() + b"\n")


def note(event: str, message: Any, **facts: Any) -> None:
    """An event of one message, with all that a handler sees of it; a long body is cut, its hash is not."""
    body = message.body
    mark(
        event,
        topic=message.topic,
        queue=message.queue_id,
        offset=message.offset,
        attempt=message.attempt,
        tag=message.tag,
        keys=list(message.keys),
        id=message.message_id,
        text=body[:120].decode(errors="replace").rstrip(),
        size=len(body),
        born_at=message.born_at.timestamp(),
        stored_at=message.stored_at.timestamp(),
        sha=hashlib.sha256(body).hexdigest(),
        properties=dict(message.properties),
        **facts,
    )


def brief(event: str, message: Any) -> None:
    """The few facts that large runs need: who, where, when, and the number in front of the body."""
    number = message.body[:40].split(b" ", 2)
    os.write(
        _LOG,
        b'{"event":"%b","at":%.6f,"pid":%d,"queue":%d,"offset":%d,"attempt":%d,"number":%b}\n'
        % (
            event.encode(),
            time.monotonic(),
            os.getpid(),
            message.queue_id,
            message.offset,
            message.attempt,
            number[0] if number[0].isdigit() else number[1],
        ),
    )


class Moves:
    """A plugin that writes down what the engine tells of queues that come and go, and of connections."""

    _FACTS = ("reason", "offset", "address")

    @hookimpl
    def observe_events(self) -> Any:
        return self._observe

    def _observe(self, event: Any) -> None:
        kind = type(event).__name__
        if kind in ("Connected", "Disconnected"):
            mark(kind.lower(), address=event.address)
        elif kind in ("Assigned", "Released"):
            queue = event.queue
            facts = {name: getattr(event, name) for name in self._FACTS if hasattr(event, name)}
            mark(kind.lower(), topic=queue.topic, broker=queue.broker_name, queue=queue.queue_id, **facts)
