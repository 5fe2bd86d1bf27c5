"""Timers to the second: messages that wait in rmq_sys_wheel_timer until a moment that each of them names.

The queue of that topic is in the order of arrival. A reader goes along it, at a start as at any time, and notes which
offset is due in which second. Nothing is delivered before it is at the end, because a recall is a record behind the
message that it takes back.

Rule: never early, never lost. What is delivered is known by a position: what lies below `read_to` and was due before
`done_ms`. It is saved when the log that it describes is on disk, so a crash repeats the last seconds.

Apache RocketMQ reads that position too, in the same file. It has a wheel and a log of timers beside the topic, and
makes the wheel from its log: this broker writes the log when it stops, and removes both when it starts.
Java: TimerMessageStore, TimerCheckpoint, TimerLog.
"""

from __future__ import annotations

import contextlib
import heapq
import struct
import zlib
from array import array
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from rocketapp.broker.delays import batch_of, held_back, read_held_back
from rocketapp.broker.store.files import Files, read_whole, replace_whole
from rocketapp.broker.store.queue_follower import QueueFollower
from rocketapp.broker.store.store import MessageStore
from rocketapp.broker.store.stored import Stored
from rocketapp.clock import Clock
from rocketapp.errors import BrokerError
from rocketapp.model.event import LoopFailed, Observe, RecordDamaged, unobserved
from rocketapp.model.names import TIMER_TOPIC
from rocketapp.wire import properties as names
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.layout import Record

CHECKPOINT, LOG, WHEEL = "config/timercheck", "timerlog", "timerwheel"
LONGEST_MS = 3 * 86_400_000
"""Java: timerMaxDelaySec."""
MOST_WAITING = 500_000
"""Most messages that wait. Their offsets are in memory."""

_MOST_READ = 1024
"""Records of the queue that one turn reads."""
_THEIRS = struct.Struct(">qqqq")
"""As Apache RocketMQ has them: done_ms; the end of its log; read_to; and the least offset that it has to read again."""
_OURS, _OURS_AT, _PAGE = struct.Struct(">q32sI"), 64, 4096
"""The first offset that waits; what the part before said; a checksum. Apache RocketMQ leaves this part as it is."""
_ENTRY, _LOG_BYTES = struct.Struct(">iqiqiqiiq"), 104_857_600
_PLAIN, _ROLL = 1, 2
_WHEEL_MS = 6 * 86_400_000
"""Apache RocketMQ's wheel has seven days. What is due later is put again, in time."""


class Position(NamedTuple):
    """What is delivered: all below `first`, and what was due before `done_ms` below `read_to`."""

    first: int = 0
    read_to: int = 0
    done_ms: int = 0


def timed(record: Record, due_ms: int) -> Record:
    """The record that waits in the timers' topic for this one."""
    return held_back(record, TIMER_TOPIC, 0, {names.TIMER_OUT_MS: str(due_ms)})


def slot_ms(due_ms: int, now_ms: int) -> int:
    """The second at whose end a message is delivered, as Apache RocketMQ has it. BrokerError: it is too far away."""
    if due_ms - now_ms > LONGEST_MS:
        raise BrokerError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"timer message illegal, the delay time should not be bigger than the max delay {LONGEST_MS}ms",
        )
    return (due_ms - 1) // 1000 * 1000


