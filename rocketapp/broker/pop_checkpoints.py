"""What members have popped and not acknowledged: checkpoints, and their records in the revive log.

A checkpoint says which messages of one queue were handed out at one time, and until when they are hidden. It is stored
before its messages leave, and each acknowledgement behind it, in the topic and the form of Apache RocketMQ
(PopCheckPoint, AckMsg, BatchAckMsg): so either broker finds again what the other one has left open.

No clock, no store: times and records come in.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import msgspec

from rocketapp.wire import lenient_json
from rocketapp.wire import properties as names
from rocketapp.wire.layout import Record
from rocketapp.wire.lenient_json import int32_of, int64_of, text_of
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
_SLACK = 1024
"""Closed checkpoints that the heap of due times may contain, beyond the number of open ones, before it is rebuilt."""

_encode = msgspec.json.Encoder(order="sorted").encode


def revive_topic(cluster: str) -> str:
    """The topic of checkpoints and acknowledgements, which no client reads."""
    return f"rmq_sys_REVIVE_LOG_{cluster}"


class Key(NamedTuple):
    """One hand-out of one queue. The topic is the one in which the messages lie: perhaps a retry topic."""

    group: str
    topic: str
    queue_id: int
    start: int
    popped_ms: int


class HandedOut:
    """Messages of one queue that were handed out at once, and which of them are done."""

    __slots__ = ("acked", "offsets")

    def __init__(self, offsets: Sequence[int], acked: int = 0) -> None:
        self.offsets: Sequence[int] = offsets
        self.acked: int = acked
        """A bit for each of `offsets`."""

    def left(self) -> list[int]:
        """The offsets of messages that are not acknowledged."""
        return [offset for at, offset in enumerate(self.offsets) if not self.acked >> at & 1]

    def ack(self, offsets: Iterable[int]) -> None:
        """Offsets that it does not have are ignored."""
        for offset in offsets:
            if offset in self.offsets:
                self.acked |= 1 << self.offsets.index(offset)


class PopCheckpoint(HandedOut):
    """They come again from a retry topic, unless they are done in time."""

    __slots__ = ("due_ms", "invisible_ms", "key", "place", "revive_queue", "suspend")

    def __init__(
        self,
        key: Key,
        offsets: Sequence[int],
        *,
        invisible_ms: int,
        revive_queue: int,
        acked: int = 0,
        suspend: bool = False,
        late_ms: int = 0,
    ) -> None:
        super().__init__(offsets, acked)
        self.key: Key = key
        self.invisible_ms: int = invisible_ms
        self.due_ms: int = key.popped_ms + invisible_ms + late_ms
        self.revive_queue: int = revive_queue
        self.suspend: bool = suspend
        """That its messages come again is no attempt."""
        self.place: int = -1
        """Where its record is in its revive queue."""

    def __repr__(self) -> str:
        return f"<Checkpoint {self.key}: {len(self.left())} of {len(self.offsets)} left>"

    def __lt__(self, other: PopCheckpoint) -> bool:
        return self.due_ms < other.due_ms

    def record(self, topic: str, broker_name: str, now_ms: int) -> Record:
        """Its record in the revive log."""
        group, of_topic, queue_id, start, popped_ms = self.key
        body = {
            "so": start,
            "pt": popped_ms,
            "it": self.invisible_ms,
            "bm": self.acked - (1 << 32) if self.acked >> 31 else self.acked,
            "n": len(self.offsets),
            "q": queue_id,
            "t": of_topic,
            "c": group,
            "ro": 0,
            "d": [offset - start for offset in self.offsets],
            "bn": broker_name,
            **({"sp": True} if self.suspend else {}),
        }
        return _record(topic, self.revive_queue, _CHECKPOINT, body, now_ms)

    def ack_record(self, topic: str, broker_name: str, offsets: Sequence[int], now_ms: int) -> Record:
        """The record that acknowledges these messages of it."""
        group, of_topic, queue_id, start, popped_ms = self.key
        body: dict[str, Any] = {
            "so": start,
            "c": group,
            "t": of_topic,
            "q": queue_id,
            "pt": popped_ms,
            "bn": broker_name,
        }
        if len(offsets) == 1:
            return _record(topic, self.revive_queue, _ACK, {"ao": offsets[0], **body}, now_ms)
        return _record(topic, self.revive_queue, _ACKS, {"ao": -1, **body, "aol": list(offsets)}, now_ms)


def _record(topic: str, queue_id: int, tag: str, body: dict[str, Any], now_ms: int) -> Record:
    # Apache RocketMQ takes this time for the present: what was due two seconds before comes again.
    own = names.encode({names.TAGS: tag, names.TIMER_DELIVER_MS: str(now_ms)})
    return Record(topic, _encode(body), own, queue_id, born_ms=now_ms)


class Acked(NamedTuple):
    """A record that acknowledges messages."""

    key: Key
    offsets: list[int]


def read(raw_properties: bytes, body: bytes, revive_queue: int) -> PopCheckpoint | Acked | None:
    """What one record of the revive log says; None if it is neither of them. Raises ProtocolError."""
    tag = (names.tag_of(raw_properties) or b"").decode("utf-8", "replace")
    if tag not in (_CHECKPOINT, _ACK, _ACKS):
        return None
    with lenient_json.reading("record of the revive log", body) as data:
        start = int64_of(data["so"])
        key = Key(text_of(data["c"]), text_of(data["t"]), int32_of(data["q"]), start, int64_of(data["pt"]))
        if tag == _ACK:
            return Acked(key, [int64_of(data["ao"])])
        if tag == _ACKS:
            return Acked(key, [int64_of(offset) for offset in data["aol"]])
        differences = data.get("d") or range(int32_of(data["n"]))
        if len(differences) > MOST_MESSAGES:
            raise ValueError(f"{len(differences)} messages of one answer, limit {MOST_MESSAGES}")
        return PopCheckpoint(
            key,
            [start + int32_of(each) for each in differences],
            invisible_ms=int64_of(data["it"]),
            revive_queue=revive_queue,
            acked=int32_of(data.get("bm") or 0) & 0xFFFFFFFF,
            suspend=bool(data.get("sp")),
            late_ms=LATE_MS if _BY_TIMER in raw_properties else 0,
        )


class OpenCheckpoints:
    """Every checkpoint of which a message is not acknowledged."""

    def __init__(self) -> None:
        self._open: dict[Key, PopCheckpoint] = {}
        self._by_due: list[PopCheckpoint] = []
        # OrderedDict because most leave near the front: a plain dict steps over its deleted slots.
        self._by_place = [OrderedDict[Key, PopCheckpoint]() for _ in range(REVIVE_QUEUES)]
        self._in_flight: Counter[tuple[str, str, int]] = Counter()

    def __repr__(self) -> str:
        return f"<OpenCheckpoints {len(self._open)}>"

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: Key) -> bool:
        return key in self._open

    def get(self, key: Key) -> PopCheckpoint | None:
        return self._open.get(key)

    def in_flight(self, group: str, topic: str, queue_id: int) -> int:
        """How many messages of a queue are handed out: all of a checkpoint, until the last one is done."""
        return self._in_flight[group, topic, queue_id]

    def put(self, checkpoint: PopCheckpoint, place: int) -> None:
        """A record of it was stored at this offset of its revive queue. A second one of the same has all its acks."""
        before = self._open.get(checkpoint.key)
        if before is not None:
            checkpoint.acked |= before.acked
            self.close(before)
        checkpoint.place = place
        if not checkpoint.left():
            return
        self._open[checkpoint.key] = self._by_place[checkpoint.revive_queue][checkpoint.key] = checkpoint
        self._in_flight[checkpoint.key[:3]] += len(checkpoint.offsets)
        heappush(self._by_due, checkpoint)
        if len(self._by_due) > 2 * len(self._open) + _SLACK:
            self._by_due = list(self._open.values())
            heapify(self._by_due)

    def ack(self, key: Key, offsets: Iterable[int]) -> None:
        """Messages are done; a checkpoint without any left is closed."""
        checkpoint = self._open.get(key)
        if checkpoint is not None:
            checkpoint.ack(offsets)
            if not checkpoint.left():
                self.close(checkpoint)

    def close(self, checkpoint: PopCheckpoint) -> None:
        """Nothing of it is awaited any more."""
        if self._open.get(checkpoint.key) is not checkpoint:
            return
        del self._open[checkpoint.key], self._by_place[checkpoint.revive_queue][checkpoint.key]
        queue = checkpoint.key[:3]
        self._in_flight[queue] -= len(checkpoint.offsets)
        if not self._in_flight[queue]:
            del self._in_flight[queue]

    def drop(self, topic: str) -> None:
        """Close those of a topic that is being deleted."""
        for checkpoint in list(self._open.values()):
            if checkpoint.key.topic == topic:
                self.close(checkpoint)

    @property
    def first_due(self) -> PopCheckpoint | None:
        """The one whose messages come again first."""
        heap = self._by_due
        while heap and self._open.get(heap[0].key) is not heap[0]:
            heappop(heap)
        return heap[0] if heap else None

    def first_stored(self, revive_queue: int) -> PopCheckpoint | None:
        """The one whose record is the first in this revive queue: a start reads the queue from there on."""
        return next(iter(self._by_place[revive_queue].values()), None)

    def by_due(self) -> list[PopCheckpoint]:
        return sorted(self._open.values())
