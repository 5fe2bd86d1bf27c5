"""Delayed messages: they wait in SCHEDULE_TOPIC_XXXX, one queue per level, until they are due.

A consume-queue entry of that topic contains the time when its message is due. Within a level,
messages become due in the order in which they arrived, so only the first of each level is checked.

Rule: never early, never lost. A level's offset moves after its messages were appended to their
real topics, and is saved when that part of the log is on disk: a crash repeats the last seconds.
Java: ScheduleMessageService.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from rocketapp.broker.store.config_files import DELAY_OFFSETS, ConfigFile, DataVersion
from rocketapp.broker.store.files import Files
from rocketapp.broker.store.queue_follower import QueueFollower
from rocketapp.broker.store.store import MessageStore
from rocketapp.broker.store.stored import Stored
from rocketapp.clock import Clock
from rocketapp.errors import ConfigError, StoreError
from rocketapp.model.event import LoopFailed, Observe, RecordDamaged, unobserved
from rocketapp.model.names import DELAY_SECONDS, FORBIDDEN_TOPICS, SCHEDULE_TOPIC, topic_problem
from rocketapp.wire import properties as names
from rocketapp.wire.layout import Record, decode_record

_LEVELS = range(1, len(DELAY_SECONDS) + 1)
BATCH, _BATCH_BYTES = 64, 4_194_304
"""What one write delivers: messages, and about how many bytes."""


def delayed(record: Record, level: int) -> Record:
    """The record that waits in the schedule topic for this one. Levels above the highest count as the highest."""
    level = min(level, _LEVELS[-1])
    return held_back(record, SCHEDULE_TOPIC, level - 1, {names.DELAY: str(level)})


def held_back(record: Record, topic: str, queue_id: int, own: Mapping[str, str]) -> Record:
    """The record to store in place of this one, with additional properties; `restored` reverses it."""
    own = {**own, names.REAL_TOPIC: record.topic, names.REAL_QID: str(record.queue_id)}
    return record._replace(topic=topic, queue_id=queue_id, raw_properties=names.appended(record.raw_properties, own))


def read_held_back(store: MessageStore, topic: str, queue_id: int, offset: int, observe: Observe) -> Record | None:
    """The original record of a held-back one; None, which is reported, if it cannot be read."""
    data = store.message(topic, queue_id, offset)
    if data is None:
        return None
    waiting = decode_record(data)
    record = restored(waiting)
    if record is None:
        observe(RecordDamaged(topic, queue_id, offset, waiting.physical_offset))
        return None
    return store.placed(record)


def restored(record: Record) -> Record | None:
    """The record for its real queue; None if it does not name a legal one."""
    properties = names.decode(record.raw_properties)
    topic, queue_id = properties.get(names.REAL_TOPIC, ""), properties.get(names.REAL_QID, "")
    if topic_problem(topic) or topic in FORBIDDEN_TOPICS or not queue_id.isdecimal() or 0 in record.raw_properties:
        return None
    return record._replace(topic=topic, queue_id=int(queue_id))


def batch_of(found: Iterable[Record | None]) -> tuple[int, list[Record]]:
    """How many of these messages to process at once, and their records; None: skip this message."""
    count, size, records = 0, 0, list[Record]()
    for record in islice(found, BATCH):
        count += 1
        if record is not None:
            records.append(record)
            size += len(record.body)
        if size >= _BATCH_BYTES:
            break
    return count, records


class DelayedMessages:
    """The delay levels of one store. The owner of the timer calls `next_due_ms` and `deliver_due`."""

    def __init__(self, store: MessageStore, files: Files, clock: Clock, observe: Observe = unobserved) -> None:
        self._store, self._clock, self._observe = store, clock, observe
        self._file = ConfigFile(files, DELAY_OFFSETS, observe)
        self._version = DataVersion()
        self.on_scheduled: Callable[[float], object] = float
        """Called with the seconds until each message that is scheduled is due; the owner of the timer replaces it."""
        self._saved = self._load()
        # An offset may lie beyond the end when the log was cut. The next messages of the level are new then.
        ends = {level: store.max_offset(SCHEDULE_TOPIC, level - 1) for level in _LEVELS}
        self._offsets = {level: min(self._saved[level], end) for level, end in ends.items()}
        for level, end in ends.items():
            QueueFollower(store, SCHEDULE_TOPIC, level - 1, end, self._stored)

    def __repr__(self) -> str:
        waiting = sum(len(self.waiting(level)) for level in _LEVELS)
        return f"<DelayedMessages: {waiting} wait>"

    def _stored(self, stored: Stored) -> None:
        self.on_scheduled(DELAY_SECONDS[stored.queue_id])

    def waiting(self, level: int) -> range:
        """The offsets of the messages of a level that wait."""
        return range(self._first(level), self._store.max_offset(SCHEDULE_TOPIC, level - 1))

    def first_position(self) -> int | None:
        """The position in the log of the first waiting message; None without any."""
        return min((entry[0] for entry in self._heads() if entry is not None), default=None)

    def next_due_ms(self) -> int | None:
        """When the next message is due, in milliseconds since 1970; None when no message waits."""
        return min((entry[2] for entry in self._heads() if entry is not None), default=None)

    def deliver_due(self, now_ms: int, limit: int = 1024) -> int:
        """Append due messages to their real queues; return their number. Stops at the limit; more may be due then.

        Raises StoreError for a level that cannot go on, when the others have had their turn.
        """
        delivered, problem = 0, None
        for level in _LEVELS:
            try:
                while delivered < limit:
                    count = self._deliver_batch(level, now_ms)
                    delivered += count
                    if count < BATCH:
                        break
            except StoreError as error:
                problem = error
        if problem is not None:
            raise problem
        return delivered

    def to_json(self) -> dict[str, Any]:
        """How far each level is delivered, in the form of delayOffset.json. It is true of the log as it is now."""
        return {"dataVersion": self._version.to_json(), "offsetTable": dict(self._offsets)}

    def to_save(self) -> Callable[[], None] | None:
        """A function that writes delayOffset.json, in any thread, when all of the log until now is on disk.

        None: nothing has changed.
        """
        if self._offsets == self._saved:
            return None
        self._version.changed(self._clock.now())
        saved, offsets = self.to_json(), dict(self._offsets)

        def save() -> None:
            self._file.save(saved)
            self._saved = offsets

        return save

    def take_over(self, saved: Mapping[str, Any]) -> None:
        """Count as delivered what the master has delivered, in the form of delayOffset.json; the log here has it.

        Raises ValueError when it is not one.
        """
        for level, offset in _offsets_of(saved).items():
            if level in self._offsets:
                end = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
                self._offsets[level] = max(self._offsets[level], min(offset, end))

    def close(self) -> None:
        """Save everything: called when the store is flushed. An OSError is reported, and keeps nothing from ending."""
        try:
            if (save := self.to_save()) is not None:
                save()
        except OSError as error:
            self._observe(LoopFailed(f"saving {self._file.place}", str(error)))

    def _heads(self) -> Iterator[tuple[int, int, int] | None]:
        """The entry of the first message of each level that waits."""
        return (self._store.entry(SCHEDULE_TOPIC, level - 1, self._first(level)) for level in _LEVELS)

    def _first(self, level: int) -> int:
        offset = max(self._offsets[level], self._store.min_offset(SCHEDULE_TOPIC, level - 1))
        self._offsets[level] = offset
        return offset

    def _deliver_batch(self, level: int, now_ms: int) -> int:
        """Deliver the next messages of a level; return how many of its entries were processed."""
        count, records = batch_of(self._due(level, now_ms))
        self._store.append_batch(records)
        self._offsets[level] += count
        return count

    def _due(self, level: int, now_ms: int) -> Iterator[Record | None]:
        """The messages of a level that are due; None for one that cannot be read."""
        for offset in self.waiting(level):
            entry = self._store.entry(SCHEDULE_TOPIC, level - 1, offset)
            if entry is None or entry[2] > now_ms:
                return
            record = read_held_back(self._store, SCHEDULE_TOPIC, level - 1, offset, self._observe)
            again = self._store.entry(SCHEDULE_TOPIC, level - 1, offset)
            if again is not None and again[2] > now_ms:  # reading has made the entry again
                return
            yield record

    def _load(self) -> dict[int, int]:
        saved = self._file.load()
        try:
            offsets = {} if saved is None else _offsets_of(saved)
        except ValueError:
            raise ConfigError(self._file.place, "has no offsetTable: put back its .bak") from None
        self._version = DataVersion.from_json((saved or {}).get("dataVersion"), self._version)
        return {level: offsets.get(level, 0) for level in _LEVELS}


def _offsets_of(saved: Mapping[str, Any]) -> dict[int, int]:
    """The offsets of delayOffset.json by level. Raises ValueError when it has none."""
    return msgspec.convert(saved.get("offsetTable"), dict[int, int], strict=False)
