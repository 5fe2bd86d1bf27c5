"""The consume queues of one store: they follow its log, record by record, at a start as at any time.

Each record contains its queue offset. Normally that is the next one of its queue. If it is not, the
offset is damaged, or records before it are missing, or the topic was deleted and created again. The
next record of the same queue decides which, so that one flipped bit costs one message. Without one it is
decided before a hint is written: it may be the last message of its queue for long.

Rule: `position` is durable, and the hint says it: what the log contains below it is in the files of the queues. A
start goes on there. Another broker's directory has an older position, which the ends of its queues say, or its
checkpoint; the least one is where the log begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from rocketapp.broker.store.checkpoint import Checkpoint, Hint, forget_hint, load_hint
from rocketapp.broker.store.commit_log import CommitLog
from rocketapp.broker.store.consume_queue import DIRECTORY, ConsumeQueue, QueueFiles, Take
from rocketapp.broker.store.files import Files
from rocketapp.broker.store.flush import Flush
from rocketapp.broker.store.stored import HEAD_BYTES, Stored, TagsCodes, announced_size, parse, stored_ms_of
from rocketapp.model.event import LoopFailed, Observe, RecordDamaged
from rocketapp.model.names import topic_problem
from rocketapp.wire.layout import TRANSACTION_PREPARED

_MOST_MISSING = 1_000_000
"""An offset that is farther ahead of its queue than this is damaged."""
_MOST_UNWRITTEN = 65_536
"""Entries in memory (20 bytes each) above which they are written before the next flush."""
_HINT_BYTES, _HINT_FLUSHES = 33_554_432, 10
"""A hint is written after this many bytes of log or this many flushes, which limits what a start has to read."""
_MOST_SYNCED = 256
"""Files that one flush syncs, so that thousands of them do not keep the log, and replies, waiting."""
_MOST_DOUBTED = 1000
"""Last entries of a queue that may disagree with the log before a start goes back farther."""
_APACHES_MARGIN_MS = 3000
"""Apache RocketMQ's own distrust of its checkpoint: two flushes are under way at most."""

Queues = dict[tuple[str, int], ConsumeQueue]


class Place(NamedTuple):
    """Where following the log goes on."""

    position: int
    last_record: int = -1
    """The record before it; -1 if it is not known."""
    is_anew: bool = False
    """Whether no queue of the files is of use."""


class _Round(NamedTuple):
    """A flush of all queues: the files that are left, and the hint that is true afterwards."""

    files: dict[str, bool]
    hint: Hint
    log_ms: int


