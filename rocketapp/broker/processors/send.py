"""Sends: check, stamp, store, answer.

Codes SEND_MESSAGE 10, SEND_MESSAGE_V2 310, SEND_BATCH_MESSAGE 320 (Java: SendMessageProcessor). The sends of
one read are stored with one write, and answered when it has passed their bytes to the operating system, or to the disk
with `flush = "sync"`. Whatever else is served comes after that write.
"""

from __future__ import annotations

import msgspec

from rocketapp.broker.added_properties import Stamp, Stamped
from rocketapp.broker.core import Core, Tell
from rocketapp.broker.delays import delayed
from rocketapp.broker.flushing import Flusher, reply
from rocketapp.broker.store.stored import Stored
from rocketapp.broker.timers import timed
from rocketapp.errors import BrokerError, ProtocolError, StoreError
from rocketapp.model.names import FORBIDDEN_TOPICS, RETRY_PREFIX, dlq_topic, is_retry_topic, topic_problem
from rocketapp.model.route import PERM_WRITE
from rocketapp.transport.answers import IS_BUSY, PUBLISH, Answer, answers, response_of
from rocketapp.transport.connection import Connection
from rocketapp.wire.batch import decode_batch
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import FLAG_ONE_WAY, Command
from rocketapp.wire.frame import encode
from rocketapp.wire.layout import BORN_IPV6, STORE_IPV6, Record
from rocketapp.wire.message_id import offset_id
from rocketapp.wire.requests.admin import TopicConfig
from rocketapp.wire.requests.recall import RecallHandle
from rocketapp.wire.requests.send import REGION, SendRequest, SendResponse, usual_answer

_OUR_FLAGS = BORN_IPV6 | STORE_IPV6 | 12
"""Bits of `sys_flag` that producers may not set: kinds of addresses and the transaction state."""
_new_record = tuple.__new__
"""With sixteen values a call of `Record` costs several times as much, and each send pays for one."""
_SENDS = RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE

_MOST_BATCHED = 32_767
"""Messages of one batch, which keep the loop for some 0.4 s. Apache RocketMQ counts them in 16 bits: it says that more
are stored, and consumers never see them."""
_REQUEST_BYTES, _MESSAGE_BYTES = 2048, 512
"""About what a request, and each of its messages, takes in memory beside its body until it is answered."""


class _PendingSend(msgspec.Struct):
    """One request that is stored together with the others of its read."""

    connection: Connection
    command: Command
    records: list[Record]
    topic: str
    queue_id: int
    unique_key: str | None = None
    """None for a batch, whose messages have one each."""
    handle: str | None = None