class TimedMessages:
    """The timers of one store. The owner of the clock asks `next_due_ms` and calls `deliver_due`."""

    def __init__(self, store: MessageStore, files: Files, clock: Clock, observe: Observe = unobserved) -> None:
        self._store, self._files, self._clock, self._observe = store, files, clock, observe
        self._seconds: dict[int, array[int]] = {}
        """Second -> offsets of the messages and recalls of it, in order."""
        self._heap: list[int] = []
        self._last: dict[int, dict[str, int]] = {}
        """Second -> messages of it that Apache RocketMQ has put again, and the last offset of each; -1: taken back."""
        self._waiting = 0
        self.on_scheduled: Callable[[float], object] = float
        """Called with the seconds until each new message is due; the owner of the clock replaces it."""
        self._begun = self._load()
        """What was delivered before: at the start, and on a slave as its master said last."""
        self._queue = QueueFollower(store, TIMER_TOPIC, 0, self._begun.first, self._note)
        self._saved = self._state if self._is_saved(self._begun) else None
        """The state whose position the file has."""

    def __repr__(self) -> str:
        return f"<TimedMessages: {self._waiting} wait>"

    @property
    def _state(self) -> tuple[int, int]:
        """Another one whenever messages came or were delivered."""
        return self._queue.position, self._waiting

    def __len__(self) -> int:
        """Messages that wait, and recalls of them."""
        return self._waiting + self._queue.lag

    def waiting(self, most: int) -> Iterator[tuple[int, Record]]:
        """The next ones, with the time when each is due, in milliseconds since 1970; what is recalled is left out."""
        self._queue.catch_up(_MOST_READ)
        for second in heapq.nsmallest(most, self._heap):
            for offset in self._seconds.get(second, array("q"))[:most]:
                record = self._wanted(second, offset)
                if record is not None:
                    yield (second + 1) * 1000, record

    def schedule(self, record: Record, due_ms: int) -> Stored:
        """Store a message that is delivered at the end of this second. Raises BrokerError when too many wait."""
        self.check_room()
        return self._store.append(timed(record, due_ms))

    def check_room(self) -> None:
        """Raises BrokerError when too many messages wait."""
        if self._waiting >= MOST_WAITING:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"timer message is under flow control, max num limit is {MOST_WAITING}"
            )

    def first_position(self) -> int | None:
        """Where the log has the first message that waits; None when none does."""
        entry = self._store.entry(TIMER_TOPIC, 0, self._position().first)
        return None if entry is None else entry[0]

    def read(self) -> Generator[None]:
        """Read what the queue has at a start, a part at each step."""
        while not self._queue.catch_up(_MOST_READ):
            yield

    def next_due_ms(self) -> int | None:
        """When the next message is due, in milliseconds since 1970; None when no message waits."""
        if not self._queue.catch_up(_MOST_READ):
            return 0
        return (self._heap[0] + 1) * 1000 if self._heap else None

    def deliver_due(self, now_ms: int, limit: int = 1024) -> int:
        """Append due messages to their real queues; return their number. Stops at the limit; more may be due then."""
        delivered = 0
        if not self._queue.catch_up(_MOST_READ):
            return 0
        while self._heap and self._heap[0] < now_ms // 1000 and delivered < limit:
            delivered += self._deliver_batch(self._heap[0])
        return delivered

    @property
    def progress(self) -> Position | None:
        """What is delivered; None while the queue is not read to its end."""
        return None if self._queue.lag else self._position()

    def to_save(self) -> Callable[[], None] | None:
        """A function that writes the position, in any thread, when all of the log until now is on disk.

        None: nothing has changed.
        """
        position, state = self.progress, self._state
        if self._saved == state or position is None:
            return None

        def save() -> None:
            self._save(position)
            self._saved = state

        return save

    def take_over(self, done_ms: int, read_to: int) -> None:
        """Forget what the master has delivered: below `read_to`, what was due before `done_ms`; the log here has it.

        What of that is not read yet is left out when it is.
        """
        self._begun = self._begun._replace(read_to=read_to, done_ms=done_ms)
        for second in [second for second in self._heap if second * 1000 < done_ms]:
            offsets = self._seconds[second]
            left = array("q", [offset for offset in offsets if offset >= read_to])
            self._waiting -= len(offsets) - len(left)
            self._seconds[second] = left
            if not left:
                self._drop(second)
        self._heap = sorted(self._seconds)

    def close(self) -> Generator[None]:
        """Save everything, for Apache RocketMQ too, a part at each step.

        Called when the store is flushed, and before it is closed: nothing is stored meanwhile.
        """
        yield from self.read()
        position, size = self._position(), 0
        if self._store.max_offset(TIMER_TOPIC, 0):
            try:
                size = yield from self._write_log(position)
            except OSError as error:
                self._observe(LoopFailed("timers", f"{self._files.place(LOG)} cannot be written: {error}"))
        self._is_saved(position, size)

    # The queue of the topic.

    def _note(self, stored: Stored) -> None:
        offset, properties = stored.queue_offset, names.decode(stored.raw_properties)
        due = properties.get(names.TIMER_OUT_MS, "")
        if not due.isdecimal() or len(due) > 18:
            self._observe(RecordDamaged(TIMER_TOPIC, 0, offset, -1))
            return
        second = int(due) // 1000
        if offset < self._begun.read_to and second * 1000 < self._begun.done_ms:
            return
        is_recall = names.TIMER_DEL_UNIQKEY in properties
        if is_recall or names.TIMER_ROLL_TIMES in properties:
            last, key = self._last.setdefault(second, {}), _key(properties)
            last[key] = -1 if is_recall or last.get(key) == -1 else offset
        if second not in self._seconds:
            self._seconds[second] = array("q")
            heapq.heappush(self._heap, second)
        self._seconds[second].append(offset)
        self._waiting += 1
        self.on_scheduled(second + 1 - self._clock.now())

    # Delivery.

    def _deliver_batch(self, second: int) -> int:
        """Deliver the next messages of a second; return how many of its entries were processed."""
        offsets = self._seconds[second]
        count, records = batch_of(self._wanted(second, offset) for offset in offsets)
        self._store.append_batch(records)
        self._waiting -= count
        del offsets[:count]
        if not offsets:
            heapq.heappop(self._heap)
            self._drop(second)
        return count

    def _drop(self, second: int) -> None:
        """All of it is delivered."""
        del self._seconds[second]
        self._last.pop(second, None)

    def _wanted(self, second: int, offset: int) -> Record | None:
        """The record for the real queue; None for a recall, for what was recalled or rolled, or cannot be read."""
        record = read_held_back(self._store, TIMER_TOPIC, 0, offset, self._observe)
        last = self._last.get(second)
        if record is None or last is None:
            return record
        return record if last.get(_key(names.decode(record.raw_properties)), offset) == offset else None

    # The position.

    def _position(self) -> Position:
        now = int(self._clock.now())
        read_to = self._queue.position
        first = min((offsets[0] for offsets in self._seconds.values()), default=read_to)
        done = min(self._heap[0], now) if self._heap else now
        return Position(first, read_to, done * 1000)

    def _load(self) -> Position:
        first, end = self._store.min_offset(TIMER_TOPIC, 0), self._store.max_offset(TIMER_TOPIC, 0)
        data = read_whole(self._files, CHECKPOINT) or b""
        if len(data) < _THEIRS.size:
            return Position(first)
        done_ms, _, read_to, _ = _THEIRS.unpack_from(data)
        if len(data) >= _OURS_AT + _OURS.size:
            waits, _, checksum = _OURS.unpack_from(data, _OURS_AT)
            if checksum == zlib.crc32(data[_OURS_AT : _OURS_AT + _OURS.size - 4]):
                first = max(first, waits)  # also if Apache RocketMQ has gone on since then
        return Position(min(first, end), min(read_to, end), done_ms)

    def _is_saved(self, position: Position, log_bytes: int = 0) -> bool:
        """Save it, with the size of the log of what waits. A full disk stops no start and no stop."""
        try:
            self._save(position, log_bytes=log_bytes)
        except OSError as error:
            self._observe(LoopFailed("timers", f"{self._files.place(CHECKPOINT)} cannot be written: {error}"))
            return False
        return True

    def _save(self, position: Position, *, log_bytes: int = 0) -> None:
        # Without its log, Apache RocketMQ begins at the lesser one of the two offsets.
        again = position.read_to if log_bytes else position.first
        theirs = _THEIRS.pack(position.done_ms, log_bytes, position.read_to, again)
        ours = struct.pack(">q32s", position.first, theirs)
        data = theirs.ljust(_OURS_AT, b"\0") + ours + struct.pack(">I", zlib.crc32(ours))
        replace_whole(self._files, CHECKPOINT, data.ljust(_PAGE, b"\0"))
        if not log_bytes:  # what is there is of another time
            for name in self._files.names(LOG):
                self._files.remove(f"{LOG}/{name}")
            self._files.remove(WHEEL)

    def _write_log(self, position: Position) -> Generator[None, None, int]:
        """Write Apache RocketMQ's log of what waits, a part at each step; return its size."""
        with contextlib.closing(self._files.open(f"{LOG}/{0:020d}", create=True)) as file:
            file.truncate(_LOG_BYTES)
            size, before, last = 0, -1, -1
            for count, (second, offset) in enumerate(self._kept(), 1):
                slot = min(second * 1000, position.done_ms + _WHEEL_MS)
                magic = _PLAIN if slot == second * 1000 else _PLAIN | _ROLL
                before, last = before if second == last else -1, second
                entry = self._entry(offset, before, magic, position, slot)
                file.write(entry, size)
                before, size = size if entry else before, size + len(entry)
                if count % _MOST_READ == 0:
                    yield
            # From its last entry Apache RocketMQ learns how far the topic was read. That second is over.
            end = self._store.max_offset(TIMER_TOPIC, 0)
            entry = self._entry(end - 1, -1, _PLAIN, position, position.done_ms - 60_000)
            file.write(entry, size)
            file.sync()
        return size + len(entry)

    def _kept(self) -> Iterator[tuple[int, int]]:
        """The second and the offset of what will be delivered."""
        for second in sorted(self._seconds):
            for offset in self._seconds[second]:
                if second not in self._last or self._wanted(second, offset) is not None:
                    yield second, offset

    def _entry(self, offset: int, before: int, magic: int, position: Position, slot: int) -> bytes:
        entry = self._store.entry(TIMER_TOPIC, 0, offset)
        if entry is None:
            return b""
        physical, size, _ = entry
        return _ENTRY.pack(_ENTRY.size, before, magic, position.done_ms, slot - position.done_ms, physical, size, 0, 0)


def _key(properties: dict[str, str]) -> str:
    """What a message and its recall have in common."""
    return f"{properties.get(names.REAL_TOPIC, '')} {properties.get(names.UNIQ_KEY, '')}"
