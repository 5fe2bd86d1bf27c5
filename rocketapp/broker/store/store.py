"""The message store: appends to the commit log, keeps the consume queues, reads for pulls.

Rule: when `append` returns, the bytes are with the operating system, and only then do readers see the message. They
survive a loss of power when `durable_position` is behind them: who must wait for that waits for the position. When
`append` raises, readers will never see the message, unless the error says `is_unknown`. After a failed sync nothing is
written any more, and nothing more becomes durable, because it is unknown which pages are on disk.

One thread uses a store; only `Flush.run` may run in another one.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from rocketapp.broker.store.checkpoint import Checkpoint
from rocketapp.broker.store.commit_log import BLANK_BYTES, CommitLog
from rocketapp.broker.store.consume_queue import DIRECTORY, ConsumeQueue
from rocketapp.broker.store.consume_queues import ConsumeQueues, Queues, stored_ms_at
from rocketapp.broker.store.files import Files, read_whole, replace_whole
from rocketapp.broker.store.flush import Flush
from rocketapp.broker.store.reading import Matches, ReadResult, read_queue
from rocketapp.broker.store.recovery import records_of, recover
from rocketapp.broker.store.repair import QueueRepair
from rocketapp.broker.store.stored import HEAD_BYTES, Stored, announced_size, blank_at, next_sound, parse
from rocketapp.clock import Clock
from rocketapp.config.broker import BrokerConfig
from rocketapp.errors import ConfigError, StoreError
from rocketapp.model.event import LoopFailed, Observe, RecordDamaged, StoreReadOnly, unobserved
from rocketapp.model.names import topic_problem
from rocketapp.wire.layout import TRANSACTION_PREPARED, Record, encode_stored

ABORT = "abort"
"""This file exists while a broker runs. A broker that finds it at its start knows that the last one was killed."""

_new_stored = tuple.__new__
"""With nine values a call of `Stored` costs several times as much, and each send pays for one."""

FORMAT_FILE, FORMAT = "rocketapp.format", 1
"""What the files of a directory mean. It grows when an older version would misread them; Apache RocketMQ's own do not
change. Apache RocketMQ leaves the file alone."""

_MOST_DAMAGED = 8_388_608
"""Bytes of another log behind damage within which a record has to follow; by default the largest has half of them."""
_COPY = "this broker is a slave: only its master takes messages"

Follow = Callable[[Sequence[Stored]], None]
"""Called with records that were appended, in the order of the log, when readers can see them."""


class MessageStore:
    """Every message of one broker."""

    refusal: str | None = None
    """Why no message is taken at the moment; None when they are."""
    ignores_case: bool = False
    """Whether the disk takes `orders` and `Orders` for one name, so that two such topics would share their files."""

    def __init__(self, files: Files, config: BrokerConfig, clock: Clock, observe: Observe = unobserved) -> None:
        """Open or create the store in these files, and recover it if necessary."""
        self.files: Files = files
        self._clock, self._observe = clock, observe
        self.problem: str | None = None
        """Why nothing is stored any more; None while the store works."""
        self._is_closed = False
        _check_format(files, config.dir)
        self.log: CommitLog = CommitLog(files, config.segment_bytes, writes_ahead=config.flush == "sync")
        is_clean = ABORT not in files.names("")
        self.checkpoint: Checkpoint = self._begin()
        self.is_copy: bool = config.role == "slave"
        """Whether the messages come from another log alone, so that none has a place of its own here."""
        self.queues: ConsumeQueues = ConsumeQueues(files, observe, is_copy=self.is_copy)
        self.repair: QueueRepair = QueueRepair(self.log, self.queues)
        last = recover(self.log, self.queues, self.checkpoint, is_clean=is_clean, observe=observe)
        self.last_position: int = -1 if last is None else last.physical
        """The position of the last record, -1 without one."""
        self.last_ms: int = 0 if last is None else last.stored_ms
        """When the last record was stored, in milliseconds since 1970; 0 without one."""
        self.placed: Callable[[Record], Record] = lambda record: record
        """What is stored of a record that has waited, in a queue that there is; the owner of topics replaces it."""
        self.followers: list[Follow] = [self.queues.follow]
        """Who follows the log from now on. They are quick and must not raise. The queues are the first."""
        self._deleting: set[str] = set()
        self._flush: Flush | None = None
        self.durable_position: int = 0
        """Everything below this position survives a loss of power."""
        self.recovered_end: int = self.log.end
        """The end of the log when it was opened."""
        self.flush(log_only=True)  # what the queues have yet to sync may be lost once more: it is made from the log

    def __repr__(self) -> str:
        return f"<MessageStore {len(self.queues)} queues, log to {self.log.end}>"

    def _begin(self) -> Checkpoint:
        abort = self.files.open(ABORT, create=True)
        with contextlib.suppress(OSError):  # a full disk has room for the name, which says everything
            abort.truncate(0)
            abort.write(b"%d" % os.getpid(), 0)
        abort.close()
        checkpoint = Checkpoint(self.files)
        if self.log.min_position == self.log.files_end:
            checkpoint.write(0, self.log.min_position, 0)  # an empty log is certainly flushed
        checkpoint.sync()
        self.files.sync_directory("")
        with contextlib.suppress(OSError):
            self.files.open(ABORT.upper()).close()
            self.ignores_case = True
        return checkpoint

    def close(self) -> None:
        """Flush everything, mark the stop as clean, and release the directory."""
        if self._is_closed:
            return
        self.flush()
        self._is_closed = True
        is_clean = self.problem is None and self.queues.position == self.log.end
        self.checkpoint.close()
        self.queues.close()
        if is_clean:
            self.files.remove(ABORT)
        self.log.close()
        self.problem = self.problem or "the store is closed"
        self.files.close()

    # Writing

    def append(self, record: Record) -> Stored:
        """Store one message, with its offsets and store time. Raises StoreError."""
        return self.append_batch((record,))[0]

    def append_batch(self, records: Sequence[Record], *, ignores_refusal: bool = False) -> list[Stored]:
        """Store several messages with one write: all of them or none. Raises StoreError.

        What no segment has room for together is stored one by one, and a later one that fails says `is_unknown` of all.
        `ignores_refusal`: also while no message is taken, for records that let others go.
        """
        log = self.log
        problem = self.problem or (_COPY if self.is_copy else None if ignores_refusal else self.refusal)
        if problem is not None and records:
            raise StoreError(problem)
        done, data = self._encoded(records, log.end)
        if len(data) > log.max_append_bytes:
            try:
                return [self.append_batch((record,), ignores_refusal=ignores_refusal)[0] for record in records]
            except StoreError as error:
                raise StoreError(error.problem, error.is_unknown or self.last_position >= done[0].physical) from error
        if done:
            try:
                place = log.make_room(len(data))
                if place != done[0].physical:
                    self.queues.write()  # after a kill, Apache RocketMQ rebuilds the last segments' entries only
                    done, data = self._encoded(records, place)
                log.write(data)
            except StoreError as error:
                self._failed(error)
                raise
            self._dispatch(done)
        return done

    def _encoded(self, records: Sequence[Record], position: int) -> tuple[list[Stored], bytes]:
        """These records as they stand in the log from this position on. Raises StoreError, ProtocolError."""
        stored_ms, room = max(int(self._clock.now() * 1000), self.last_ms), self.log.max_append_bytes
        offsets: dict[ConsumeQueue, int] = {}
        done: list[Stored] = []
        parts: list[bytes] = []
        for record in records:
            topic, body, raw, queue_id, _, _, _, sys_flag = record[:8]
            if 0 in raw:
                raise StoreError("a property holds a NUL character")
            queue = self.queues.get((topic, queue_id)) or self._new_queue(topic, queue_id)
            offset = 0
            if not sys_flag & TRANSACTION_PREPARED:
                offset = offsets.get(queue, queue.max_offset)
                offsets[queue] = offset + 1
            data = encode_stored(record, offset, position, stored_ms)
            size = len(data)
            if size > room:
                raise StoreError(f"{size} bytes do not fit into a segment: see broker.segment_bytes")
            parts.append(data)
            done.append(_new_stored(Stored, (position, size, topic, queue_id, offset, sys_flag, stored_ms, raw, body)))
            position += size
        return done, parts[0] if len(parts) == 1 else b"".join(parts)

    def append_copied(self, position: int, data: bytes) -> int:
        """Store the whole records at the start of these bytes, which are those of another log from this position on.

        Returns how many bytes were taken. The rest is part of a record, of which more is to come. Damaged bytes are
        kept as they are, up to the next record. Raises StoreError where nothing follows them for long, and for a record
        that has another place there than it would have here.
        """
        if position != self.log.end and self.log.min_position == self.log.files_end:
            self.log.begin_empty(position)
        at = 0
        while size := self._copy_run(position, data, at):
            at += size
        return at

    def _copy_run(self, position: int, data: bytes, at: int) -> int:
        """Store the next records that lie in one segment, with one write; return their bytes. `position`: of `data`."""
        log, start, records = self.log, at, list[Stored]()
        limit = log.segment_end(position + at) - BLANK_BYTES
        while stored := parse(data, at, position + at, check_body=False):
            if position + at + stored.size > limit:
                break
            records.append(stored)
            at += stored.size
        if not records:
            return self._pass(position, data, at)
        for topic, queue_id in ((one.topic, one.queue_id) for one in records if self._deleting):
            if topic in self._deleting and (topic, queue_id) not in self.queues:
                raise StoreError(f"topic {topic} is being deleted")
        self._write_copied(records[0].physical, records[0].size, data[start:at])
        self._dispatch(records)
        return at - start

    def _write_copied(self, position: int, size: int, data: bytes) -> None:
        """Write these bytes at this position, where so many fit into the segment. Raises StoreError."""
        log, problem = self.log, self.problem or self.refusal
        # A batch may have left more free than its first record needs.
        size = size if position == log.end else log.max_append_bytes
        place = log.next_position(size)
        if place != position:
            problem = problem or f"the record of position {position} would be at {place} here"
        if problem is not None:
            raise StoreError(problem)
        if place != log.end:
            self.queues.write()
        try:
            log.make_room(size)
            log.write(data)
            log.distrust_below(log.end)
        except StoreError as error:
            self._failed(error)
            raise

    def _pass(self, position: int, data: bytes, at: int) -> int:
        """Pass what is no whole record: the size of a blank or of damage; 0: more is to come. Raises StoreError."""
        place, left, end = position + at, len(data) - at, self.log.segment_end(position + at)
        problem = f"the record at {place} is damaged, or broker.segment_bytes differs"
        blank = blank_at(data, at)
        if blank:
            if place + blank != end:
                raise StoreError(problem)
            return blank if blank <= left else 0
        size, room = announced_size(data, at, place), end - BLANK_BYTES - place
        fits = size <= room
        if fits and left < min(max(size, HEAD_BYTES), _MOST_DAMAGED):
            return 0
        following = next_sound(data, at + 4, position, end)
        if following < 0:
            # A larger record than there is room for is a sign of other segments: none follows within this one.
            if left < (max(size, _MOST_DAMAGED) if fits else min(end - place, _MOST_DAMAGED)):
                return 0
            raise StoreError(problem)
        self._write_copied(place, room, data[at : min(following, at + room)])
        self._observe(RecordDamaged("", -1, -1, place))
        return following - at

    def _dispatch(self, records: Sequence[Stored]) -> None:
        """These are in the log: let everybody follow."""
        last = records[-1]
        self.last_ms, self.last_position = last.stored_ms, last.physical
        for follow in self.followers:
            follow(records)

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue of the first record for it. Raises StoreError when that may not be stored."""
        problem = topic_problem(topic)
        if topic in self._deleting:
            problem = f"topic {topic} is being deleted"
        if problem is not None or queue_id < 0:
            raise StoreError(problem or f"queue id {queue_id} is negative")
        return self.queues.ensure(topic, queue_id)

    def _failed(self, error: StoreError) -> None:
        """Stop writing for good after an error that leaves the disk in an unknown state."""
        if error.is_unknown and self.problem is None:
            self.problem = f"the store is read-only since: {error.problem}"
            self._observe(StoreReadOnly(error.problem))

    # Flushing

    def flush(self, *, log_only: bool = False) -> None:
        """Flush everything now, after a flush that was begun and not ended. No other thread runs it any more."""
        if self._flush is not None:
            self._flush.run()
            self.end_flush(self._flush)
        flush = self.begin_flush(everything=not log_only, log_only=log_only)
        if flush is not None:
            flush.run()
            self.end_flush(flush)

    def begin_flush(self, *, everything: bool = False, log_only: bool = False) -> Flush | None:
        """A flush of everything appended so far; None if nothing is new or another flush is under way.

        Call `run` in any thread, then pass it to `end_flush`. `log_only`: replies wait for it, and the queues do not
        matter. `everything`: the queues too, and the hint.
        """
        end = self.log.end
        done = self.durable_position if log_only else self.queues.position
        if self._flush is not None or self.problem is not None or done == end:
            return None
        flush = Flush(self.files, self.log, self.checkpoint, self.last_ms)
        if not log_only:
            self.queues.begin_flush(flush, self.last_position, everything=everything)
        self._flush = flush
        return flush

    def end_flush(self, flush: Flush) -> None:
        """Process the result of a flush."""
        if flush is not self._flush:
            return
        self._flush = None
        if flush.fatal is not None:
            self._failed(StoreError(f"sync failed: {flush.fatal}", True))
            return
        self.log.synced(flush.log_files[:-1])  # the last one was not full when the flush began
        self.durable_position = flush.log_end
        if flush.created is not None:
            self.log.created(flush.created)
        self.queues.end_flush(flush)
        if flush.problem is not None:
            self._observe(LoopFailed("flush", str(flush.problem)))

    # Reading

    @property
    def begin_position(self) -> int:
        """The position of the oldest byte that still exists."""
        return self.log.min_position

    @property
    def end_position(self) -> int:
        """The position of the next record."""
        return self.log.end

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        matches: Matches | None = None,
        trusts: bool = False,
    ) -> ReadResult:
        """Read messages: see `reading.read_queue`. Entries that disagree with the log are made again from it.

        `trusts`: for a pull. What is stored anew gets a CRC of its own, so whoever does that looks at the old one.
        Raises StoreError while entries are made again beside the loop.
        """
        trusts = trusts and self.problem is None  # after a failed sync the pages may be in memory only
        queue, limits = self.queues.get((topic, queue_id)), (max_messages, max_bytes)
        damaged: list[tuple[int, int]] = []
        result = read_queue(self.log, queue, offset, limits, matches=matches, damaged=damaged, trusts=trusts)
        while damaged and queue is not None and self.repair.rebuild_entries(queue, [offset for offset, _ in damaged]):
            damaged.clear()
            result = read_queue(self.log, queue, offset, limits, matches=matches, damaged=damaged, trusts=trusts)
        for at, physical in damaged:
            self.log.distrust_below(physical + 1)
            self._observe(RecordDamaged(topic, queue_id, at, physical))
        return result

    def message(self, topic: str, queue_id: int, offset: int) -> bytes | None:
        """The record of one message; None if the queue does not have it or it is damaged, which is reported."""
        return self.read(topic, queue_id, offset, max_messages=1, max_bytes=1).body or None

    def record_at(self, physical_offset: int) -> bytes | None:
        """The whole record at this position; None if none begins there. Bytes inside a body never count as one."""
        size = announced_size(self.log.read(physical_offset, HEAD_BYTES), 0, physical_offset)
        if not size or size > self.log.end - physical_offset:
            return None
        data = self.log.read(physical_offset, size)
        stored = parse(data, 0, physical_offset)
        entry = None if stored is None else self.entry(stored.topic, stored.queue_id, stored.queue_offset)
        return data if entry is not None and entry[0] == physical_offset else None

    def entry(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code of a message; None if the queue does not have it.

        For a delayed one the code is the time when it is due, in milliseconds since 1970.
        """
        queue = self.queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return None
        return queue.entry(offset)

    def topics(self) -> set[str]:
        """The topics that hold, or once held, messages."""
        return {topic for topic, _ in self.queues}

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that hold, or once held, messages."""
        return sorted(queue_id for name, queue_id in self.queues if name == topic)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the oldest message that still exists."""
        queue = self.queues.get((topic, queue_id))
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next message will have."""
        queue = self.queues.get((topic, queue_id))
        return 0 if queue is None else queue.max_offset

    def offset_before(self, position: float, topic: str, queue_id: int, offset: int) -> int:
        """This offset of a queue; or the one that its next message had when the log ended at this position."""
        queue = self.queues.get((topic, queue_id))
        return 0 if queue is None else queue.offset_before(offset, position)

    def stored_ms_at(self, topic: str, queue_id: int, offset: int) -> int | None:
        """When a message was stored, in milliseconds since 1970; None if the queue does not have it."""
        entry = self.entry(topic, queue_id, offset)
        return None if entry is None else stored_ms_at(self.log, entry[0])

    def first_stored_ms(self) -> int | None:
        """When the first record of the log was stored, in milliseconds since 1970; None for an empty log."""
        return stored_ms_at(self.log, self.log.min_position)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = "lower") -> int:
        """`lower`: the first offset stored at that time or later; `upper`: the last one stored at that time or before.

        When all messages are older, the answer is the end, or the last offset. When all are younger, it is the
        first offset, or 0. Store times never decrease within a log, so a search by halves finds it. Damaged records
        count as stored before, so the answer is wrong by at most their number.
        """
        log, queue = self.log, self.queues.get((topic, queue_id))
        if queue is None:
            return 0
        # The upper boundary is the offset before the first one that was stored later.
        limit = timestamp_ms if boundary == "lower" else timestamp_ms + 1

        def is_later(offset: int) -> bool:
            stored_ms = stored_ms_at(log, queue.entry(offset)[0])
            return stored_ms is not None and stored_ms >= limit

        found = queue.first_where(is_later, queue.min_offset, queue.max_offset)
        if boundary == "lower":
            return found
        return found - 1 if found > queue.min_offset else 0

    def records(self, position: int, limit: int) -> Iterator[Stored]:
        """The records of this part of the log. Damaged ones are left out."""
        return records_of(self.log, position, limit)

    # Retention

    def expired(self, before_ms: float, keep_from: float = math.inf) -> int:
        """Where the log may begin: behind the segments whose messages were all stored before this time.

        What recovery reads stays, and so does the last segment, and everything from `keep_from` on.
        """
        log = self.log
        found = position = log.min_position
        limit = log.segment_start(max(min(self.queues.position, self.durable_position, log.end - 1), position))
        while position < limit and log.segment_end(position) <= keep_from:
            position = log.segment_end(position)
            stored_ms = stored_ms_at(log, position)
            if stored_ms is None:
                continue  # the records behind a damaged one say how old it is at most
            if stored_ms >= before_ms:
                break
            found = position
        return found

    # Deleting topics

    def begin_delete(self, below: Mapping[str, float]) -> Queues:
        """Forget what lies below a position of these topics.

        `distrust_hint`, a flush of everything and `end_delete` follow. The hint must not name queues that are deleted,
        so it is written without them before their files go. Until `deleted` is called no message of these topics is
        taken, because a new queue has the same files. Queues with messages from that position of the log on stay.
        """
        doomed = self.queues.forget_topics({topic: at for topic, at in below.items() if topic not in self._deleting})
        self._deleting.update(topic for topic, _ in doomed)
        return doomed

    def distrust_hint(self) -> None:
        """Let the next flush of everything write the hint, whatever it says now. No other flush may be under way."""
        self.queues.position = -1

    def end_delete(self, doomed: Queues) -> list[str]:
        """The files and directories that are to be removed, in any thread. StoreError: the topics stay."""
        if self.queues.position < 0:
            topics = ", ".join(sorted({topic for topic, _ in doomed}))
            raise StoreError(f"topic {topics} is not deleted: {self.problem or 'the disk refuses the recovery hint'}")
        paths = [path for queue in doomed.values() for path in queue.forget()]
        left = self.topics()
        return paths + [
            f"{DIRECTORY}/{topic}" for topic in dict.fromkeys(topic for topic, _ in doomed) if topic not in left
        ]

    def cancel_delete(self, doomed: Queues) -> None:
        """Serve these queues again: their topics stay."""
        self.queues.update(doomed)
        self.log.distrust_below(self.log.end)  # a search that went on meanwhile has left them out
        self.deleted(doomed)

    def deleted(self, doomed: Queues) -> None:
        """Take messages of these topics again: their files are removed, or they stay."""
        self._deleting.difference_update(topic for topic, _ in doomed)


def _check_format(files: Files, directory: str) -> None:
    """Raises ConfigError for a directory that a newer version wrote; otherwise it has the format of this one now."""
    written = b"%d" % FORMAT
    with contextlib.suppress(OSError):  # a full or failing disk: the store itself says what can be done with it
        found = (read_whole(files, FORMAT_FILE) or b"").strip()
        if found.isdigit() and int(found) > FORMAT:
            problem = f"a newer version wrote this directory (format {int(found)}, this version knows {FORMAT})"
            raise ConfigError(directory, f"{problem}: start that version, or choose another directory (broker.dir)")
        if found != written:
            replace_whole(files, FORMAT_FILE, written)
