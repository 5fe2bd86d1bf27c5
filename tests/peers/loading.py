"""Fills topics for tests, message by message as named, without the writer that is tested here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyspark_rocketmq.options import Access
from pyspark_rocketmq.remoting import Connection
from rocketapp.wire import properties
from rocketapp.wire.batch import encode_batch
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.requests.offsets import OffsetResponse, QueueRequest
from rocketapp.wire.requests.send import SendRequest, SendResponse
from tests.peers.waiting import wait_until


class Sent(NamedTuple):
    """A message to send."""

    body: bytes
    tag: str | None = None
    keys: str | None = None
    unique_id: str | None = None
    extra: tuple[tuple[str, str], ...] = ()

    def raw_properties(self) -> bytes:
        named = {"KEYS": self.keys, "TAGS": self.tag, "UNIQ_KEY": self.unique_id, **dict(self.extra)}
        return properties.encode(named)


class Loader:
    """One connection to a broker on which topics are made and filled."""

    def __init__(self, address: str) -> None:
        self._connection = Connection(address, Access(), timeout=60)

    def make_topic(self, topic: str, queues: int) -> None:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        reply = self._connection.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields, timeout=60)
        assert reply.code == 0, reply.remark

    def delete_topic(self, topic: str, name_server: str = "") -> None:
        """Delete it at the broker, and at a name server that is another process."""
        reply = self._connection.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}, timeout=60)
        assert reply.code == 0, reply.remark
        if name_server not in ("", self._connection.address):
            asking = Connection(name_server, Access(), timeout=60)
            reply = asking.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic}, timeout=60)
            asking.close()
            assert reply.code == 0, reply.remark

    def configure(self, properties: str) -> None:
        """Change properties of a running broker."""
        reply = self._connection.call(RequestCode.UPDATE_BROKER_CONFIG, None, properties.encode(), timeout=60)
        assert reply.code == 0, reply.remark

    def send(self, topic: str, queue_id: int, messages: Iterable[Sent], *, at_once: int = 256) -> list[int]:
        """Send in batches; return the offset of the first message of each batch, when all can be read."""
        offsets, waiting = [], list(messages)
        for first in range(0, len(waiting), at_once):
            offsets.append(self._send_batch(topic, queue_id, waiting[first : first + at_once]))
        if offsets:
            # Apache stores a message, answers, and then puts it into its queue.
            end = offsets[-1] + (len(waiting) - 1) % at_once + 1
            wait_until(lambda: self.end(topic, queue_id) >= end, within=60, what=f"{topic}:{queue_id} reaches {end}")
        return offsets

    def put(self, topic: str, queue_id: int, some: Sequence[Sent]) -> int:
        """Send one batch; return the offset of its first message as soon as it is stored."""
        return self._send_batch(topic, queue_id, some)

    def put_one(self, topic: str, queue_id: int, body: bytes, *, sys_flag: int) -> None:
        """Send one message as it is, for instance with a body that only says that it is compressed."""
        request = SendRequest("loader", topic, queue_id=queue_id, sys_flag=sys_flag)
        reply = self._connection.call(RequestCode.SEND_MESSAGE_V2, request.to_fields(), body, timeout=60)
        assert reply.code == 0, reply.remark

    def end(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's next message."""
        fields = QueueRequest(topic, queue_id).to_fields()
        reply = self._connection.call(RequestCode.GET_MAX_OFFSET, fields, timeout=60)
        return OffsetResponse.from_fields(reply.fields).offset

    def _send_batch(self, topic: str, queue_id: int, some: Sequence[Sent]) -> int:
        body = encode_batch((message.body, message.raw_properties(), 0) for message in some)
        request = SendRequest("loader", topic, queue_id=queue_id, properties="WAIT\x01true\x02", batch=True)
        reply = self._connection.call(RequestCode.SEND_BATCH_MESSAGE, request.to_fields(), body, timeout=60)
        assert reply.code == 0, reply.remark
        return SendResponse.from_fields(reply.fields).queue_offset

    def close(self) -> None:
        self._connection.close()
