"""Pop: hand messages out, hide them for a while, and store again what was not acknowledged in time.

A checkpoint is appended to the revive log before its messages leave, then the group's offset moves behind them: see
`pop_log`. What is due and not acknowledged is stored again in the retry topic of pop, with one attempt more,
together with the record that acknowledges the first copy: one write, all or nothing. So a crash at any moment
hands a message out again or not at all, and never forgets one.

Time is an argument. Java: PopMessageProcessor, AckMessageProcessor, ChangeInvisibleTimeProcessor, PopReviveService.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rocketapp.broker.core import Core, Host
from rocketapp.broker.filtering import Filter, read_filtered
from rocketapp.broker.pop_checkpoints import REVIVE_QUEUES, Key, Place, PopCheckpoint
from rocketapp.broker.pop_log import ReviveLog
from rocketapp.broker.pop_tables import InOrder, PopOrder
from rocketapp.broker.store.reading import MOST_BYTES, ReadResult, ReadStatus
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.model.names import dlq_topic, is_retry_topic
from rocketapp.model.pulled import Acks, Handle
from rocketapp.wire import properties as names
from rocketapp.wire.layout import BORN_IPV6, MOST_RECONSUME_TIMES, STORE_IPV6, Record, decode_record, encode_record
from rocketapp.wire.requests.pop import (
    FROM_LAST,
    OF_RETRY,
    OF_TOPIC,
    ORDERLY,
    AckRequest,
    PopRequest,
    PopResponse,
    encode_handle,
)
from rocketapp.wire.requests.pop import pop_retry_topic as retry_topic_of

_IPV6 = BORN_IPV6 | STORE_IPV6
MOST_IN_FLIGHT = 10_000
"""Messages of one queue that a group may have in flight (Java: popInflightMessageThreshold)."""
MOST_CHECKPOINTS = 262_144
"""Checkpoints that may be open in all. They are in memory."""
_MOST_REVIVED, _MOST_REVIVED_BYTES = 64, 4_194_304
"""What one turn of the loop stores again: checkpoints, and about how many bytes."""
_MOST_READS, _MOST_MISSES = 2, 8
"""Reads of one queue for one request, and queues of which all that was read is left out by a filter."""
_RETRIES_FIRST = 20
"""In so many of 100 pops retries come before the topic itself (Java: popFromRetryProbability)."""
POP_CK, FIRST_POP_TIME = "POP_CK", "1ST_POP_TIME"

_ROOM = 1024
"""Bytes of properties that a message needs to come again, with its handle. One without them is a dead letter."""

_RECORD = struct.Struct(">i16xq")
"""What a pop needs of a record: its size, and its offset in its queue."""


class _Found(NamedTuple):
    """Messages of one queue."""

    kind: int
    place: Place
    start: int
    next_offset: int
    records: bytes
    offsets: dict[int, int]
    """Where the record of each begins."""

    @classmethod
    def of(cls, kind: int, place: Place, start: int, result: ReadResult) -> _Found:
        at, offsets = 0, dict[int, int]()
        while at < len(result.body):
            size, offset = _RECORD.unpack_from(result.body, at)
            offsets[offset] = at
            at += size
        return cls(kind, place, start, result.next_offset, result.body, offsets)

    @property
    def queue(self) -> tuple[int, int]:
        return self.kind, self.place[2]

    def key(self, popped_ms: int) -> Key:
        return Key(*self.place, self.start, popped_ms)

    def body(self, topic: str, answer: PopResponse, broker_name: str) -> bytes:
        """The records to answer with. Retries become messages of the topic that members subscribe to, with handles."""
        kind, queue_id = self.queue
        if kind == OF_TOPIC:
            return self.records
        told, times = [], (self.start, answer.popped_ms, answer.invisible_ms, answer.revive_queue)
        for offset, at in self.offsets.items():
            record = decode_record(self.records, at)
            handle = Handle(*times, kind, broker_name, queue_id, offset)
            raw = names.appended(record.raw_properties, {POP_CK: encode_handle(handle)})
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

    def __init__(self, core: Core, log: ReviveLog, order: PopOrder, observe: Observe) -> None:
        self._core, self._order, self._observe = core, order, observe
        self.log: ReviveLog = log
        self._next_queue = 0

    def __repr__(self) -> str:
        return f"<Pops {self.log!r}>"

    # Handing out.

    def pop(self, request: PopRequest, wanted: Filter, now_ms: int) -> Popped:
        """Hand messages out. Raises StoreError; then nothing was handed out."""
        found: list[_Found] = []
        count = size = rest = misses = 0
        queues, free_ms = self._free_queues(request, now_ms)
        for place in queues:
            most = request.max_messages - count if size < MOST_BYTES and misses < _MOST_MISSES else 0
            taken, left, goes_on = self._take(request, place, most, wanted)
            rest, misses = rest + left, misses + goes_on
            if taken is not None:
                found.append(taken)
                count, size = count + len(taken.offsets), size + len(taken.records)
        hand_out = self._note_order if request.order else self._hand_out
        answer = hand_out(request, found, now_ms)._replace(
            rest=rest,
            starts={each.queue: each.start for each in found},
            offsets={each.queue: list(each.offsets) for each in found},
        )
        self._core.traffic.got += count
        body = b"".join(each.body(request.topic, answer, self._core.config.name) for each in found)
        return Popped(answer, body, misses > 0, free_ms)

    def has_any(self, request: PopRequest, now_ms: int) -> tuple[bool, int]:
        """Whether there is a message that the group has not got. Nothing is noted, and no filter is asked.

        In order: also when the first of the queues is free whose messages are hidden; 0: none is waited for.
        """
        store, (queues, free_ms) = self._core.store, self._free_queues(request, now_ms)
        for place in queues:
            first = max(self._core.done_to(*place), store.min_offset(*place[1:]))  # older ones may have expired
            if store.max_offset(*place[1:]) > first:
                return True, 0
        return False, free_ms

    def _free_queues(self, request: PopRequest, now_ms: int) -> tuple[list[Place], int]:
        """The queues that may be popped now, in order; and when the next one may be, in ms; 0 without others."""
        queues = self._queues(request)
        for place in queues:
            if self._core.offsets.take_reset(*place) is not None:  # which is committed already
                self._order.reset(place)
        free = [self._order.free_ms(place, request.attempt_id) if request.order else 0 for place in queues]
        found = [place for place, free_ms in zip(queues, free, strict=True) if free_ms <= now_ms]
        return found, min((free_ms for free_ms in free if free_ms > now_ms), default=0)

    def _queues(self, request: PopRequest) -> list[Place]:
        """The queues to look at, in this order."""
        group, topics, chance = request.group, self._core.topics, self._core.random.randrange(100)
        retry = retry_topic_of(group, request.topic, OF_RETRY)
        config, of_retry = topics.get(request.topic), topics.get(retry)
        count = 0 if config is None else config.read_queues
        ids = [(chance + at) % count for at in range(count)] if request.queue_id < 0 else [request.queue_id]
        queues = [(group, request.topic, queue_id) for queue_id in ids]
        if request.order or of_retry is None:
            return queues
        retries = [(group, retry, at) for at in range(of_retry.read_queues)]
        return retries + queues if chance < _RETRIES_FIRST else queues + retries

    def _take(self, request: PopRequest, place: Place, most: int, wanted: Filter) -> tuple[_Found | None, int, bool]:
        """Messages of a queue, how many are left there, and whether it is to be looked at again.

        The group moves over those that do not match.
        """
        store, start = self._core.store, self._position(request, place)
        if not most or self.log.in_flight[place] >= MOST_IN_FLIGHT:
            return None, store.max_offset(*place[1:]) - start, False
        for _ in range(_MOST_READS):
            result = read_filtered(store, place[1:], start, max_messages=most, max_bytes=MOST_BYTES, wanted=wanted)
            left = result.max_offset - result.next_offset
            if result.status is ReadStatus.FOUND:
                kind = OF_TOPIC if place[1] == request.topic else OF_RETRY
                return _Found.of(kind, place, start, result), left, False
            if result.max_offset == 0 or result.next_offset == start:
                return None, 0, False
            if result.status is ReadStatus.OFFSET_TOO_SMALL:
                self._tell_deleted(place, start, result.next_offset - start, "unread")
            self._core.offsets.commit(*place, result.next_offset)
            start = result.next_offset
        return None, left, True

    def _position(self, request: PopRequest, place: Place) -> int:
        """Where the group goes on in this queue."""
        offsets, store, (_, topic, queue_id) = self._core.offsets, self._core.store, place
        committed = offsets.committed(*place)
        if committed is not None:
            return committed
        start = store.min_offset(topic, queue_id)
        if request.init_mode == FROM_LAST and start > 0 and not is_retry_topic(topic):
            start = max(store.max_offset(topic, queue_id) - 1, start)
        offsets.commit(*place, start)
        return start

    def _hand_out(self, request: PopRequest, found: list[_Found], now_ms: int) -> PopResponse:
        """Store the checkpoints, then move the offsets."""
        offsets, popped_ms, invisible_ms, queue = self._core.offsets, now_ms, request.invisible_ms, self._next_queue
        while any(each.key(popped_ms) in self.log.open for each in found):
            popped_ms += 1
        checkpoints = [
            PopCheckpoint(list(each.offsets), key=each.key(popped_ms), invisible_ms=invisible_ms, revive_queue=queue)
            for each in found
        ]
        if checkpoints:
            self._next_queue = (queue + 1) % REVIVE_QUEUES
            self._core.store.append_batch([self.log.record(checkpoint, now_ms) for checkpoint in checkpoints])
        for each in found:
            offsets.commit(*each.place, each.next_offset)
            offsets.pulled(*each.place, each.next_offset)
        return PopResponse(popped_ms, invisible_ms, queue, 0)

    def _note_order(self, request: PopRequest, found: list[_Found], now_ms: int) -> PopResponse:
        """The group's offsets stay where they are. Told is by queue id how often messages were handed out before."""
        invisible_ms, counts = request.invisible_ms, dict[int, Mapping[int, int]]()
        for each in found:
            offsets, attempt_id = list(each.offsets), request.attempt_id
            popped = InOrder(offsets, popped_ms=now_ms, invisible_ms=invisible_ms, attempt_id=attempt_id)
            counts[each.place[2]] = self._order.popped(each.place, popped)
        return PopResponse(now_ms, invisible_ms, ORDERLY, 0, counts=counts)

    # Acknowledging.

    def ack(self, acks: Sequence[tuple[Key, Acks]], now_ms: int) -> None:
        """Messages are done. What is not hidden any more, or never was, is ignored. Raises Store- or BrokerError."""
        log, records = self.log, list[Record]()
        for key, (handle, offsets) in acks:
            checkpoint = log.open.get(key)
            if handle.revive_queue == ORDERLY:
                self._ack_in_order(key, offsets)
            elif checkpoint is not None and (done := [each for each in checkpoint.left() if each in offsets]):
                records.append(log.record(checkpoint, now_ms, done))
        # Also where there is little room: what is done would come again, and need more.
        self._core.store.append_batch(records, ignores_refusal=True)

    def _ack_in_order(self, key: Key, offsets: Sequence[int]) -> None:
        for offset in offsets:
            committed = self._core.offsets.committed(*key.place)
            if committed is not None and offset >= committed:
                next_offset = self._order.ack(key.place, offset, key.popped_ms, done_to=committed)
                if next_offset is not None:
                    self._core.offsets.commit(*key.place, next_offset)

    def hide(self, request: AckRequest, now_ms: int) -> tuple[int, int]:
        """Hide a message from now on; return when it counts as handed out, and how long after that it comes again.

        One that is not hidden any more has come again already: it has no other time then. Raises StoreError.
        """
        key = Key.of(request.group, request.topic, request.handle)
        offset, invisible_ms = request.handle.offset, request.invisible_ms or 0
        if request.handle.revive_queue == ORDERLY:
            until_ms = now_ms + invisible_ms
            self._order.hide(key.place, offset, key.popped_ms, until_ms)
            return key.popped_ms, until_ms - key.popped_ms
        popped_ms, log, before = max(now_ms, key.popped_ms + 1), self.log, self.log.open.get(key)
        if before is not None and offset in before.left():
            own = PopCheckpoint(
                [offset],
                key=key._replace(start=offset, popped_ms=popped_ms),
                invisible_ms=invisible_ms,
                revive_queue=before.revive_queue,
                suspend=request.suspend,
            )
            self._core.store.append_batch([log.record(own, now_ms), log.record(before, now_ms, [offset])])
        return popped_ms, invisible_ms

    # Handing out again.

    @property
    def next_due_ms(self) -> int | None:
        """When the next messages come again, in milliseconds since 1970; None when none are hidden."""
        first = self.log.first_due
        return None if first is None else first.due_ms

    def revive_due(self, now_ms: int) -> set[tuple[str, str]]:
        """Store again what is due, a bounded part of it. Raises StoreError.

        Returns the groups for which messages come again, and in which topics.
        """
        revived, size, log = set[tuple[str, str]](), 0, self.log
        arrives_ms = self._core.timers.next_due_ms()
        if arrives_ms is not None and arrives_ms <= now_ms:
            return revived  # acknowledgements may be among it
        for _ in range(_MOST_REVIVED):
            first = log.first_due
            if first is None or first.due_ms > now_ms or size >= _MOST_REVIVED_BYTES:
                break
            again = self._again(first)
            self._core.store.append_batch([*again, log.record(first, now_ms, first.left())])
            size += sum(len(record.body) for record in again)
            revived.update((first.key.group, record.topic) for record in again)
        log.write_far_ones(now_ms)
        return revived

    def _again(self, checkpoint: PopCheckpoint) -> list[Record]:
        """The records to store so that its messages come again; none for a deleted topic or group."""
        core, (group, topic, queue_id), again = self._core, checkpoint.key.place, list[Record]()
        if core.topics.get(topic) is None or core.groups.get(group) is None:
            return again
        retry = topic if is_retry_topic(topic) else retry_topic_of(group, topic, OF_RETRY)
        if core.offsets.committed(group, core.ensure_topic(retry, 1).name, 0) is None:
            core.offsets.commit(group, retry, 0, core.store.min_offset(retry, 0))  # so that they count as backlog
        here, left, first = Host.of(core.address), checkpoint.left(), core.store.min_offset(topic, queue_id)
        if deleted := sum(offset < first for offset in left):
            self._tell_deleted(checkpoint.key.place, left[0], deleted, "before they were acknowledged")
        for offset in left:
            data = core.store.message(topic, queue_id, offset)
            if data is None:
                continue  # damaged or deleted, which was reported
            record = decode_record(data)
            raw = record.raw_properties
            has_room = len(raw) <= names.LONGEST - _ROOM
            if has_room and (not record.reconsume_times or names.decode(raw).get(FIRST_POP_TIME) is None):
                raw = names.appended(raw, {FIRST_POP_TIME: str(checkpoint.key.popped_ms)})
            again.append(
                record._replace(
                    topic=retry if has_room else core.ensure_topic(dlq_topic(group), 1).name,
                    queue_id=0,
                    raw_properties=raw,
                    sys_flag=record.sys_flag & ~_IPV6 | _IPV6 * here.is_ipv6,
                    born_host=here.raw,
                    born_port=here.port,
                    store_host=here.raw,
                    store_port=here.port,
                    reconsume_times=min(record.reconsume_times + (not checkpoint.suspend), MOST_RECONSUME_TIMES),
                )
            )
        return again

    def _tell_deleted(self, place: Place, offset: int, count: int, when: str) -> None:
        """Members that pull see this themselves, those that pop do not."""
        group, topic, queue_id = place
        self._observe(
            LoopFailed(f"pop {topic}:{queue_id}", f"group {group}: from offset {offset} on {count} were deleted {when}")
        )

    def drop(self, topic: str) -> None:
        """The topic was deleted: nothing of it comes again."""
        self.log.drop(topic)
        self._order.drop(topic)
