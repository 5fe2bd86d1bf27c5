"""What a store keeps of each commit, beside the rows. Values alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from rocketapp import MessageQueue
from rocketapp.state.queue_identity import Landmark
from rocketapp_lake.positions import Marks, Offsets, Span, Vector, flat, nested

FORMAT = 1
Kind = Literal["append", "rebase", "epoch"]
BY_QUEUE: Mapping[str, Callable[..., Any]] = {
    "spans": Span._make,
    "vector": int,
    "marks": Landmark._make,
    "aside": tuple,
}
"""The fields of a commit with a value for each queue, and what those are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where a sink stands: its newest commit."""

    sequence: int = 0
    """1 for the first commit of the sink, and one more each time; 0: it has none."""
    batch: str = ""
    """A random name of the batch, by which its owner knows its own commit again; empty when the table does not have it
    any more."""
    vector: Vector = field(default_factory=dict)
    marks: Marks = field(default_factory=dict)
    """Of the queues of the vector, as far as they are known."""
    aside: Offsets = field(default_factory=dict)
    """Below the vector: messages that are not rows of this table, and may not be in that of bad rows yet."""
    schema: str = ""
    """The columns of the newest commit that had rows."""

    @staticmethod
    def of(commit: Head) -> Head:
        """Where the sink stands with this one."""
        return Head(**{one.name: getattr(commit, one.name) for one in fields(Head)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Head):
    """One commit of one sink: published with its rows, or not at all. The sink stands there with it."""

    sink: str
    """The name of the sink. Sequence and vector are its own, whatever else is in the table."""
    spans: Mapping[MessageQueue, Span] = field(default_factory=dict)
    """What it adds."""
    rows: int = 0
    made_at: float = 0.0
    """Seconds since 1970, by the clock of the owner."""
    kind: Kind = "append"
    """It adds rows, sets positions for an operator, or for a queue that began anew."""


def encode(commit: Commit) -> dict[str, Any]:
    """As plain values for JSON."""
    plain = {one.name: getattr(commit, one.name) for one in fields(commit)}
    return {"format": FORMAT, **plain, **{name: nested(plain[name]) for name in BY_QUEUE}}


def decode(values: Mapping[str, Any]) -> Commit:
    """The reverse. Raises ValueError for another format, and for what is not a commit."""
    if values.get("format") != FORMAT:
        raise ValueError(f"format {values.get('format')!r} of a commit is unknown: a newer version wrote it")
    try:
        plain = {one.name: values[one.name] for one in fields(Commit)}
        by_queue = {name: flat(plain[name], kind) for name, kind in BY_QUEUE.items()}
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a commit: {error!r}") from None
    return Commit(**{**plain, **by_queue})


def to_json(values: Mapping[str, Any]) -> bytes:
    """In one canonical form."""
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
