"""What a member of a consumer group is doing.

Codes: GET_CONSUMER_RUNNING_INFO 307, from tool to broker and from broker to client, whose request is in `admin`;
GET_CONSUMER_STATUS_FROM_CLIENT 221, from broker to client. Java: ConsumerRunningInfo, ProcessQueueInfo, ConsumeStatus,
GetConsumerStatusBody. What only Java's tool reads is written here and not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import SubscriptionData
from rocketapp.wire import fields as read
from rocketapp.wire import lenient_json
from rocketapp.wire.lenient_json import text_of
from rocketapp.wire.requests.clients import subscription_members, subscription_of

CONSUME_TYPE, STARTED, CLIENT_VERSION = "PROP_CONSUME_TYPE", "PROP_CONSUMER_START_TIMESTAMP", "PROP_CLIENT_VERSION"
"""Names of properties. Java's tool reads the first two without asking whether they are there."""
ORDERLY, NAME_SERVERS, CONCURRENCY = "PROP_CONSUMEORDERLY", "PROP_NAMESERVER_ADDR", "PROP_THREADPOOL_CORE_SIZE"
"""The same; the tool says that a queue without a lock stands still when the first one is `true`."""
PULLED = "PROP_ROCKETAPP_PULLED"
"""Name of ours: by topic the expression that the member pulls, as JSON. Who tells it takes part in roll-outs."""

_encode = msgspec.json.Encoder(order="sorted").encode
_decode_pulled = msgspec.json.Decoder(dict[str, str]).decode


def encode_pulled(pulled: Mapping[str, str]) -> str:
    """The value of PULLED."""
    return _encode(pulled).decode()


class QueueInfo(NamedTuple):
    """What a member does with one queue. Times are milliseconds since 1970, offsets 0 where there is none."""

    commit_offset: int
    """Everything below is done."""
    first_cached: int = 0
    last_cached: int = 0
    cached: int = 0
    """Messages that wait for their handler; of a queue without a lock also those whose handler runs."""
    cached_bytes: int = 0
    """All of them, those whose handler runs included."""
    first_running: int = 0
    last_running: int = 0
    running: int = 0
    """Messages of a queue with a lock whose handler runs."""
    is_locked: bool = False
    locked_ms: int = 0
    is_given_back: bool = False
    pulled_ms: int = 0
    consumed_ms: int = 0
    """When a message of it was finished last."""

    def members(self) -> dict[str, int | bool]:
        """By Java's names."""
        return {
            "cachedMsgCount": self.cached,
            "cachedMsgMaxOffset": self.last_cached,
            "cachedMsgMinOffset": self.first_cached,
            "cachedMsgSizeInMiB": self.cached_bytes >> 20,
            "commitOffset": self.commit_offset,
            "droped": self.is_given_back,
            "lastConsumeTimestamp": self.consumed_ms,
            "lastLockTimestamp": self.locked_ms,
            "lastPullTimestamp": self.pulled_ms,
            "locked": self.is_locked,
            "transactionMsgCount": self.running,
            "transactionMsgMaxOffset": self.last_running,
            "transactionMsgMinOffset": self.first_running,
            "tryUnlockTimes": 0,
        }


class PopInfo(NamedTuple):
    """What a member does with one queue whose messages its broker hands out one by one."""

    unfinished: int
    is_given_back: bool = False
    answered_ms: int = 0
    """When a request for messages was answered last: milliseconds since 1970."""

    def members(self) -> dict[str, int | bool]:
        """By Java's names."""
        return {"droped": self.is_given_back, "lastPopTimestamp": self.answered_ms, "waitAckCount": self.unfinished}


class TopicRates(NamedTuple):
    """What a member does with one topic. Times of pulls and calls are not told: Java's tool shows 0."""

    pulled_per_second: float
    """Messages, of the last minute; so are the next two."""
    handled_per_second: float
    failed_per_second: float
    """Failed attempts."""
    failed_in_hour: int

    def members(self) -> dict[str, float | int]:
        """By Java's names (ConsumeStatus)."""
        return {
            "consumeFailedMsgs": self.failed_in_hour,
            "consumeFailedTPS": self.failed_per_second,
            "consumeOKTPS": self.handled_per_second,
            "consumeRT": 0.0,
            "pullRT": 0.0,
            "pullTPS": self.pulled_per_second,
        }


class RunningInfo(NamedTuple):
    """One member of one group."""

    properties: Mapping[str, str]
    subscriptions: tuple[SubscriptionData, ...]
    """What its own handlers want."""
    queues: Mapping[MessageQueue, QueueInfo] = {}
    popped: Mapping[MessageQueue, PopInfo] = {}
    rates: Mapping[str, TopicRates] = {}
    """By topic."""
    stacks: str | None = None
    """Where its threads and tasks stand; None when that was not asked for."""

    @property
    def pulled(self) -> dict[str, str] | None:
        """By topic the expression that it pulls; None when it does not tell, or tells what cannot be read."""
        try:
            return _decode_pulled(self.properties[PULLED])
        except (KeyError, msgspec.DecodeError):
            return None

    def encode(self) -> bytes:
        members = {
            "mqPopTable": lenient_json.dump_queue_map({queue: info.members() for queue, info in self.popped.items()}),
            "mqTable": lenient_json.dump_queue_map({queue: info.members() for queue, info in self.queues.items()}),
            "properties": dict(self.properties),
            "statusTable": {topic: rates.members() for topic, rates in self.rates.items()},
            "subscriptionSet": [subscription_members(one) for one in self.subscriptions],
            "userConsumerInfo": {},
        }
        return _encode(members if self.stacks is None else {**members, "jstack": self.stacks})

    @classmethod
    def decode(cls, body: bytes) -> RunningInfo:
        """Read the answer to 307; raises ProtocolError."""
        data = lenient_json.loads(body)
        try:
            properties = {text_of(name): text_of(value) for name, value in (data.get("properties") or {}).items()}
            return cls(properties, tuple(map(subscription_of, data.get("subscriptionSet") or ())))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"running info: {type(error).__name__} {error}") from None


def decode_owned(body: bytes) -> frozenset[MessageQueue]:
    """Read the queues that a member has from its answer to 307; raises ProtocolError.

    Of popped topics the queue id may be ALL_QUEUES. Those that it is giving back are left out.
    """
    data = lenient_json.loads(body)
    try:
        tables = [data.get(name) or {} for name in ("mqTable", "mqPopTable")]
        found = [(lenient_json.queue_of(queue), info) for table in tables for queue, info in table.items()]
        return frozenset(queue for queue, info in found if info.get("droped") is not True)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"queues of a member: {type(error).__name__} {error}") from None


class ConsumerStatusRequest(NamedTuple):
    """Asks a member how far it is with a topic (221)."""

    topic: str
    group: str

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> ConsumerStatusRequest:
        return cls(read.text(fields, "topic"), read.text(fields, "group"))


def encode_status(offsets: Mapping[MessageQueue, int]) -> bytes:
    """GetConsumerStatusBody: by queue the offset below which everything is done."""
    return _encode({"messageQueueTable": lenient_json.dump_queue_map(offsets)})
