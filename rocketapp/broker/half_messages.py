"""Half messages: stored where no consumer sees them, until their producer commits them or rolls them back.

A half message waits in RMQ_SYS_TRANS_HALF_TOPIC. Its end is a record in RMQ_SYS_TRANS_OP_HALF_TOPIC that names its
offset there, so what is open is found again after a restart. Java: TransactionalMessageBridge.

How far both queues need not be read again is a committed offset of CID_RMQ_SYS_TRANS in each of them, as in Apache
RocketMQ: what one of the two has finished with, the other does not open again.

Rule: a commit and its end are one write, all or nothing, and the commit comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from rocketapp.broker.delays import held_back, read_held_back
from rocketapp.broker.store.queue_follower import QueueFollower
from rocketapp.broker.store.store import MessageStore
from rocketapp.broker.store.stored import Stored
from rocketapp.errors import BrokerError
from rocketapp.model.event import Observe
from rocketapp.model.names import CHECKS_OVER_TOPIC, HALF_TOPIC, OP_TOPIC
from rocketapp.wire import properties as names
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.layout import TRANSACTION_COMMIT, TRANSACTION_MASK, Record
from rocketapp.wire.requests.transactions import EndTransaction

MOST_CHECKS = 15
"""Questions after which a half message without a decision is given up (Java: transactionCheckMax)."""
MOST_OPEN = 262_144
"""Most half messages that are open. All of them are in memory."""
LONGEST_OPEN_MS = 72 * 3_600_000
"""Age at which a half message is given up whose group has no member to ask (Java: fileReservedTime)."""
_ENDED_TAG, _ALL = "d", 2**63


@dataclass(slots=True)
class OpenHalf:
    """A half message that is neither committed nor rolled back."""

    offset: int
    """In the queue of half messages."""
    physical: int
    group: str
    message_id: str
    stored_ms: int
    checks: int = 0


class HalfMessages:
    """The half messages of one store. The owner of the timer calls `due` and asks the producers."""

    def __init__(
        self, store: MessageStore, observe: Observe, *, timeout: float, progress: tuple[int, int] = (0, 0)
    ) -> None:
        """timeout: seconds after which a producer is asked about its half message.

        progress: as saved by the last run.
        """
        self._store, self._observe, self._timeout = store, observe, timeout
        self._ended: set[int] = set()
        """Half messages that a run before this one has ended, while a start reads."""
        self._open: dict[int, OpenHalf] = {}
        QueueFollower(store, OP_TOPIC, 0, progress[1], self._take_end).catch_up(store.max_offset(OP_TOPIC, 0))
        halves = QueueFollower(store, HALF_TOPIC, 0, progress[0], self._take)
        while halves.lag:
            if halves.position in self._ended:
                halves.position += 1  # it need not be read
            else:
                halves.catch_up(1)
        self._ended.clear()
        self.on_committed: Callable[[str], object] = str
        """Called with the id of each message that is committed; a test kit replaces it."""

    def __repr__(self) -> str:
        return f"<HalfMessages {len(self._open)} open>"

    def __len__(self) -> int:
        return len(self._open)

    def first_position(self) -> int | None:
        """The position in the log of the first open half message; None without any."""
        return next((one.physical for one in self._open.values()), None)

    def oldest(self, most: int) -> list[OpenHalf]:
        """The open half messages, oldest first."""
        return list(islice(self._open.values(), most))

    def progress(self) -> tuple[int, int]:
        """The first open half message, and the first end behind it: a start reads the queues from there on."""
        first, before = self.first_position(), self._store.offset_before
        position = math.inf if first is None else first
        return before(position, HALF_TOPIC, 0, _ALL), before(position, OP_TOPIC, 0, _ALL)

    def forget_below(self, offset: int) -> None:
        """A slave: the master has finished with half messages before this offset."""
        for half in [half for half in self._open if half < offset]:
            del self._open[half]

    def half(self, record: Record, unique_key: str) -> Record:
        """The half message to store.

        Its transaction id is its unique key. Raises BrokerError when too many are open.
        """
        if len(self._open) >= MOST_OPEN:
            raise BrokerError(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{MOST_OPEN} transactions are open already")
        half = held_back(record, HALF_TOPIC, 0, {names.TRANSACTION_ID: unique_key})
        return half._replace(sys_flag=record.sys_flag & ~TRANSACTION_MASK)

    def end(self, request: EndTransaction) -> None:
        """Commit or roll back. Raises BrokerError for any other decision, and unless the half message is open."""
        half = self._open.get(request.half_offset)
        if half is None or half.physical != request.physical_offset:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if half.group != request.group:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        record = None
        if request.decision == TRANSACTION_COMMIT:
            record = self._real(half)
            if record is None:
                raise BrokerError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed: it is gone")
            flags = record.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
            record = record._replace(sys_flag=flags, prepared_offset=half.physical)
        elif request.decision != TRANSACTION_MASK:  # a rollback has all bits of the mask
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"{request.decision} is neither a commit nor a rollback")
        self._close(half, record)
        if request.decision == TRANSACTION_COMMIT:
            self.on_committed(half.message_id)

    def due(self, now_ms: int, can_ask: Callable[[str], object]) -> Iterator[tuple[OpenHalf, Record]]:
        """The half messages whose producer must be asked now, each with its message. Counts the question.

        `can_ask`: whether this producer group has a member. A group without one is asked when it has one again.

        What was asked about too often, or is too old, goes to TRANS_CHECK_MAX_TIME_TOPIC.
        """
        latest, too_old = now_ms - int(self._timeout * 1000), now_ms - LONGEST_OPEN_MS
        for half in [one for one in self._open.values() if one.stored_ms <= latest]:
            if half.offset not in self._open or not (half.stored_ms < too_old or can_ask(half.group)):
                continue
            record = self._real(half)
            if record is None:
                self._close(half, None)
            elif half.checks >= MOST_CHECKS or half.stored_ms < too_old:
                self._close(half, record._replace(topic=CHECKS_OVER_TOPIC, queue_id=0))
            else:
                half.checks += 1
                yield half, record

    def _real(self, half: OpenHalf) -> Record | None:
        """The message that consumers get; None when the log has lost it."""
        return read_held_back(self._store, HALF_TOPIC, 0, half.offset, self._observe)

    def _close(self, half: OpenHalf, last: Record | None) -> None:
        """Store the end of a half message, after the message itself if it is delivered."""
        tag = names.encode({names.TAGS: _ENDED_TAG})
        # Without the comma that RocketMQ 5 writes, and can do without: 4.x reads the text as one number.
        end = Record(topic=OP_TOPIC, body=b"%d" % half.offset, raw_properties=tag)
        self._store.append_batch([end] if last is None else [last, end])

    # Following the two queues.

    def _take(self, stored: Stored) -> None:
        """A half message was stored: it is open."""
        offset, found = stored.queue_offset, names.decode(stored.raw_properties)
        unique_key = found.get(names.UNIQ_KEY) or found.get(names.TRANSACTION_ID, "")
        group = found.get(names.PGROUP, "")
        self._open[offset] = OpenHalf(offset, stored.physical, group, unique_key, stored.stored_ms)

    def _take_end(self, stored: Stored) -> None:
        """An end was stored: these half messages are committed or rolled back."""
        for each in stored.body.split(b","):
            if each.strip().isdigit() and self._open.pop(int(each), None) is None:
                self._ended.add(int(each))
