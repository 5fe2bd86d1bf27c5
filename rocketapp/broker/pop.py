"""Pop: hand messages out, hide them for a while, and store again what was not acknowledged in time.

A checkpoint is appended to the revive log before its messages leave, then the group's offset moves behind them: see
`pop_log`. What is due and not acknowledged is stored again in the retry topic of pop, with one attempt more,
together with the record that acknowledges the first copy: one write, all or nothing. So a crash at any moment
hands a message out again or not at all, and never forgets one.

Time is an argument. Java: PopMessageProcessor, AckMessageProcessor, ChangeInvisibleTimeProcessor, PopReviveService.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rocketapp.broker.core import Core, Host
from rocketapp.broker.filtering import Filter, read_filtered
from rocketapp.broker.pop_checkpoints import REVIVE_QUEUES, Key, PopCheckpoint
from rocketapp.broker.pop_log import ReviveLog
from rocketapp.broker.pop_order import InOrder, PopOrder
from rocketapp.broker.pop_order import Queue as InOrderKey
from rocketapp.broker.store.reading import MOST_BYTES, ReadResult, ReadStatus
from rocketapp.model.names import dlq_topic, is_retry_topic
from rocketapp.model.pulled import Acks, Handle
from rocketapp.wire import properties as names
from rocketapp.wire.layout import BORN_IPV6, STORE_IPV6, Record, decode_record, encode_record
from rocketapp.wire.requests.pop import FROM_LAST, OF_RETRY, OF_TOPIC, ORDERLY, PopRequest, PopResponse, encode_handle
from rocketapp.wire.requests.pop import pop_retry_topic as retry_topic_of

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
            raw = names.appended(record.raw_properties, {POP_CK: encode_handle(Handle(*at, offset))})
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

    def __init__(self, core: Core, log: ReviveLog, order: PopOrder) -> None:
        self._core, self._order = core, order
        self.log: ReviveLog = log
        self._next_queue = 0

    def __repr__(self) -> str:
        return f"<Pops {self.log!r}>"

    @property
    def is_full(self) -> bool:
        return len(self.log.open) >= MOST_CHECKPOINTS

    # Handing out.

    def pop(self, request: PopRequest, wanted: Filter, now_ms: int) -> Popped:
        """Hand messages out. Raises StoreError; then nothing was handed out."""
        found: list[_Found] = []
        free: list[int] = []
        count = size = rest = misses = 0
        for queue in self._free_queues(request, now_ms, free):
            most = request.max_messages - count if size < MOST_BYTES and misses < _MOST_MISSES else 0
            taken, left, goes_on = self._take(request, queue, most, wanted)
            rest, misses = rest + left, misses + goes_on
            if taken is not None:
                found.append(taken)
                count, size = count + len(taken.offsets), size + sum(map(len, taken.records))
        if request.order:
            counts = self._note_order(request, found, now_ms)
            answer = PopResponse(now_ms, request.invisible_ms, ORDERLY, rest, counts=counts)
        else:
            answer = self._hand_out(request, found, now_ms)._replace(rest=rest)
        answer = answer._replace(
            starts={(each.queue.kind, each.queue.queue_id): each.start for each in found},
            offsets={(each.queue.kind, each.queue.queue_id): each.offsets for each in found},
        )
        self._core.traffic.got += count
        body = b"".join(each.body(request.topic, answer, self._core.config.name) for each in found)
        return Popped(answer, body, misses > 0, min(free, default=0))

    def has_any(self, request: PopRequest, now_ms: int) -> tuple[bool, int]:
        """Whether there is a message that the group has not got. Nothing is noted, and no filter is asked.

        In order: also when the first of the queues is free whose messages are hidden; 0: none is waited for.
        """
        core, free = self._core, list[int]()
        for queue in self._free_queues(request, now_ms, free):
            if core.store.max_offset(queue.topic, queue.queue_id) > self._begin_of(request.group, *queue[1:]):
                return True, 0
        return False, min(free, default=0)

    def _begin_of(self, group: str, topic: str, queue_id: int) -> int:
        """The offset of the first message that the group has not got, if there is one: older ones may have expired."""
        return max(self._core.done_to(group, topic, queue_id), self._core.store.min_offset(topic, queue_id))

    def _free_queues(self, request: PopRequest, now_ms: int, free: list[int]) -> Iterator[_Queue]:
        """Those to look at whose messages are not hidden, in order; when the others are free is added to `free`."""
        for queue in self._queues(request):
            free_ms = self._order.free_ms(_in_order(request, queue), request.attempt_id) if request.order else 0
            if free_ms > now_ms:
                free.append(free_ms)
            else:
                yield queue

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
        if not most or self.log.open.in_flight(group, topic, queue_id) >= MOST_IN_FLIGHT:
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

    def _hand_out(self, request: PopRequest, found: list[_Found], now_ms: int) -> PopResponse:
        """Store the checkpoints, then move the offsets."""
        group, popped_ms, revive_queue = request.group, now_ms, self._next_queue
        while any(each.key(group, popped_ms) in self.log.open for each in found):
            popped_ms += 1
        checkpoints = [
            PopCheckpoint(
                each.key(group, popped_ms), each.offsets, invisible_ms=request.invisible_ms, revive_queue=revive_queue
            )
            for each in found
        ]
        if checkpoints:
            self._next_queue = (revive_queue + 1) % REVIVE_QUEUES
            self.log.store(checkpoints, now_ms)
        for each in found:
            self._core.offsets.commit(group, each.queue.topic, each.queue.queue_id, each.next_offset)
            self._core.offsets.pulled(group, each.queue.topic, each.queue.queue_id, each.next_offset)
        return PopResponse(popped_ms, request.invisible_ms, revive_queue, 0)

    def _note_order(self, request: PopRequest, found: list[_Found], now_ms: int) -> dict[int, Mapping[int, int]]:
        """The group's offsets stay where they are. Returns by queue id how often messages were handed out before."""
        return {
            each.queue.queue_id: self._order.popped(
                _in_order(request, each.queue),
                InOrder(each.offsets, now_ms, request.invisible_ms, request.attempt_id),
            )
            for each in found
        }

    # Acknowledging.

    def ack(self, acks: Sequence[tuple[Key, Acks]], now_ms: int) -> None:
        """Messages are done. What is not hidden any more, or never was, is ignored. Raises StoreError."""
        log = self.log
        done: dict[PopCheckpoint, set[int]] = {}
        for key, (_, offsets) in acks:
            checkpoint = log.open.get(key)
            if checkpoint is not None:
                done.setdefault(checkpoint, set()).update(offsets)
        found = [(checkpoint, sorted(several.intersection(checkpoint.left()))) for checkpoint, several in done.items()]
        records = [log.ack_record(checkpoint, offsets, now_ms) for checkpoint, offsets in found if offsets]
        log.append(records, in_need=True)  # refused, what is done would come again, and need more room

    def hide(self, key: Key, offset: int, *, invisible_ms: int, suspend: bool, now_ms: int) -> int:
        """Hide a message from now on for so long; return when it counts as handed out. Raises StoreError.

        One that is not hidden any more has come again already: it has no other time then.
        """
        popped_ms, log, before = max(now_ms, key.popped_ms + 1), self.log, self.log.open.get(key)
        if before is not None and offset in before.left():
            own = PopCheckpoint(
                key._replace(start=offset, popped_ms=popped_ms),
                [offset],
                invisible_ms=invisible_ms,
                revive_queue=before.revive_queue,
                suspend=suspend,
            )
            log.store([own], now_ms, [log.ack_record(before, [offset], now_ms)])
        return popped_ms

    def ack_in_order(self, key: Key, offset: int) -> None:
        """A message that was popped in order is done. Raises ValueError for one that was not popped."""
        committed = self._core.offsets.committed(key.group, key.topic, key.queue_id)
        if committed is not None and offset >= committed:
            queue = key.topic, key.group, key.queue_id
            next_offset = self._order.ack(queue, offset, key.popped_ms, done_to=committed)
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
        first = self.log.open.first_due
        return None if first is None else first.due_ms

    def revive_due(self, now_ms: int) -> set[tuple[str, str]]:
        """Store again what is due, a bounded part of it. Raises StoreError.

        Returns the groups for which messages come again, and in which topics.
        """
        revived, size, log = set[tuple[str, str]](), 0, self.log
        if not log.has_arrived(now_ms):
            return revived  # acknowledgements may be among what arrives next
        for _ in range(_MOST_REVIVED):
            first = log.open.first_due
            if first is None or first.due_ms > now_ms or size >= _MOST_REVIVED_BYTES:
                break
            again = self._again(first)
            log.append([*again, log.ack_record(first, first.left(), now_ms)])
            size += sum(len(record.body) for record in again)
            revived.update((first.key.group, record.topic) for record in again)
        log.write_far_ones(now_ms)
        return revived

    def _again(self, checkpoint: PopCheckpoint) -> list[Record]:
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
            has_room = len(raw) <= names.LONGEST - _ROOM
            if has_room and (not record.reconsume_times or names.decode(raw).get(FIRST_POP_TIME) is None):
                raw = names.appended(raw, {FIRST_POP_TIME: str(popped_ms)})
            flags = record.sys_flag & ~(BORN_IPV6 | STORE_IPV6)
            again.append(
                record._replace(
                    topic=retry if has_room else core.ensure_topic(dlq_topic(group), 1).name,
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

    def drop(self, topic: str) -> None:
        """The topic was deleted: nothing of it comes again."""
        self.log.open.drop(topic)
        self._order.drop(topic)


def _in_order(request: PopRequest, queue: _Queue) -> InOrderKey:
    return queue.topic, request.group, queue.queue_id
