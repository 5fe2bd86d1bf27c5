"""What a member of a consumer group is doing.

Members ask each other with the field `brief`, and are told what a member subscribes and what it pulls, no more.
Of other reports, Java's too, `RunningInfo` reads the same two without decoding the rest.

Codes: GET_CONSUMER_RUNNING_INFO 307, from tool to broker and from broker to client, whose request is in `admin`;
GET_CONSUMER_STATUS_FROM_CLIENT 221, from broker to client. Java: ConsumerRunningInfo, ProcessQueueInfo, ConsumeStatus,
GetConsumerStatusBody. What only Java's tool reads is written here and not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import SubscriptionData
from rocketapp.wire import lenient_json
from rocketapp.wire.fields import Header, java_names
from rocketapp.wire.lenient_json import JsonObject, dump, text_of
from rocketapp.wire.requests.clients import subscription_members, subscription_of

CONSUME_TYPE, STARTED, CLIENT_VERSION = "PROP_CONSUME_TYPE", "PROP_CONSUMER_START_TIMESTAMP", "PROP_CLIENT_VERSION"
"""Names of properties. Java's tool reads the first two without asking whether they are there."""
ORDERLY, NAME_SERVERS, CONCURRENCY = "PROP_CONSUMEORDERLY", "PROP_NAMESERVER_ADDR", "PROP_THREADPOOL_CORE_SIZE"
"""The same; the tool says that a queue without a lock stands still when the first one is `true`."""
PULLED = "PROP_ROCKETAPP_PULLED"
"""Name of ours: by topic the expression that the member pulls, as JSON. Who tells it takes part in roll-outs."""

AGREED = "PROP_ROCKETAPP_AGREED"
"""Name of ours: `true` when every other member was found to pull what this one wants; before, who finds it out."""

LOCKS = "PROP_ROCKETAPP_LOCKS"
"""Name of ours: whether the member locks queues, `true` or `false`. Who tells it takes replayed dead letters."""

_QUEUE_AS_KEY = b'":{{"'
_read = json.JSONDecoder().raw_decode
_decode_pulled = msgspec.json.Decoder(dict[str, str]).decode


def encode_pulled(pulled: Mapping[str, str]) -> str:
    """The value of PULLED."""
    return dump(pulled).decode()


class QueueInfo(
    JsonObject,
    frozen=True,
    rename=java_names(
        first_cached="cachedMsgMinOffset",
        last_cached="cachedMsgMaxOffset",
        cached="cachedMsgCount",
        cached_mib="cachedMsgSizeInMiB",
        first_running="transactionMsgMinOffset",
        last_running="transactionMsgMaxOffset",
        running="transactionMsgCount",
        is_locked="locked",
        locked_ms="lastLockTimestamp",
        is_given_back="droped",
        pulled_ms="lastPullTimestamp",
        consumed_ms="lastConsumeTimestamp",
    ),
):
    """What a member does with one queue. Times are milliseconds since 1970, offsets 0 where there is none."""

    commit_offset: int
    """Everything below is done."""
    first_cached: int = 0
    last_cached: int = 0
    cached: int = 0
    """Messages that wait for their handler; of a queue without a lock also those whose handler runs."""
    cached_mib: int = 0
    """The size of all of them, those whose handler runs included, in whole MiB."""
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
    try_unlock_times: int = 0
    """Not told."""


class PopInfo(
    JsonObject,
    frozen=True,
    rename=java_names(unfinished="waitAckCount", is_given_back="droped", answered_ms="lastPopTimestamp"),
):
    """What a member does with one queue whose messages its broker hands out one by one."""

    unfinished: int
    is_given_back: bool = False
    answered_ms: int = 0
    """When a request for messages was answered last: milliseconds since 1970."""


class TopicRates(
    JsonObject,
    frozen=True,
    rename=java_names(
        pulled_per_second="pullTPS",
        handled_per_second="consumeOKTPS",
        failed_per_second="consumeFailedTPS",
        failed_in_hour="consumeFailedMsgs",
        pull_time="pullRT",
        handling_time="consumeRT",
    ),
):
    """What a member does with one topic (Java: ConsumeStatus)."""

    pulled_per_second: float
    """Messages, of the last minute; so are the next two."""
    handled_per_second: float
    failed_per_second: float
    """Failed attempts."""
    failed_in_hour: int
    pull_time: float = 0.0
    handling_time: float = 0.0
    """This and the time before it are not told: Java's tool shows 0."""


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
            "mqPopTable": lenient_json.dump_queue_map(self.popped),
            "mqTable": lenient_json.dump_queue_map(self.queues),
            "properties": dict(self.properties),
            "statusTable": dict(self.rates),
            "subscriptionSet": [subscription_members(one) for one in self.subscriptions],
            "userConsumerInfo": {},
        }
        return dump(members if self.stacks is None else {**members, "jstack": self.stacks})

    @classmethod
    def decode(cls, body: bytes) -> RunningInfo:
        """Read the properties and subscriptions of the answer to 307; raises ProtocolError."""
        if _QUEUE_AS_KEY in body:  # a whole report, which can be large
            settings, subscribed = _member(body, b'"properties":', dict), _member(body, b'"subscriptionSet":', list)
            if settings is not None and subscribed is not None:
                body = dump({"properties": settings, "subscriptionSet": subscribed})
        with lenient_json.reading("running info", body) as data:
            properties = {text_of(name): text_of(value) for name, value in (data.get("properties") or {}).items()}
            return cls(properties, tuple(map(subscription_of, data.get("subscriptionSet") or ())))


def _member(body: bytes, name: bytes, kind: type) -> Any:
    """The value of this name that is of this kind; None when it is not found so, or is no standard JSON.

    Within a string the quotes around the name would be escaped, so what is found is a name.
    """
    at = body.find(name)
    while at >= 0:
        at += len(name)
        try:
            value, _ = _read(body[at:].decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
        if isinstance(value, kind):
            return value
        at = body.find(name, at)
    return None


def decode_owned(body: bytes) -> frozenset[MessageQueue]:
    """Read the queues that a member has from its answer to 307; raises ProtocolError.

    Of popped topics the queue id may be ALL_QUEUES. Those that it is giving back are left out.
    """
    with lenient_json.reading("queues of a member", body) as data:
        tables = [data.get(name) or {} for name in ("mqTable", "mqPopTable")]
        found = [(lenient_json.queue_of(queue), info) for table in tables for queue, info in table.items()]
        return frozenset(queue for queue, info in found if info.get("droped") is not True)


class ConsumerStatusRequest(Header, frozen=True, rename=java_names(group="group")):
    """Asks a member how far it is with a topic (221)."""

    topic: str
    group: str


def encode_status(offsets: Mapping[MessageQueue, int]) -> bytes:
    """GetConsumerStatusBody: by queue the offset below which everything is done."""
    return dump({"messageQueueTable": lenient_json.dump_queue_map(offsets)})