class ConsumeQueues(dict[tuple[str, int], ConsumeQueue]):
    """Every queue by topic and queue id."""

    def __init__(self, files: Files, observe: Observe, *, is_copy: bool = False) -> None:
        """`is_copy`: of another log, of which the first segments may be missing here."""
        super().__init__()
        self._is_copy = is_copy
        self._opened = QueueFiles(files)
        self._observe = observe
        self._tags_codes = TagsCodes()
        self._doubtful: dict[ConsumeQueue, Stored] = {}
        self._followers: dict[tuple[str, int], Take] = {}
        self._unwritten = 0
        self._round: _Round | None = None
        self._flushes = 0
        self._seen_end = -1
        self._is_lost = False
        """Whether a sync failed. A queue that lost pages is made again at the next start, from the last hint on."""
        self.position: int = -1
        """What lies below this position of the log is durable here; -1: a hint is to be written whatever it says."""

    def __repr__(self) -> str:
        return f"<ConsumeQueues: {len(self)}, to {self.position}>"

    def ensure(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, which is made if there is none."""
        queue = self.get((topic, queue_id))
        if queue is None:
            queue = self[topic, queue_id] = ConsumeQueue(topic, queue_id, self._opened)
            queue.take = self._followers.get((topic, queue_id))
        return queue

    def has(self, queue: ConsumeQueue) -> bool:
        """Whether this is a present queue, whose topic was not deleted meanwhile."""
        return self.get((queue.topic, queue.queue_id)) is queue

    def subscribe_follower(self, topic: str, queue_id: int, take: Take) -> None:
        """Give each new message of this queue to its follower. The queue need not exist yet."""
        self._followers[topic, queue_id] = take
        queue = self.get((topic, queue_id))
        if queue is not None:
            queue.take = take

    # Following.

    def follow(self, records: Iterable[Stored]) -> None:
        """Add the entries of these records, which are the next ones of the log."""
        known, code_of, doubtful, count = self.get, self._tags_codes.of, self._doubtful, 0
        for stored in records:
            physical, size, topic, queue_id, offset, sys_flag, stored_ms, raw_properties, _ = stored
            if sys_flag & TRANSACTION_PREPARED:
                continue
            queue = known((topic, queue_id)) or self.ensure(topic, queue_id)
            before = doubtful.pop(queue, None) if doubtful else None
            if before is not None:
                self._decide_doubtful(queue, before, offset)
                queue = self[topic, queue_id]
            if offset != queue.max_offset:
                if not self._is_copy or queue.max_offset:
                    doubtful[queue] = stored
                    continue
                queue.begin_at(offset)
            queue.put(physical, size, code_of(topic, queue_id, raw_properties, stored_ms))
            count += 1
            if queue.take is not None:
                queue.take(stored)
        self._unwritten += count
        if self._unwritten >= _MOST_UNWRITTEN:
            self.write()

    def rebuild_entry(self, queue: ConsumeQueue, stored: Stored) -> bool:
        """Rebuild the entry of a record. Returns whether it has changed."""
        entry = stored.physical, stored.size, self._code(stored)
        if has_changed := queue.entry(stored.queue_offset) != entry:
            queue.replace(stored.queue_offset, *entry)
        return has_changed

    def finish(self) -> None:
        """No next record comes before a start: accept a doubtful offset if it is possible."""
        for queue, stored in self._doubtful.items():
            self._decide_doubtful(queue, stored, stored.queue_offset + 1)
        self._doubtful.clear()

    def _decide_doubtful(self, queue: ConsumeQueue, doubtful: Stored, following: int) -> None:
        """Decide on a doubtful record by the offset of the next record of its queue."""
        offset, expected = doubtful.queue_offset, queue.max_offset
        if following == expected + 1:
            self._put(queue, doubtful)  # in its place; readers notice that it is damaged
        elif following == offset + 1 and offset == 0:
            queue.remove()  # who still repairs or removes files of this one leaves those of the new one alone
            del self[queue.topic, queue.queue_id]
            self._put(self.ensure(queue.topic, queue.queue_id), doubtful)
        elif following == offset + 1 and expected == 0:
            queue.begin_at(offset)
            self._put(queue, doubtful)
        elif following == offset + 1 and expected < offset <= expected + _MOST_MISSING:
            # Entries of missing records point to the next existing one. Readers notice the different offset.
            while queue.max_offset <= offset:
                self._put(queue, doubtful)
        else:
            self._observe(RecordDamaged(doubtful.topic, doubtful.queue_id, offset, doubtful.physical))

    def _put(self, queue: ConsumeQueue, stored: Stored) -> None:
        """Put an entry where the offset of the record is not the next one."""
        queue.put(stored.physical, stored.size, self._code(stored))
        self._unwritten += 1

    def _code(self, stored: Stored) -> int:
        return self._tags_codes.of(stored.topic, stored.queue_id, stored.raw_properties, stored.stored_ms)

    # Becoming durable.

    def write(self) -> bool:
        """Write entries to their files. After an OSError, which is reported, the rest stays for the next call."""
        try:
            for queue in list(self._opened.unwritten):
                queue.write()
        except OSError as error:
            self._observe(LoopFailed("consume queues", str(error)))
            return False
        finally:
            self._unwritten = 0
        return True

    def begin_flush(self, flush: Flush, last_record: int, *, everything: bool) -> None:
        """Begin a round over the files, or go on with it. The flush that ends it moves `position`."""
        self._flushes += 1
        end = flush.log_end
        is_due = self._flushes >= _HINT_FLUSHES or end >= self.position + _HINT_BYTES or end == self._seen_end
        self._seen_end = end
        if everything and self._round is not None:
            self._opened.put_back(self._round.files)
            self._round = None
        begins = self._round is None and (everything or is_due)
        if begins:
            self.finish()  # a start from the hint does not read what is doubtful now
        if self.write() and begins:
            self._round = _Round(self._opened.take_unsynced(), self._hint(end, last_record), flush.log_ms)
        if self._round is not None:
            files = self._round.files
            flush.queue_files = {path: files.pop(path) for path in list(files)[: None if everything else _MOST_SYNCED]}
            if not files and not self._is_lost:
                flush.hint, flush.queues_ms = self._round.hint, self._round.log_ms

    def end_flush(self, flush: Flush) -> None:
        """Process the result of a flush."""
        if flush.queues_lost is not None:
            self._is_lost, self._round = True, None
            self._observe(LoopFailed("consume queues", f"sync failed: {flush.queues_lost}"))
        elif flush.queue_files and self._round is not None:
            self._round.files.update(flush.queue_files)
            self._observe(LoopFailed("consume queues", f"{len(flush.queue_files)} files cannot be opened"))
        if flush.problem is None and flush.hint is not None:
            self.position, self._flushes = flush.hint.position, 0
            self._round = None

    def _hint(self, end: int, last_record: int) -> Hint:
        marks: dict[str, dict[int, tuple[int, int]]] = {}
        for (topic, queue_id), queue in self.items():
            marks.setdefault(topic, {})[queue_id] = queue.max_offset, queue.last_physical
        return Hint(end, last_record, marks)

    def close(self) -> None:
        self._opened.close()

    # Where topics are deleted.

    def forget_topics(self, below: Mapping[str, float]) -> Queues:
        """Forget queues whose messages all lie below the position given for their topic, and return them.

        Their files stay.
        """
        taken = {
            key: queue
            for key, queue in self.items()
            if key[0] in below and queue.last_physical < below[key[0]] and queue not in self._doubtful
        }
        for key in taken:
            del self[key]
        return taken

    # A start.

    def open(self, log: CommitLog, checkpoint: Checkpoint, *, is_clean: bool) -> Place:
        """Open the files. The queues end where following goes on. `is_clean`: the last broker has stopped by itself."""
        hint = load_hint(self._opened.files)
        is_apaches = hint is None and checkpoint.queues_flushed_ms > 0
        if hint is not None and self._open_as_hinted(hint, log):
            # After a clean stop nothing lies behind it but what another broker has written since.
            self.position = hint.position if is_clean else -1
            for queue in () if is_clean else self.values():
                queue.zero_behind()
            return Place(hint.position, hint.last_record)
        if is_apaches and is_clean and (place := self._open_as_they_are(log)) is not None:
            return place
        forget_hint(self._opened.files)
        start = _flushed_by_apache(log, checkpoint) if is_apaches else log.min_position
        self._open_below(start, log.min_position)
        return Place(start, is_anew=start == log.min_position)

    def _open_as_hinted(self, hint: Hint, log: CommitLog) -> bool:
        """Open the queues as the hint describes them; False if the log or a queue disagrees with it."""
        if not log.min_position <= hint.position <= log.files_end:
            return False
        last = stored_at(log, hint.last_record)
        if last is not None and hint.position not in (last.physical + last.size, log.segment_end(last.physical)):
            return False  # a damaged last record proves nothing: then the ends of the queues have to agree
        queues: Queues = {}
        marks = ((topic, queue_id, mark) for topic, of in hint.queues.items() for queue_id, mark in of.items())
        for topic, queue_id, (max_offset, last_physical) in marks:
            queue = queues[topic, queue_id] = ConsumeQueue(topic, queue_id, self._opened)
            if not queue.open(max_offset):
                return False
            queue.last_physical = last_physical
            queue.find_min(log.min_position)
            if queue.min_offset < max_offset and queue.entry(max_offset - 1)[0] != last_physical:
                return False
        for key in self._on_disk():
            if key not in queues:  # it began after the hint, and is made again from the log
                ConsumeQueue(*key, self._opened).remove()
        self.update(queues)
        return True

    def _open_as_they_are(self, log: CommitLog) -> Place | None:
        """Open the queues as their files are, up to the last message.

        Where the last entries of a queue disagree with the log, following goes on behind the last one that agrees.
        None: a queue has no such entry, or lacks a file.
        """
        queues: Queues = {}
        lasts, doubts = list[Stored](), list[Stored]()
        for topic, queue_id in self._on_disk():
            queue = queues[topic, queue_id] = ConsumeQueue(topic, queue_id, self._opened)
            if not queue.open():
                return None
            queue.keep_below(log.files_end)
            queue.find_min(log.min_position)
            if queue.min_offset == queue.max_offset:
                continue
            last = _last_agreed(queue, log)
            if last is None:
                return None
            queue.last_physical = last.physical
            lasts.append(last)
            if last.queue_offset < queue.max_offset - 1:
                queue.cut(last.queue_offset + 1)
                queue.zero_behind()
                doubts.append(last)
        if not lasts:
            return None
        last = min(doubts, default=max(lasts))
        end = last.physical + last.size
        for queue in queues.values():
            if doubts:
                queue.keep_below(end)
            queue.zero_behind()
        self.update(queues)
        return Place(end, last.physical)

    def _open_below(self, start: int, log_min: int) -> None:
        """Open every queue without the entries of what the log contains from `start` on.

        Entries that point to deleted segments stay, because they keep the offsets of the queue.
        """
        for topic, queue_id in self._on_disk():
            queue = ConsumeQueue(topic, queue_id, self._opened)
            queue.open()
            if start > 0:
                queue.keep_below(start)
            queue.find_min(log_min)
            queue.zero_behind()
            self[topic, queue_id] = queue

    def _on_disk(self) -> Iterator[tuple[str, int]]:
        """The queues that have a directory."""
        files = self._opened.files
        for topic in files.names(DIRECTORY):
            for name in files.names(f"{DIRECTORY}/{topic}"):
                if name.isdigit() and topic_problem(topic) is None:
                    yield topic, int(name)


def stored_at(log: CommitLog, position: int) -> Stored | None:
    """The record at this position; None for -1, and if its head or its lengths are damaged."""
    if position < 0:
        return None
    size = announced_size(log.read(position, HEAD_BYTES), 0, position)
    return parse(log.read(position, size), 0, position, check_body=False) if size else None


def stored_ms_at(log: CommitLog, physical: int) -> int | None:
    """The store time of the record at this position; None if it is damaged."""
    head = log.read(physical, HEAD_BYTES)
    return stored_ms_of(head) if announced_size(head, 0, physical) else None


def agreed(queue: ConsumeQueue, log: CommitLog, offset: int) -> Stored | None:
    """The record of an entry; None if the two do not agree."""
    physical, size, _ = queue.entry(offset)
    stored = stored_at(log, physical) if size > 0 else None
    place = queue.topic, queue.queue_id, offset, size
    return stored if stored and (stored.topic, stored.queue_id, stored.queue_offset, stored.size) == place else None


def _last_agreed(queue: ConsumeQueue, log: CommitLog) -> Stored | None:
    """The record of the last entry of a queue that agrees with it; None if none of the last ones does."""
    last = range(queue.max_offset - 1, max(queue.min_offset, queue.max_offset - _MOST_DOUBTED) - 1, -1)
    return next(filter(None, (agreed(queue, log, offset) for offset in last)), None)


def _flushed_by_apache(log: CommitLog, checkpoint: Checkpoint) -> int:
    """The last segment that begins with a record which Apache RocketMQ had flushed, together with its entries.

    A kill leaves its abort marker, and no more than these times of its checkpoint says how far its queues are good.
    """
    start = log.segment_start(log.files_end - 1)
    while start > log.min_position:
        stored_ms = stored_ms_at(log, start)
        if stored_ms is not None and stored_ms <= checkpoint.queues_flushed_ms - _APACHES_MARGIN_MS:
            break
        start = log.segment_start(start - 1)
    return start