class SendProcessor:
    """Stores what producers send."""

    def __init__(self, core: Core, flusher: Flusher) -> None:
        self._core, self._flusher = core, flusher
        self._sent: list[_PendingSend] = []
        """What the read that is served now has brought."""
        self._kept_bytes = 0
        """What is in memory, beside bodies, for answers that wait for the disk."""
        self._stamp = Stamp(
            cluster=core.config.cluster,
            region=REGION,
            new_key=lambda: core.unique_ids.next(core.clock.now()),
            clock=core.clock,
        )

    @answers(*_SENDS, needs=PUBLISH, slave=IS_BUSY)
    def send(self, connection: Connection, command: Command) -> Answer:
        request = SendRequest.from_command(command)
        topic = self.topic(request)
        queue_id = self.queue_id(request, topic)
        take = self._batch if request.batch else self._single
        self._sent.append(take(connection, command, request, queue_id))
        return None

    def store_sends(self) -> None:
        """Store the sends since the last call with one write, and answer them."""
        if self._sent:
            sent, self._sent = self._sent, []
            self._store(sent)

    def _store(self, sent: list[_PendingSend]) -> None:
        try:
            self._flusher.check_room(self._kept_bytes)
            stored = self._core.store.append_batch([record for one in sent for record in one.records])
        except Exception as error:
            if len(sent) == 1 or (isinstance(error, StoreError) and error.is_unknown):
                for one in sent:
                    if not one.command.is_one_way:
                        one.connection.reply(response_of(one.command, error))
            else:  # because of one of them, or because they do not fit together
                for one in sent:
                    self._store([one])
            return
        self._core.traffic.put += len(stored)
        if self._flusher.waits(has_appended=True, topics=(one.topic for one in sent)):
            # Without an answer nothing is kept: small messages that wait take ten times their place on disk.
            tell: Tell = bool if all(one.command.is_one_way for one in sent) else self._kept(sent, stored)
            self._flusher.wait(tell, has_appended=True, topics=(one.topic for one in sent))
        else:
            self._answer(sent, stored, None)

    def _kept(self, sent: list[_PendingSend], stored: list[Stored]) -> Tell:
        """What answers these later. Until then they count as memory that is in use."""
        size = len(sent) * _REQUEST_BYTES + len(stored) * _MESSAGE_BYTES

        def tell(error: StoreError | None) -> None:
            self._kept_bytes -= size
            self._answer(sent, stored, error)

        self._kept_bytes += size
        return tell

    def _answer(self, sent: list[_PendingSend], stored: list[Stored], error: StoreError | None) -> None:
        """Answer where these are stored. After an error it is unknown whether they stay."""
        answered, at, frames = self._flusher.answered, 0, list[bytes]()
        for one in sent:
            command, records, own, unique_key = one.command, one.records, stored[at], one.unique_key
            host, port = records[0].store_host, records[0].store_port
            message_id = offset_id(host, port, own.physical)
            if len(records) > 1:
                others = stored[at + 1 : at + len(records)]
                message_id = ",".join((message_id, *(offset_id(host, port, other.physical) for other in others)))
            at += len(records)
            if command.flag & FLAG_ONE_WAY:
                continue
            found = message_id, one.queue_id, own.queue_offset
            if error is not None:
                frames.append(encode(response_of(command, StoreError(error.problem, True))))
            elif answered is not reply:
                response = response_of(command, SendResponse(*found, unique_key, one.handle))
                answered(stored[-1].physical + stored[-1].size, one.connection, command, response)
            elif unique_key is None or one.handle is not None or command.serializer:
                frames.append(encode(response_of(command, SendResponse(*found, unique_key, one.handle))))
            else:
                frames.append(usual_answer(*found, unique_key, command.opaque))
        if frames:
            sent[0].connection.reply_encoded(b"".join(frames))

    def topic(self, request: SendRequest) -> TopicConfig:
        """The topic of a send. A missing topic is created when that is allowed."""
        name = request.topic
        if name in FORBIDDEN_TOPICS:
            raise BrokerError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        topic = self._core.topics.get(name)
        if topic is None:
            topic = self._create(request)
        if not topic.perm & PERM_WRITE:
            raise BrokerError(ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden")
        return topic

    def _create(self, request: SendRequest) -> TopicConfig:
        core = self._core
        problem = topic_problem(request.topic)
        if problem is not None:
            raise BrokerError(ResponseCode.INVALID_PARAMETER, problem)
        if is_retry_topic(request.topic):
            return core.ensure_retry_topic(core.group(request.topic.removeprefix(RETRY_PREFIX)))
        topic = core.topics.inherited(request.topic, request.default_topic, request.default_queues)
        return core.known_topic(request.topic) if topic is None else core.put_topic(topic)

    def queue_id(self, request: SendRequest, topic: TopicConfig) -> int:
        """The queue of a send; a random one if it names none."""
        queue_id = request.queue_id
        if queue_id >= topic.write_queues and queue_id >= topic.read_queues:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, topic {topic.name} has {topic.write_queues} queues to write",
            )
        if queue_id >= 0:
            return queue_id
        if topic.write_queues <= 0:
            raise BrokerError(ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] has no queue to write")
        return self._core.random.randrange(topic.write_queues)

    def _single(self, connection: Connection, command: Command, request: SendRequest, queue_id: int) -> _PendingSend:
        core, body, topic = self._core, command.body, request.topic
        self._check_body(body)
        stamped = self._stamp.single(request.properties)
        if stamped.is_half and (stamped.delay_level or stamped.timer_ms or topic.startswith(RETRY_PREFIX)):
            problem = "a transaction message is neither delayed nor a retry: it is held back until the commit"
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, problem)
        if topic.startswith(RETRY_PREFIX):
            dead = self._dead_letter_topic(command, request)
            if dead is not None:
                topic, queue_id = dead, 0
                stamped = Stamped(stamped.raw + b"DELAY\x01-1\x02", stamped.unique_key, 0)
        unique_key, handle = stamped.unique_key, None
        record = self.record(connection, request, body, stamped.raw, topic=topic, queue_id=queue_id)
        if stamped.is_half:
            record = core.halves.half(record, unique_key)
        elif stamped.delay_level:
            record = delayed(record, stamped.delay_level)
        elif stamped.timer_ms:
            core.timers.check_room()
            record = timed(record, stamped.timer_ms)
            handle = RecallHandle(topic, core.config.name, stamped.timer_ms + 1, unique_key).encode()
        return _PendingSend(connection, command, [record], request.topic, queue_id, unique_key, handle)

    def _batch(self, connection: Connection, command: Command, request: SendRequest, queue_id: int) -> _PendingSend:
        core = self._core
        if is_retry_topic(request.topic):
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, "batch request does not support retry group")
        if len(command.body) > core.config.max_message_bytes:
            raise _too_large(len(command.body), core.config.max_message_bytes)
        try:
            items = decode_batch(command.body)
        except ProtocolError as error:
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        if not items:
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
        if len(items) > _MOST_BATCHED:
            problem = f"the batch holds {len(items)} messages, limit {_MOST_BATCHED}: send it in parts"
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, problem)
        records = []
        for body, raw, flag in items:
            self._check_body(body)
            stamped = self._stamp.batched(raw)
            if stamped.is_half:
                raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, "a batch holds no transaction: send each singly")
            if stamped.delay_level or stamped.timer_ms:
                raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be delayed: send its messages singly")
            record = self.record(connection, request, body, stamped.raw, topic=request.topic, queue_id=queue_id)
            records.append(record._replace(flag=flag))
        return _PendingSend(connection, command, records, request.topic, queue_id)

    def _check_body(self, body: bytes) -> None:
        if not body:
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: it has no body")
        if len(body) > self._core.config.max_message_bytes:
            raise _too_large(len(body), self._core.config.max_message_bytes)

    def record(
        self, connection: Connection, request: SendRequest, body: bytes, raw: bytes, *, topic: str, queue_id: int
    ) -> Record:
        """The record to store for a request."""
        born, here, flags = self._core.hosts(connection)
        said = request.flag, 0, 0, request.sys_flag & ~_OUR_FLAGS | flags, request.born_ms
        hosts = born.raw, born.port, 0, here.raw, here.port
        return _new_record(Record, (topic, body, raw, queue_id, *said, *hosts, request.reconsume_times, 0))

    def _dead_letter_topic(self, command: Command, request: SendRequest) -> str | None:
        """The dead-letter topic for a message whose retries are used up or whose group consumes in order; else None."""
        core = self._core
        group = core.group(request.topic.removeprefix(RETRY_PREFIX))
        most = group.most_retries(request.max_reconsume_times, command.version)
        # Greater, not equal: a client has already counted the failed attempt.
        if request.reconsume_times > most or core.locks.holds_any(group.name, core.monotonic()):
            return core.ensure_topic(dlq_topic(group.name), 1).name
        return None


def _too_large(size: int, limit: int) -> BrokerError:
    return BrokerError(
        ResponseCode.MESSAGE_ILLEGAL,
        f"the message is illegal, maybe msg body is too large: {size} bytes, limit {limit} (broker.max_message_bytes)",
    )
