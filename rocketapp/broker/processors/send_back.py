"""A consumer sends a failed message back: it is stored again for later, or as a dead letter.

Code CONSUMER_SEND_MSG_BACK 36 (Java: AbstractSendMessageProcessor). A message becomes a dead letter when its count of
retries has *reached* the maximum, because the count is raised after the check.
"""

from __future__ import annotations

from rocketapp.broker.core import Core
from rocketapp.broker.delays import delayed
from rocketapp.errors import BrokerError, ProtocolError
from rocketapp.model.names import dlq_topic
from rocketapp.model.route import PERM_WRITE
from rocketapp.transport.answers import DONE, REFUSES, Answer, answers, on_group
from rocketapp.transport.connection import Connection
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import MOST_RECONSUME_TIMES, STORE_IPV6, Record, decode_record
from rocketapp.wire.message_id import offset_id
from rocketapp.wire.requests.send_back import SendBackRequest

_FIRST_LEVEL = 3
"""The delay level of the first retry: 10 s."""


class SendBackProcessor:
    """Stores failed messages again."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @answers(RequestCode.CONSUMER_SEND_MSG_BACK, needs=(on_group("Sub", field="group"),), slave=REFUSES)
    def send_back(self, connection: Connection, command: Command) -> Answer:
        core = self._core
        request = SendBackRequest.from_fields(command.fields)
        group = core.group(request.group)
        if group.retry_queues <= 0:
            return DONE
        retry = core.ensure_retry_topic(group)
        if not retry.perm & PERM_WRITE:
            raise BrokerError(ResponseCode.NO_PERMISSION, f"the topic[{retry.name}] sending message is forbidden")
        data = core.store.record_at(request.physical_offset)
        if data is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {request.physical_offset}")
        message = decode_record(data)
        properties = names.decode(message.raw_properties)
        properties.setdefault(names.RETRY_TOPIC, message.topic)
        properties.setdefault(
            names.ORIGIN_MESSAGE_ID, offset_id(message.store_host, message.store_port, message.physical_offset)
        )
        properties[names.WAIT] = "false"
        most = group.most_retries(request.max_reconsume_times, command.version)
        is_dead = message.reconsume_times >= most or request.delay_level < 0
        level = 0 if is_dead else request.delay_level or _FIRST_LEVEL + message.reconsume_times
        properties[names.DELAY] = str(level)
        topic, queue_id = retry.name, core.random.randrange(group.retry_queues)
        if is_dead:
            topic, queue_id = core.ensure_topic(dlq_topic(group.name), 1).name, 0
        self._store(connection, message._replace(topic=topic, queue_id=queue_id), properties, level)
        return DONE

    def _store(self, connection: Connection, message: Record, properties: dict[str, str], level: int) -> None:
        core = self._core
        here = core.hosts(connection).store
        try:
            raw = names.encode(properties)
        except ProtocolError as error:
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        if len(raw) > names.LONGEST:
            raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, f"properties of {len(raw)} bytes, limit {names.LONGEST}")
        record = message._replace(
            raw_properties=raw,
            sys_flag=message.sys_flag | STORE_IPV6 if here.is_ipv6 else message.sys_flag & ~STORE_IPV6,
            store_host=here.raw,
            store_port=here.port,
            reconsume_times=min(message.reconsume_times + 1, MOST_RECONSUME_TIMES),
            prepared_offset=0,
        )
        core.store.append(delayed(record, level) if level > 0 else record)
        core.traffic.put += 1
