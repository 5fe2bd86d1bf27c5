"""What members have popped: checkpoints, and their records in the revive log.

A checkpoint says which messages of one queue were handed out at one time, and until when they are hidden. It is stored
before its messages leave, and each acknowledgement behind it, in the topic and the form of Apache RocketMQ
(PopCheckPoint, AckMsg, BatchAckMsg): so either broker finds again what the other one has left open.

No clock, no store: times and records come in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from rocketapp.model.pulled import Handle
from rocketapp.wire import lenient_json
from rocketapp.wire import properties as names
from rocketapp.wire.layout import Record
from rocketapp.wire.lenient_json import dump, int32_of, int64_of, text_of
from rocketapp.wire.requests.pop import MOST_MESSAGES

REVIVE_QUEUES = 8
"""Queues of the revive log (Java: reviveQueueNum)."""
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""Its offset in a revive queue is that of the last record which need not be read again."""
LATE_MS = 3000
"""Records that come by timers come in the second in which they are due; this much later all of them are there."""
_CHECKPOINT, _ACK, _ACKS = "ck", "ack", "bAck"
_BY_TIMER = f"{names.TIMER_OUT_MS}\x01".encode()
"""In the properties of a record that came by way of the timers, as all of Apache RocketMQ's do."""

Place = tuple[str, str, int]
"""Group, topic and queue id. The topic is the one in which the messages lie: perhaps a retry topic."""


def revive_topic(cluster: str) -> str:
    """The topic of checkpoints and acknowledgements, which no client reads."""
    return f"rmq_sys_REVIVE_LOG_{cluster}"


class Key(NamedTuple):
    """One hand-out of one queue."""

    group: str
    topic: str
    queue_id: int
    start: int
    popped_ms: int

    @classmethod
    def of(cls, group: str, topic: str, handle: Handle) -> Key:
        return cls(group, topic, handle.queue_id, handle.start, handle.popped_ms)

    @property
    def place(self) -> Place:
        return self[:3]


class HandedOut(msgspec.Struct, eq=False, rename={"offsets": "o", "acked": "cm"}.get):
    """Messages of one queue that were handed out at once, and which of them are done."""

    offsets: Sequence[int]
    acked: int = 0
    """A bit for each of `offsets`."""

    def left(self) -> list[int]:
        """The offsets of messages that are not acknowledged."""
        return [offset for at, offset in enumerate(self.offsets) if not self.acked >> at & 1]

    def ack(self, offsets: Iterable[int]) -> None:
        """Offsets that it does not have are ignored."""
        for offset in offsets:
            if offset in self.offsets:
                self.acked |= 1 << self.offsets.index(offset)


class PopCheckpoint(HandedOut, eq=False, kw_only=True):
    """Popped messages that come again from a retry topic, unless they are done in time."""

    key: Key
    invisible_ms: int
    revive_queue: int
    suspend: bool = False
    """That its messages come again is no attempt."""
    late_ms: int = 0
    physical: int = -1
    """Where its record is in the log."""
    due_ms: int = 0
    """When they come again."""

    def __post_init__(self) -> None:
        self.due_ms = self.key.popped_ms + self.invisible_ms + self.late_ms

    def __lt__(self, other: PopCheckpoint) -> bool:
        return self.due_ms < other.due_ms

    def record(self, topic: str, broker_name: str, now_ms: int, done: Sequence[int] = ()) -> Record:
        """The checkpoint's record in the revive log; with `done`, the record that these messages are done."""
        group, of_topic, queue_id, start, popped_ms = self.key
        body: dict[str, Any] = {"c": group, "t": of_topic, "q": queue_id, "so": start, "pt": popped_ms}
        if done:
            tag = _ACK if len(done) == 1 else _ACKS
            body |= {"ao": done[0]} if tag == _ACK else {"ao": -1, "aol": list(done)}
        else:
            tag = _CHECKPOINT
            acked = self.acked - (1 << 32) if self.acked >> 31 else self.acked
            body |= {"it": self.invisible_ms, "bm": acked, "n": len(self.offsets), "ro": 0}
            body |= {"d": [offset - start for offset in self.offsets], **({"sp": True} if self.suspend else {})}
        body["bn"] = broker_name
        # Apache RocketMQ takes this time for the present: what was due two seconds before comes again.
        raw = names.encode({names.TAGS: tag, names.TIMER_DELIVER_MS: str(now_ms)})
        return Record(topic, dump(body), raw, self.revive_queue, born_ms=now_ms)


def read(
    raw_properties: bytes, body: bytes, revive_queue: int, physical: int = -1
) -> PopCheckpoint | tuple[Key, list[int]] | None:
    """A checkpoint, or the messages of one that are done; None if the record says neither. Raises ProtocolError."""
    tag = (names.tag_of(raw_properties) or b"").decode("utf-8", "replace")
    if tag not in (_CHECKPOINT, _ACK, _ACKS):
        return None
    with lenient_json.reading("record of the revive log", body) as data:
        start = int64_of(data["so"])
        key = Key(text_of(data["c"]), text_of(data["t"]), int32_of(data["q"]), start, int64_of(data["pt"]))
        if tag != _CHECKPOINT:
            return key, [int64_of(offset) for offset in (data["aol"] if tag == _ACKS else [data["ao"]])]
        differences = data.get("d") or range(int32_of(data["n"]))
        if len(differences) > MOST_MESSAGES:
            raise ValueError(f"{len(differences)} messages of one answer, limit {MOST_MESSAGES}")
        return PopCheckpoint(
            [start + int32_of(each) for each in differences],
            int32_of(data.get("bm") or 0) & 0xFFFFFFFF,
            key=key,
            invisible_ms=int64_of(data["it"]),
            revive_queue=revive_queue,
            suspend=bool(data.get("sp")),
            late_ms=LATE_MS if _BY_TIMER in raw_properties else 0,
            physical=physical,
        )
