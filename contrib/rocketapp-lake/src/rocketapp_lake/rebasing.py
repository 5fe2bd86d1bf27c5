"""Positions that are set by hand, or because a queue began anew: a commit of its own, without rows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.lanes import Lane
from rocketapp_lake.records import Commit, Head, Kind
from rocketapp_lake.store import Store

MOST_FENCES = 100
"""Lost races in a row; more than a few are a fault."""


def rebase(store: Store, sink: str, to: Mapping[Lane, int], *, made_at: float, kind: Kind = "rebase") -> Head:
    """Set where these lanes stand; the others stay. It blocks. Returns where the sink stands then.

    What was last read of them is forgotten: the queue that they have now is the right one, whatever its records are.
    Owners that publish meanwhile lose the race, and read where the table stands. Positions that are there already need
    no commit, unless the newest commit is not in the table any more. Raises what the store raises.
    """
    head = store.load()
    for _ in range(MOST_FENCES):
        vector = {**head.vector, **to}
        marks = {lane: mark for lane, mark in head.marks.items() if lane not in to}
        if head.batch and vector == dict(head.vector) and marks == dict(head.marks):
            return head
        commit = Commit(
            sink=sink,
            sequence=head.sequence + 1,
            batch=uuid.uuid4().hex,
            spans={},
            vector=vector,
            marks=marks,
            schema=head.schema,
            made_at=made_at,
            kind=kind,
        )
        try:
            store.commit(commit, None)
        except FencedError:
            head = store.load()
            continue
        head = store.load()
    raise SinkError(f"sink {sink}: {MOST_FENCES} races lost in a row: too many publish to it")


def lane_from(text: str) -> Lane:
    """The reverse of `str(lane)`: `orders@broker-a:0`. Raises ValueError for anything else."""
    topic, at, place = text.rpartition("@")
    broker, colon, queue = place.rpartition(":")
    if not (topic and at and broker and colon and queue.isdigit()):
        raise ValueError(f"{text!r} is not a queue: write topic@broker:queue, as `rocketapp sink show` does")
    return Lane(topic, broker, int(queue))
