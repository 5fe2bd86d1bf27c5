"""Pop: hand messages out, hide them for a while, and store again what was not acknowledged in time.

A checkpoint is appended to the revive log before its messages leave, then the group's offset moves behind them: see
`pop_checkpoints`. What is due and not acknowledged is stored again in the retry topic of pop, with one attempt more,
together with the record that acknowledges the first copy: one write, all or nothing. So a crash at any moment
hands a message out again or not at all, and never forgets one.

Apache RocketMQ sends these records through its timers, and they arrive when they are due. Those that it has left there
when its directory comes here arrive while this broker runs.

Time is an argument. Java: PopMessageProcessor, AckMessageProcessor, ChangeInvisibleTimeProcessor, PopReviveService.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from rocketapp.broker.core import Core, Host
from rocketapp.broker.filtering import Filter, read_filtered
from rocketapp.broker.pop_checkpoints import (
    LATE_MS,
    REVIVE_GROUP,
    REVIVE_QUEUES,
    Checkpoint,
    Key,
    OpenCheckpoints,
    is_by_timer,
    read,
    revive_topic,
)
from rocketapp.broker.pop_order import PopOrder
from rocketapp.broker.pop_order import Popped as InOrder
from rocketapp.broker.store.reading import MOST_BYTES, MOST_MESSAGES, ReadResult, ReadStatus
from rocketapp.broker.store.store import Appended
from rocketapp.broker.timers import LONGEST_MS as LONGEST_TIMER_MS
from rocketapp.broker.timers import slot_ms
from rocketapp.errors import ProtocolError
from rocketapp.model.event import Observe, RecordDamaged
from rocketapp.model.names import is_retry_topic
from rocketapp.model.pulled import Acks, Handle
from rocketapp.wire import properties as names
from rocketapp.wire.record import BORN_IPV6, STORE_IPV6, Message, Record, decode_record, decode_records, encode_record
from rocketapp.wire.requests.pop import FROM_LAST, OF_RETRY, OF_TOPIC, ORDERLY, PopRequest, PopResponse, encode_handle
from rocketapp.wire.requests.pop import pop_retry_topic as retry_topic_of

MOST_IN_FLIGHT = 10_000
"""Messages of one queue that a group may have in flight (Java: popInflightMessageThreshold)."""
MOST_CHECKPOINTS = 262_144
"""Checkpoints that may be open in all. They are in memory."""
MOST_EARLY = 16_384
"""Checkpoints that have not arrived and of which messages are acknowledged."""
FARTHEST_BACK = 16_384
"""Records behind an open checkpoint after which it is written again, so that a start need not read so many."""
_MOST_REVIVED, _MOST_REVIVED_BYTES = 64, 4_194_304
"""What one turn of the loop stores again: checkpoints, and about how many bytes."""
_MOST_FOLLOWED = 1024
"""Records of one revive queue that one turn reads."""
_LONGEST_IN_FLIGHT_MS = 300_000
"""For so long clients hide what they handle; what is hidden for longer is a retry, which nobody acknowledges before."""
_MOST_READS, _MOST_MISSES = 2, 8
"""Reads of one queue for one request, and queues of which all that was read is left out by a filter."""
_RETRIES_FIRST = 20
"""In so many of 100 pops retries come before the topic itself (Java: popFromRetryProbability)."""
_SEEN_GROUP = "ROCKETAPP_POP_SEEN"
"""Its offset in a revive queue, saved with all offsets: they count the checkpoints before it."""
POP_CK, FIRST_POP_TIME = "POP_CK", "1ST_POP_TIME"

_RECORD = struct.Struct(">i16xq")
"""What a pop needs of a record: its size, and its offset in its queue."""


class _Queue(NamedTuple):
    """One of the queues that a pop looks at."""

    kind: int
    topic: str
    queue_id: int


class _Found:
    """Messages of one queue."""

    __slots__ = ("next_offset", "offsets", "queue", "records", "start")

    def __init__(self, queue: _Queue, start: int, result: ReadResult) -> None:
        self.queue, self.start, self.next_offset = queue, start, result.next_offset
        self.offsets: list[int] = []
        self.records: list[bytes] = []
        at = 0
        while at < len(result.body):
            size, offset = _RECORD.unpack_from(result.body, at)
            self.offsets.append(offset)
            self.records.append(result.body[at : at + size])
            at += size

    def key(self, group: str, popped_ms: int) -> Key:
        return Key(group, self.queue.topic, self.queue.queue_id, self.start, popped_ms)

    def body(self, topic: str, answer: PopResponse, broker_name: str) -> bytes:
        """Its records. Retries become messages of the topic that members subscribe to, each with its handle."""
        if self.queue.kind == OF_TOPIC:
            return b"".join(self.records)
        told, (kind, _, queue_id) = [], self.queue
        at = self.start, answer.popped_ms, answer.invisible_ms, answer.revive_queue, kind, broker_name, queue_id
        for offset, data in zip(self.offsets, self.records, strict=True):
            record = decode_record(data)
            raw = with_property(record.raw_properties, POP_CK, encode_handle(Handle(*at, offset)))
            told.append(encode_record(record._replace(topic=topic, raw_properties=raw)))
        return b"".join(told)


class Popped(NamedTuple):
    """The answer to a pop."""

    answer: PopResponse
    body: bytes
    """Concatenated records; empty when there was nothing."""
    is_more: bool
    """Whether a look at the same queues may find something that this one has not reached."""
    free_ms: int = 0
    """In order: when the first of the queues is free whose messages are hidden; 0: none is waited for."""


class Pops:
    """What was handed out by one broker, and is to be handed out again."""

    def __init__(self, core: Core, order: PopOrder, observe: Observe) -> None:
        """Read what the last run, or Apache RocketMQ, has left open."""
        self._core, self._order, self._observe = core, order, observe
        self._topic = revive_topic(core.config.cluster)
        self._open = OpenCheckpoints()
        self._next_queue = 0
        self._read_to = [0] * REVIVE_QUEUES
        """Up to here the revive queues were read, or written here."""
        self._end = 0
        """The log up to here has every checkpoint."""
        self._early: dict[Key, tuple[int, list[int]]] = {}
        """Acknowledgements whose checkpoint may arrive by a timer, and until when."""
        for revive_queue in range(REVIVE_QUEUES):
            self._load(revive_queue)
        self.note_seen()

    def __repr__(self) -> str:
        return f"<Pops {len(self._open)} checkpoints are open>"

    @property
    def is_full(self) -> bool:
        return len(self._open) >= MOST_CHECKPOINTS

    @property
    def are_durable(self) -> bool:
        """Whether a loss of power leaves all checkpoints, so that offsets that count them may be saved."""
        return self._core.store.durable_position >= self._end

    # Handing out.

    def pop(self, request: PopRequest, wanted: Filter, now_ms: int) -> Popped:
        """Hand messages out. Raises StoreError; then nothing was handed out."""
        if request.order:
            return self._pop_in_order(request, wanted, now_ms)
        found: list[_Found] = []
        count = size = rest = misses = 0
        for queue in self._queues(request):
            most = request.max_messages - count if size < MOST_BYTES and misses < _MOST_MISSES else 0
            taken, left, goes_on = self._take(request, queue, most, wanted)
            rest, misses = rest + left, misses + goes_on
            if taken is not None:
                found.append(taken)
                count, size = count + len(taken.offsets), size + sum(map(len, taken.records))
        return self._hand_out(request, found, rest, now_ms)._replace(is_more=misses > 0)

    def _queues(self, request: PopRequest) -> list[_Queue]:
        """The queues to look at, in this order."""
        core, chance = self._core, self._core.random.randrange(100)
        topics, retry = core.topics, retry_topic_of(request.group, request.topic, OF_RETRY)
        config, of_retry = topics.get(request.topic), topics.get(retry)
        count = 0 if config is None else config.read_queues
        ids = [(chance + at) % count for at in range(count)] if request.queue_id < 0 else [request.queue_id]
        queues = [_Queue(OF_TOPIC, request.topic, queue_id) for queue_id in ids]
        if request.order:
            return queues
        retries = [_Queue(OF_RETRY, retry, at) for at in range(0 if of_retry is None else of_retry.read_queues)]
        return retries + queues if chance < _RETRIES_FIRST else queues + retries

    def _take(self, request: PopRequest, queue: _Queue, most: int, wanted: Filter) -> tuple[_Found | None, int, bool]:
        """Messages of a queue, how many are left there, and whether it is to be looked at again.

        The group moves over those that do not match.
        """
        core, group, (_, topic, queue_id) = self._core, request.group, queue
        start = self._position(request, topic, queue_id)
        if not most or self._open.in_flight(group, topic, queue_id) >= MOST_IN_FLIGHT:
            return None, core.store.max_offset(topic, queue_id) - start, False
        for _ in range(_MOST_READS):
            place = topic, queue_id
            result = read_filtered(core.store, place, start, max_messages=most, max_bytes=MOST_BYTES, wanted=wanted)
            left = result.max_offset - result.next_offset
            if result.status is ReadStatus.FOUND:
                return _Found(queue, start, result), left, False
            if result.max_offset == 0 or result.next_offset == start:
                return None, 0, False
            core.offsets.commit(group, topic, queue_id, result.next_offset)
            start = result.next_offset
        return None, left, True

    def _position(self, request: PopRequest, topic: str, queue_id: int) -> int:
        """Where the group goes on in this queue."""
        core = self._core
        if core.offsets.take_reset(request.group, topic, queue_id) is not None:  # which is committed already
            self._order.reset((topic, request.group, queue_id))
        committed = core.offsets.committed(request.group, topic, queue_id)
        if committed is not None:
            return committed
        start = core.store.min_offset(topic, queue_id)
        if request.init_mode == FROM_LAST and start > 0 and not is_retry_topic(topic):
            start = max(core.store.max_offset(topic, queue_id) - 1, start)
        core.offsets.commit(request.group, topic, queue_id, start)
        return start

    def _hand_out(self, request: PopRequest, found: list[_Found], rest: int, now_ms: int) -> Popped:
        """Store the checkpoints, then move the offsets."""
        core, group, popped_ms, revive_queue = self._core, request.group, now_ms, self._next_queue
        while any(each.key(group, popped_ms) in self._open for each in found):
            popped_ms += 1
        checkpoints = [
            Checkpoint(
                each.key(group, popped_ms), each.offsets, invisible_ms=request.invisible_ms, revive_queue=revive_queue
            )
            for each in found
        ]
        if checkpoints:
            self._next_queue = (revive_queue + 1) % REVIVE_QUEUES
            self._store(checkpoints, now_ms)
        starts, offsets = {}, {}
        for each in found:
            kind, topic, queue_id = each.queue
            core.offsets.commit(group, topic, queue_id, each.next_offset)
            core.offsets.pulled(group, topic, queue_id, each.next_offset)
            core.traffic.got += len(each.offsets)
            starts[kind, queue_id], offsets[kind, queue_id] = each.start, each.offsets
        answer = PopResponse(popped_ms, request.invisible_ms, revive_queue, rest, starts, offsets)
        body = b"".join(each.body(request.topic, answer, core.config.name) for each in found)
        return Popped(answer, body, False)

    def _pop_in_order(self, request: PopRequest, wanted: Filter, now_ms: int) -> Popped:
        """Hand messages out of the queues of which none is hidden. The group's offsets stay where they are."""
        found: list[_Found] = []
        free: list[int] = []
        count = size = rest = misses = 0
        for queue in self._queues(request):
            free_ms = self._order.free_ms((queue.topic, request.group, queue.queue_id), request.attempt_id)
            if free_ms > now_ms:
                free.append(free_ms)
                continue
            most = request.max_messages - count if size < MOST_BYTES and misses < _MOST_MISSES else 0
            taken, left, goes_on = self._take(request, queue, most, wanted)
            rest, misses = rest + left, misses + goes_on
            if taken is not None:
                found.append(taken)
                count, size = count + len(taken.offsets), size + sum(map(len, taken.records))
        counts = {}
        for each in found:
            in_order = InOrder(each.offsets, now_ms, request.invisible_ms, request.attempt_id)
            queue_id = each.queue.queue_id
            counts[queue_id] = self._order.popped((each.queue.topic, request.group, queue_id), in_order)
            self._core.traffic.got += len(each.offsets)
        starts = {(OF_TOPIC, each.queue.queue_id): each.start for each in found}
        offsets = {(OF_TOPIC, each.queue.queue_id): each.offsets for each in found}
        answer = PopResponse(now_ms, request.invisible_ms, ORDERLY, rest, starts, offsets, counts)
        body = b"".join(data for each in found for data in each.records)
        return Popped(answer, body, misses > 0, min(free, default=0))

    def _store(self, checkpoints: Sequence[Checkpoint], now_ms: int, more: Sequence[Record] = ()) -> None:
        """Append checkpoints, and other records behind them."""
        broker_name = self._core.config.name
        records = [checkpoint.record(self._topic, broker_name, now_ms) for checkpoint in checkpoints]
        stored = self._append([*records, *more])
        for checkpoint, appended in zip(checkpoints, stored, strict=False):
            self._open.put(checkpoint, appended.queue_offset)

    def _append(self, records: Sequence[Record]) -> list[Appended]:
        stored = self._core.store.append_batch(records)
        self._end = self._core.store.end_position if records else self._end
        for record, appended in zip(records, stored, strict=True):
            if record.topic == self._topic and self._read_to[record.queue_id] == appended.queue_offset:
                self._read_to[record.queue_id] += 1
        return stored

    # Acknowledging.

    def ack(self, acks: Sequence[tuple[Key, Acks]], now_ms: int) -> None:
        """Messages are done. What is not hidden any more, or never was, is ignored. Raises StoreError."""
        found: list[tuple[Checkpoint, list[int]]] = []
        for key, (handle, offsets) in acks:
            checkpoint = self._open.get(key)
            if checkpoint is None:
                checkpoint = self._not_here_yet(key, handle, offsets, now_ms)
            done = [] if checkpoint is None else sorted(set(offsets).intersection(checkpoint.left()))
            if checkpoint is not None and done:
                found.append((checkpoint, done))
        self._append([self._ack_record(checkpoint, done, now_ms) for checkpoint, done in found])
        for checkpoint, done in found:
            self._open.ack(checkpoint.key, done)

    def _not_here_yet(self, key: Key, handle: Handle, offsets: Sequence[int], now_ms: int) -> Checkpoint | None:
        """A checkpoint that may still arrive, and what is done of it; None if it is over."""
        until_ms = handle.popped_ms + handle.invisible_ms + LATE_MS
        if until_ms <= now_ms or not 0 <= handle.revive_queue < REVIVE_QUEUES or len(self._early) >= MOST_EARLY:
            return None
        done = sorted({*offsets, *self._early.get(key, (0, []))[1]})[:MOST_MESSAGES]
        self._early[key] = until_ms, done
        return Checkpoint(key, done, invisible_ms=handle.invisible_ms, revive_queue=handle.revive_queue)

    def hide(self, key: Key, offset: int, *, invisible_ms: int, suspend: bool, now_ms: int) -> int:
        """Hide a message from now on for so long; return when it counts as handed out. Raises StoreError.

        One that is not hidden any more has come again already: it has no other time then.
        """
        popped_ms = max(now_ms, key.popped_ms + 1)
        before = self._open.get(key)
        if before is not None and offset in before.left():
            own = Checkpoint(
                key._replace(start=offset, popped_ms=popped_ms),
                [offset],
                invisible_ms=invisible_ms,
                revive_queue=before.revive_queue,
                suspend=suspend,
            )
            self._store([own], now_ms, [self._ack_record(before, [offset], now_ms)])
            self._open.ack(key, [offset])
        return popped_ms

    def _ack_record(self, checkpoint: Checkpoint, offsets: Sequence[int], now_ms: int) -> Record:
        return checkpoint.ack_record(self._topic, self._core.config.name, offsets, now_ms)

    def ack_in_order(self, key: Key, offset: int) -> None:
        """A message that was popped in order is done. Raises ValueError for one that was not popped."""
        committed = self._core.offsets.committed(key.group, key.topic, key.queue_id)
        if committed is None or offset >= committed:
            next_offset = self._order.ack((key.topic, key.group, key.queue_id), offset, key.popped_ms)
            if next_offset is not None:
                self._core.offsets.commit(key.group, key.topic, key.queue_id, next_offset)

    def hide_in_order(self, key: Key, offset: int, *, invisible_ms: int, now_ms: int) -> int:
        """A message that was popped in order comes again at another time; returns how long that is after its pop."""
        until_ms = now_ms + invisible_ms
        self._order.hide((key.topic, key.group, key.queue_id), offset, key.popped_ms, until_ms)
        return until_ms - key.popped_ms

    # Handing out again.

    @property
    def next_due_ms(self) -> int | None:
        """When the next messages come again, in milliseconds since 1970; None when none are hidden."""
        first = self._open.first_due
        return None if first is None else first.due_ms

    def revive_due(self, now_ms: int) -> set[tuple[str, str]]:
        """Store again what is due, a bounded part of it. Raises StoreError.

        Returns the groups for which messages come again, and in which topics.
        """
        revived, size = set[tuple[str, str]](), 0
        self._early = {key: early for key, early in self._early.items() if early[0] > now_ms}
        due_ms = self._core.timers.next_due_ms()
        if not self._follow() or (due_ms is not None and due_ms <= now_ms):
            return revived  # acknowledgements may be among what arrives next
        for _ in range(_MOST_REVIVED):
            first = self._open.first_due
            if first is None or first.due_ms > now_ms or size >= _MOST_REVIVED_BYTES:
                break
            again = self._again(first)
            acks = [self._ack_record(first, first.left(), now_ms)]
            self._append([*again, *acks])
            self._open.close(first)
            size += sum(len(record.body) for record in again)
            revived.update((first.key.group, record.topic) for record in again)
        self._write_far_ones(now_ms)
        return revived

    def _again(self, checkpoint: Checkpoint) -> list[Record]:
        """What its messages are stored as, to come again. Those of a deleted topic or group are not."""
        core, (group, topic, queue_id, _, popped_ms) = self._core, checkpoint.key
        if core.topics.get(topic) is None or core.groups.get(group) is None:
            return []
        retry = topic if is_retry_topic(topic) else retry_topic_of(group, topic, OF_RETRY)
        if core.offsets.committed(group, core.ensure_topic(retry, 1).name, 0) is None:
            core.offsets.commit(group, retry, 0, core.store.min_offset(retry, 0))
        here, again = Host.of(core.address), []
        for offset in checkpoint.left():
            data = core.store.message(topic, queue_id, offset)
            if data is None:
                continue  # damaged, which was reported, or deleted with the oldest ones
            record = decode_record(data)
            raw = record.raw_properties
            if not record.reconsume_times or names.decode(raw).get(FIRST_POP_TIME) is None:
                raw = with_property(raw, FIRST_POP_TIME, str(popped_ms))
            flags = record.sys_flag & ~(BORN_IPV6 | STORE_IPV6)
            again.append(
                record._replace(
                    topic=retry,
                    queue_id=0,
                    raw_properties=raw,
                    sys_flag=flags | (BORN_IPV6 | STORE_IPV6 if here.is_ipv6 else 0),
                    born_host=here.raw,
                    born_port=here.port,
                    store_host=here.raw,
                    store_port=here.port,
                    reconsume_times=record.reconsume_times + (not checkpoint.suspend),
                )
            )
        return again

    def drop(self, *, topic: str | None = None, group: str | None = None) -> None:
        """A topic or group was deleted: nothing of it comes again."""
        self._open.drop(topic=topic, group=group)
        if topic is not None:
            self._order.drop(topic)

    # What outlives the process.

    def note_seen(self) -> None:
        """Together with the offsets is saved which checkpoints they count: a start counts only those behind."""
        for queue in range(REVIVE_QUEUES):
            end = self._core.store.max_offset(self._topic, queue)
            if end:
                self._core.offsets.commit(_SEEN_GROUP, self._topic, queue, end)

    def progress(self) -> list[int]:
        """Per revive queue the last record that need not be read again."""
        end_of = self._core.store.max_offset
        firsts = map(self._open.first_stored, range(REVIVE_QUEUES))
        return [(end_of(self._topic, at) if first is None else first.place) - 1 for at, first in enumerate(firsts)]

    def note_progress(self, progress: Sequence[int]) -> None:
        """The log is durable up to these records: the next start begins behind them."""
        for queue, last in enumerate(progress):
            if last >= 0:
                self._core.offsets.commit(REVIVE_GROUP, self._topic, queue, last)

    def write_open(self, now_ms: int) -> list[int]:
        """Before a stop: write again what is open, in the order in which it is due; return the progress before it.

        The next start reads nothing else. Apache RocketMQ goes through them in their order, so retries that are far
        away become timers: what is popped later need not wait for them. Raises StoreError.
        """
        core = self._core
        ends = [core.store.max_offset(self._topic, queue) - 1 for queue in range(REVIVE_QUEUES)]
        for checkpoint in self._open.by_due():
            far_ms = checkpoint.key.popped_ms + checkpoint.invisible_ms - 1000  # as Apache RocketMQ has it
            if _LONGEST_IN_FLIGHT_MS < far_ms - now_ms < LONGEST_TIMER_MS:
                record = checkpoint.record(self._topic, core.config.name, far_ms)
                core.timers.schedule(record, slot_ms(far_ms, now_ms))
            else:
                self._store([checkpoint], now_ms)
        return ends

    def _write_far_ones(self, now_ms: int) -> None:
        for queue in range(REVIVE_QUEUES):
            end = self._core.store.max_offset(self._topic, queue)
            for _ in range(_MOST_REVIVED):
                first = self._open.first_stored(queue)
                if first is None or first.place >= end - FARTHEST_BACK:
                    break
                self._store([first], now_ms)

    def _load(self, revive_queue: int) -> None:
        """Read what one revive queue says of messages that may be left."""
        core, topic = self._core, self._topic
        last = core.offsets.committed(REVIVE_GROUP, topic, revive_queue)
        seen = core.offsets.committed(_SEEN_GROUP, topic, revive_queue)
        if last is None and seen is None:
            seen = 0
        end = core.store.max_offset(topic, revive_queue)
        self._read_to[revive_queue] = min(core.store.min_offset(topic, revive_queue) if last is None else last + 1, end)
        while self._read_to[revive_queue] < end:
            for message in self._records(revive_queue):
                found = self._note(message, revive_queue)
                if found is not None and seen is not None and message.offset >= seen:
                    self._count(found)

    def _follow(self) -> bool:
        """Read what has arrived by timers, a bounded part of it; whether that was all."""
        for queue in range(REVIVE_QUEUES):
            stop = self._read_to[queue] + _MOST_FOLLOWED
            while self._read_to[queue] < self._core.store.max_offset(self._topic, queue):
                if self._read_to[queue] >= stop:
                    return False
                for message in self._records(queue):
                    if is_by_timer(message.raw_properties):
                        self._note(message, queue)
        return True

    def _records(self, queue: int) -> list[Message]:
        """The next records of a revive queue."""
        at = self._read_to[queue]
        several = self._core.store.read(self._topic, queue, at, max_messages=MOST_MESSAGES, max_bytes=MOST_BYTES)
        self._read_to[queue] = max(several.next_offset, at + 1)
        return decode_records(several.body, None)

    def _note(self, message: Message, queue: int) -> Checkpoint | None:
        """Carry out what a record says; a checkpoint is returned."""
        try:
            found = read(message.raw_properties, message.stored_body, queue)
        except ProtocolError:
            self._observe(RecordDamaged(self._topic, queue, message.offset, message.physical_offset))
            return None
        if isinstance(found, Checkpoint):
            found.ack(self._early.pop(found.key, (0, []))[1])
            self._open.put(found, message.offset)
            return found
        if found is not None:
            self._open.ack(found.key, found.offsets)
        return None

    def _count(self, checkpoint: Checkpoint) -> None:
        """The last run has handed it out after it saved its offsets."""
        group, topic, queue_id, _, _ = checkpoint.key
        end = checkpoint.offsets[-1] + 1
        committed = self._core.offsets.committed(group, topic, queue_id)
        if len(checkpoint.offsets) > 0 and (committed is None or committed < end):
            self._core.offsets.commit(group, topic, queue_id, end)


def with_property(raw: bytes, name: str, value: str) -> bytes:
    """Encoded properties with one more: of equal names the last one wins."""
    return (raw if not raw or raw.endswith(b"\x02") else raw + b"\x02") + names.encode({name: value})
