"""Brokers in memory that hand out messages one by one, as RocketMQ 5 does; beside what `fake_cluster` has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.pulled import Handle
from rocketapp.transport.connection import Connection
from rocketapp.wire import properties as names
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.requests.assignment import (
    ALL_QUEUES,
    POP,
    PULL,
    AssignedQueue,
    AssignmentQuestion,
    encode_assigned,
)
from rocketapp.wire.requests.pop import (
    OF_RETRY,
    OF_TOPIC,
    AckRequest,
    PopRequest,
    PopResponse,
    decode_acks,
    encode_handle,
    pop_retry_topic,
)
from tests.unit.consumer.fake_cluster import FakeCluster, consumed

GROUP = "group"


class HandedOut(NamedTuple):
    """One hand-out: group, topic as subscribed, kind, broker, queue id, first offset, time."""

    group: str
    topic: str
    kind: int
    broker_name: str
    queue_id: int
    start: int
    popped_ms: int


class PopCluster(FakeCluster):
    """`modes` says which topics are popped; `hidden` what was handed out and is not acknowledged."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.modes: dict[tuple[str, str], str] = {}
        self.hidden: dict[HandedOut, set[int]] = {}
        self.acks: list[tuple[float, int]] = []
        """When acknowledgements came, and of how many messages."""
        self.pops: dict[tuple[str, MessageQueue], int] = {}
        self.waiting: list[Callable[[], None]] = []
        self._ticks = 0

    # What is asked.

    def _query_assignment(self, name: str, _: Connection, command: Command) -> Command:
        question = AssignmentQuestion.decode(command.body)
        mode = self.modes.get((name, question.topic), PULL)
        queue = MessageQueue(question.topic, name, ALL_QUEUES if mode == POP else 0)
        return Command.response(command, 0, body=encode_assigned([AssignedQueue(queue, mode)]))

    def _set_message_request_mode(self, name: str, _: Connection, command: Command) -> Command:
        topic = next(topic for topic in self.topics if f'"topic":"{topic}"'.encode() in command.body)
        self.modes[name, topic] = POP
        return Command.response(command, 0)

    def _pop_message(self, name: str, connection: Connection, command: Command) -> Command | None:
        request = PopRequest.from_fields(command.fields)
        answer = self._pop(name, connection, request, command)
        if answer is not None:
            return answer
        is_over = [False]

        def look(at_end: bool = False) -> None:
            if is_over[0] or connection.is_closed:
                return
            found = self._pop(name, connection, request, command)
            if found is None and at_end:
                nothing = PopResponse(0, 0, 0, 0).to_fields()
                found = Command.response(command, ResponseCode.POLLING_TIMEOUT, fields=nothing)
            if found is not None:
                is_over[0] = True
                found.version = self.version
                connection.reply(found)

        self.waiting.append(look)
        self.loop.call_later(request.poll_ms / 1000, look, True)
        return None

    def store(self, queue: MessageQueue, record: Record) -> int:
        offset = super().store(queue, record)
        waiting, self.waiting = self.waiting, []
        if not queue.topic.startswith("%RETRY%"):
            for look in waiting:
                self.loop.call_soon(look)
        return offset

    def _pop(self, name: str, connection: Connection, request: PopRequest, command: Command) -> Command | None:
        found: list[bytes] = []
        starts: dict[tuple[int, int], int] = {}
        offsets: dict[tuple[int, int], list[int]] = {}
        self._ticks += 1
        popped_ms = int(self.clock.now() * 1000) + self._ticks
        for kind in (OF_RETRY, OF_TOPIC):
            topic = pop_retry_topic(request.group, request.topic, kind)
            for queue_id in range(self.topics.get(topic, {}).get(name, 0)):
                queue = MessageQueue(topic, name, queue_id)
                at = self.offsets.get((request.group, queue), 0)
                share = self.log[queue][at : at + request.max_messages - len(found)]
                if not share:
                    continue
                self.offsets[request.group, queue] = at + len(share)
                starts[kind, queue_id], offsets[kind, queue_id] = at, [one.queue_offset for one in share]
                out = HandedOut(request.group, request.topic, kind, name, queue_id, at, popped_ms)
                self.hide_for(connection, out, offsets[kind, queue_id], request.invisible_ms)
                for record in share:
                    handle = Handle(at, popped_ms, request.invisible_ms, 0, kind, name, queue_id, record.queue_offset)
                    found.append(encode_record(record if kind == OF_TOPIC else _with_handle(record, request, handle)))
        if not found:
            return None
        rest = sum(
            len(self.log[queue]) - self.offsets.get((request.group, queue), 0)
            for queue in list(self.log)
            if queue.topic == request.topic
        )
        fields = PopResponse(popped_ms, request.invisible_ms, 0, rest, starts, offsets).to_fields()
        return Command.response(command, 0, fields=fields, body=b"".join(found))

    # What is hidden.

    def hide_for(
        self, _: Connection, out: HandedOut, offsets: Iterable[int], invisible_ms: int, *, counts: bool = True
    ) -> None:
        self.hidden[out] = set(offsets)
        self.loop.call_later(invisible_ms / 1000, self.revive, out, counts)

    def revive(self, out: HandedOut, counts: bool) -> None:
        topic = pop_retry_topic(out.group, out.topic, out.kind)
        retry = pop_retry_topic(out.group, out.topic, OF_RETRY)
        for offset in sorted(self.hidden.pop(out, ())):
            record = self.log[MessageQueue(topic, out.broker_name, out.queue_id)][offset]
            self.topics.setdefault(retry, {}).setdefault(out.broker_name, 1)
            again = record._replace(reconsume_times=record.reconsume_times + counts)
            self.store(MessageQueue(retry, out.broker_name, 0), again)

    def acked(self, _: Connection, out: HandedOut, offsets: Iterable[int]) -> None:
        self._done(out, offsets)

    def _done(self, out: HandedOut, offsets: Iterable[int]) -> None:
        self.hidden.get(out, set()).difference_update(offsets)

    def _ack_message(self, name: str, connection: Connection, command: Command) -> Command:
        out, request = self._named(name, command)
        self.acks.append((self.loop.time(), 1))
        self.acked(connection, out, [request.handle.offset])
        return Command.response(command, 0)

    def _batch_ack_message(self, name: str, connection: Connection, command: Command) -> Command:
        entries = decode_acks(command.body)
        self.acks.append((self.loop.time(), sum(len(acks.offsets) for _, _, acks in entries)))
        for group, topic, (handle, offsets) in entries:
            out = HandedOut(group, topic, handle.kind, name, handle.queue_id, handle.start, handle.popped_ms)
            self.acked(connection, out, offsets)
        return Command.response(command, 0)

    def _change_message_invisibletime(self, name: str, connection: Connection, command: Command) -> Command:
        out, request = self._named(name, command)
        assert request.invisible_ms is not None
        self._ticks += 1
        popped_ms = int(self.clock.now() * 1000) + self._ticks
        offset = request.handle.offset
        self._done(out, [offset])
        counts = not request.suspend
        anew = out._replace(start=offset, popped_ms=popped_ms)
        self.hide_for(connection, anew, [offset], request.invisible_ms, counts=counts)
        fields = PopResponse(popped_ms, request.invisible_ms, 0, 0).to_fields()
        return Command.response(command, 0, fields=fields)

    def _named(self, name: str, command: Command) -> tuple[HandedOut, AckRequest]:
        request = AckRequest.from_fields(command.fields)
        handle = request.handle
        topic = request.topic.removeprefix(f"%RETRY%{request.group}_")
        assert request.topic == pop_retry_topic(request.group, topic, handle.kind)
        return HandedOut(
            request.group, topic, handle.kind, name, handle.queue_id, handle.start, handle.popped_ms
        ), request


def _with_handle(record: Record, request: PopRequest, handle: Handle) -> Record:
    known = {**names.decode(record.raw_properties), "POP_CK": encode_handle(handle)}
    return record._replace(topic=request.topic, raw_properties=names.encode(known))


def popped(call: Callable[[Any], Any], **options: Any) -> ConsumedTopic:
    """A popped topic with one handler."""
    return consumed(call, mode="pop", **options)
