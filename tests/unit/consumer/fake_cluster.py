"""Brokers in memory that do what consumers need of them, and misbehave as told.

One object is the whole cluster: a name server and brokers on a memory network. It keeps a
history of requests, and may be told to refuse, or not to answer, requests by their code.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import pytest

from rocketapp.client import instance
from rocketapp.client.calls.offsets import HONOURS_SET_ZERO
from rocketapp.config.client import ClientConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.config.producer import ProducerConfig
from rocketapp.consumer import member as engine
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.offsets.stores import OffsetStore
from rocketapp.consumer.pull.flow import FlowControl
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DELAY_SECONDS, dlq_topic, is_retry_topic, retry_topic
from rocketapp.model.route import BrokerData, QueueData, TopicRoute
from rocketapp.model.subscription import Start, Subscription, SubscriptionData, parse_tags
from rocketapp.producer.producer import Producer
from rocketapp.state.allocation import AVERAGE, Allocation
from rocketapp.testing.virtual_time import VirtualClock
from rocketapp.transport.connection import Connection, Listener
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import VERSION, Command
from rocketapp.wire.java import tags_code
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.requests.clients import Heartbeat, OfGroup, UnregisterRequest, encode_members
from rocketapp.wire.requests.locks import LockBody, encode_locked
from rocketapp.wire.requests.offsets import CommitRequest, OffsetResponse, QueryOffsetRequest, QueueRequest
from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION, PullRequest, PullResponse
from rocketapp.wire.requests.routes import RouteRequest, encode_cluster_info, encode_route
from rocketapp.wire.requests.send import SendRequest, SendResponse
from rocketapp.wire.requests.send_back import SendBackRequest
from tests.unit.scripted import Events

NAME_SERVER = "127.0.0.1:9876"
LOCK_LIFE = 60.0


class Asked(NamedTuple):
    """One request in the history."""

    time: float
    code: int
    fields: Mapping[str, str]
    client: str


@dataclass
class Lock:
    owner: str
    until: float


@dataclass
class Broker:
    """One broker."""

    name: str
    address: str
    listener: Listener
    members: dict[Connection, Heartbeat] = field(default_factory=dict)


class FakeCluster:
    """A name server and brokers."""

    def __init__(self, *, brokers: int = 1, network: MemoryNetwork | None = None) -> None:
        self.network = network or MemoryNetwork()
        self.loop = asyncio.get_running_loop()
        self.clock = VirtualClock(self.loop)
        self.brokers: dict[str, Broker] = {}
        self.topics: dict[str, dict[str, int]] = {}
        """topic -> broker name -> queues"""
        self.log: dict[MessageQueue, list[Record]] = defaultdict(list)
        self.first: dict[MessageQueue, int] = defaultdict(int)
        """Offsets below were deleted."""
        self.records: list[tuple[MessageQueue, Record]] = []
        self.offsets: dict[tuple[str, MessageQueue], int] = {}
        self.commits: list[tuple[float, MessageQueue, int]] = []
        self.locks: dict[tuple[str, MessageQueue], Lock] = {}
        self.held: dict[MessageQueue, list[Callable[[], None]]] = defaultdict(list)
        self.asked: list[Asked] = []
        self.misbehave: dict[int, Callable[[Asked], Command | bool | None]] = {}
        """By code: returns a response, None for no answer, or True to behave."""
        self.young = False
        """Brokers answer 0 for groups without an offset."""
        self.version = VERSION
        """What brokers say of their version. Old ones do not know `setZeroIfNotFound`."""
        self._names = [f"broker-{chr(ord('a') + index)}" for index in range(brokers)]
        self._name_server: Listener

    async def start(self) -> None:
        self._name_server = Listener(serve=self._serve_route, max_frame_bytes=1 << 24)
        await self.network.listen("127.0.0.1", 9876, self._name_server.accept)
        for index, name in enumerate(self._names):
            await self.start_broker(name, 10911 + index)

    async def start_broker(self, name: str, port: int) -> None:
        listener = Listener(
            serve=lambda connection, command: self._serve(name, connection, command),
            max_frame_bytes=1 << 24,
            on_lost=lambda connection, _: self._leave(name, connection, None),
        )
        listening = await self.network.listen("127.0.0.1", port, listener.accept)
        self.brokers[name] = Broker(name, listening.address, listener)

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.listener.close()
        await self._name_server.close()

    # What tests do.

    def create(self, topic: str, queues: int = 1) -> list[MessageQueue]:
        """A topic with this number of queues on every broker."""
        self.topics[topic] = dict.fromkeys(self.brokers, queues)
        return sorted(MessageQueue(topic, name, number) for name in self.brokers for number in range(queues))

    def send(self, queue: MessageQueue, body: bytes, **properties: str) -> int:
        """Store a message; its offset."""
        raw = names.encode(properties)
        return self.store(queue, Record(topic=queue.topic, body=body, raw_properties=raw, queue_id=queue.queue_id))

    def send_many(self, queue: MessageQueue, count: int, **properties: str) -> None:
        """Bodies 0, 1, 2 ..., continuing the queue."""
        for _ in range(count):
            self.send(queue, str(len(self.log[queue])).encode(), **properties)

    def store(self, queue: MessageQueue, record: Record) -> int:
        offset = len(self.log[queue])
        stored = record._replace(
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            physical_offset=len(self.records),
            stored_ms=int(self.clock.now() * 1000),
        )
        self.log[queue].append(stored)
        self.records.append((queue, stored))
        for wake in self.held.pop(queue, []):
            self.loop.call_soon(wake)
        return offset

    def refuse(
        self, code: RequestCode, response: int = 1, *, times: int | None = None, remark: str = "as the test wants it"
    ) -> None:
        """Answer requests of this code with an error; `times`: that often, None for ever."""
        left = [times]

        def answer(_: Asked) -> Command | bool:
            if left[0] is not None:
                if not left[0]:
                    return True
                left[0] -= 1
            return Command(response, remark=remark)

        self.misbehave[code] = answer

    def ignore(self, code: RequestCode) -> None:
        """Never answer requests of this code."""
        self.misbehave[code] = lambda _: None

    def behave(self, *codes: RequestCode) -> None:
        for code in codes or tuple(self.misbehave):
            self.misbehave.pop(code, None)

    def requests(self, code: RequestCode, **fields: str) -> list[Asked]:
        """Everything asked with this code and these fields."""
        return [
            each
            for each in self.asked
            if each.code == code and all(each.fields.get(name) == value for name, value in fields.items())
        ]

    def committed(self, queue: MessageQueue, group: str = "group") -> int | None:
        return self.offsets.get((group, queue))

    def bodies(self, topic: str) -> list[bytes]:
        return [record.body for queue, record in self.records if queue.topic == topic]

    def member(self, *topics: ConsumedTopic, **options: Any) -> Member:
        return Member(self, topics, **options)

    # What brokers do.

    def _serve_route(self, connection: Connection, command: Command) -> Command | None:
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            brokers = [BrokerData("c", name, {0: broker.address}) for name, broker in self.brokers.items()]
            return Command.response(command, 0, body=encode_cluster_info(brokers))
        topic = RouteRequest.from_fields(command.fields).topic
        self.asked.append(Asked(self.loop.time(), command.code, command.fields or {}, connection.peer))
        if topic not in self.topics:
            return Command.response(command, ResponseCode.TOPIC_NOT_EXIST, remark="no route")
        by_broker = self.topics[topic]
        route = TopicRoute(
            tuple(QueueData(name, count, count, 6) for name, count in by_broker.items()),
            tuple(BrokerData("c", name, {0: self.brokers[name].address}) for name in by_broker),
        )
        return Command.response(command, 0, body=encode_route(route))

    def _serve(self, name: str, connection: Connection, command: Command) -> Command | None:
        asked = Asked(self.loop.time(), command.code, command.fields or {}, connection.peer)
        self.asked.append(asked)
        if (misbehaviour := self.misbehave.get(command.code)) is not None:
            answer = misbehaviour(asked)
            if answer is not True:
                if not isinstance(answer, Command):
                    return None
                return Command.response(command, answer.code, remark=answer.remark, fields=answer.fields)
        answered = self.answer(name, connection, command)
        if answered is not None:
            answered.version = self.version
        return answered

    def answer(self, name: str, connection: Connection, command: Command) -> Command | None:
        """What the broker does with a request that it takes; None: it answers later, or never."""
        handler = getattr(self, f"_{RequestCode(command.code).name.lower()}")
        answered: Command | None = handler(name, connection, command)
        return answered

    def _heart_beat(self, name: str, connection: Connection, command: Command) -> Command:
        beat = Heartbeat.decode(command.body)
        members = self.brokers[name].members
        is_new = connection not in members
        members[connection] = beat
        for data in beat.consumers:
            self.topics.setdefault(retry_topic(data.group), {}).setdefault(name, 1)
            if is_new:
                self._notify(name, data.group)
        return Command.response(command, 0)

    def _unregister_client(self, name: str, connection: Connection, command: Command) -> Command:
        self._leave(name, connection, UnregisterRequest.from_fields(command.fields).consumer_group)
        return Command.response(command, 0)

    def _leave(self, name: str, connection: Connection, group: str | None) -> None:
        beat = self.brokers[name].members.pop(connection, None)
        for data in beat.consumers if beat else ():
            self._notify(name, data.group)

    def _notify(self, name: str, group: str) -> None:
        for connection, beat in self.brokers[name].members.items():
            if any(data.group == group for data in beat.consumers) and not connection.is_closed:
                fields = OfGroup(group).to_fields()
                connection.send_one_way(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields))

    def _get_consumer_list_by_group(self, name: str, _: Connection, command: Command) -> Command:
        group = (command.fields or {})["consumerGroup"]
        beats = self.brokers[name].members.values()
        ids = [beat.client_id for beat in beats if any(data.group == group for data in beat.consumers)]
        if not ids:
            return Command.response(command, 1, remark="no consumer for this group")
        return Command.response(command, 0, body=encode_members(ids))

    def _query_consumer_offset(self, name: str, _: Connection, command: Command) -> Command:
        request = QueryOffsetRequest.from_fields(command.fields)
        queue = MessageQueue(request.topic, name, request.queue_id)
        offset = self.offsets.get((request.group, queue))
        honours = self.version >= HONOURS_SET_ZERO and request.set_zero_if_not_found is False
        if offset is None and self.young and self.log[queue] and not honours:
            offset = 0
        if offset is None:
            return Command.response(command, ResponseCode.QUERY_NOT_FOUND, remark="Not found")
        return Command.response(command, 0, fields=OffsetResponse(offset).to_fields())

    def _update_consumer_offset(self, name: str, _: Connection, command: Command) -> Command:
        request = CommitRequest.from_fields(command.fields)
        self._commit(request.group, MessageQueue(request.topic, name, request.queue_id), request.offset)
        return Command.response(command, 0)

    def _commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        self.offsets[group, queue] = offset
        self.commits.append((self.loop.time(), queue, offset))

    def _get_max_offset(self, name: str, _: Connection, command: Command) -> Command:
        request = QueueRequest.from_fields(command.fields)
        end = len(self.log[MessageQueue(request.topic, name, request.queue_id)])
        return Command.response(command, 0, fields=OffsetResponse(end).to_fields())

    def _get_min_offset(self, name: str, _: Connection, command: Command) -> Command:
        request = QueueRequest.from_fields(command.fields)
        first = self.first[MessageQueue(request.topic, name, request.queue_id)]
        return Command.response(command, 0, fields=OffsetResponse(first).to_fields())

    def _search_offset_by_timestamp(self, name: str, _: Connection, command: Command) -> Command:
        fields = command.fields or {}
        queue = MessageQueue(fields["topic"], name, int(fields["queueId"]))
        times = [record.stored_ms for record in self.log[queue]]
        offset = sum(time < int(fields["timestamp"]) for time in times)
        return Command.response(command, 0, fields=OffsetResponse(offset).to_fields())

    def _pull_message(self, name: str, connection: Connection, command: Command) -> Command | None:
        request = PullRequest.from_fields(command.fields)
        queue = MessageQueue(request.topic, name, request.queue_id)
        beat = self.brokers[name].members.get(connection)
        subscriptions = [
            each
            for data in (beat.consumers if beat else ())
            if data.group == request.group
            for each in data.subscriptions
            if each.topic == request.topic
        ]
        if not subscriptions:
            return Command.response(command, ResponseCode.SUBSCRIPTION_NOT_EXIST, remark="who are you")
        if request.sys_flag & 1:
            self._commit(request.group, queue, request.commit_offset)
        wanted = subscriptions[0]
        if request.sys_flag & FLAG_SUBSCRIPTION and request.expression == "*":
            wanted = SubscriptionData(topic=request.topic)
        answer = self.answered(queue, request, wanted, command)
        if answer.code == ResponseCode.PULL_NOT_FOUND and request.sys_flag & 2:
            self._hold(queue, request, wanted, command, connection)
            return None
        return answer

    def _hold(
        self,
        queue: MessageQueue,
        request: PullRequest,
        data: SubscriptionData,
        command: Command,
        connection: Connection,
    ) -> None:
        answered = [False]

        def wake() -> None:
            if not answered[0]:
                answered[0] = True
                connection.reply(self.answered(queue, request, data, command))

        self.held[queue].append(wake)
        self.loop.call_later(request.suspend_ms / 1000, wake)

    def answered(self, queue: MessageQueue, request: PullRequest, data: SubscriptionData, command: Command) -> Command:
        log, first, offset = self.log[queue], self.first[queue], request.offset
        code, after, body = 0, offset, b""
        if offset < first or offset > len(log) or (not log and offset):
            code, after = ResponseCode.PULL_OFFSET_MOVED, first if offset < first else len(log)
        elif offset == len(log):
            code = ResponseCode.PULL_NOT_FOUND
        else:
            wanted = {tags_code(tag) for tag in data.tags}
            found: list[bytes] = []
            most, left = min(request.max_messages, 32), request.max_bytes or 1 << 30
            while after < len(log) and len(found) < most and left > 0:
                record = log[after]
                left -= len(record.body)
                after += 1
                tag = names.tag_of(record.raw_properties)
                if not wanted or tags_code(None if tag is None else tag.decode()) in wanted:
                    found.append(encode_record(record))
            body = b"".join(found)
            code = 0 if found else ResponseCode.PULL_RETRY_IMMEDIATELY
        fields = PullResponse(0, after, first, len(log)).to_fields()
        return Command.response(command, int(code), fields=fields, body=body)

    def _lock_batch_mq(self, name: str, _: Connection, command: Command) -> Command:
        body, now = LockBody.decode(command.body), self.loop.time()
        granted = []
        for queue in body.queues:
            lock = self.locks.get((body.group, queue))
            if lock is None or lock.owner == body.client_id or lock.until <= now:
                self.locks[body.group, queue] = Lock(body.client_id, now + LOCK_LIFE)
                granted.append(queue)
        return Command.response(command, 0, body=encode_locked(granted))

    def _unlock_batch_mq(self, name: str, _: Connection, command: Command) -> Command:
        body = LockBody.decode(command.body)
        for queue in body.queues:
            lock = self.locks.get((body.group, queue))
            if lock is not None and lock.owner == body.client_id:
                del self.locks[body.group, queue]
        return Command.response(command, 0)

    def _consumer_send_msg_back(self, name: str, _: Connection, command: Command) -> Command:
        request = SendBackRequest.from_fields(command.fields)
        queue, record = self.records[request.physical_offset]
        most = 16 if request.max_reconsume_times is None else request.max_reconsume_times
        properties = names.decode(record.raw_properties)
        properties.setdefault(names.RETRY_TOPIC, queue.topic)
        copy = record._replace(reconsume_times=record.reconsume_times + 1, raw_properties=names.encode(properties))
        if record.reconsume_times >= most or request.delay_level < 0:
            self._put(dlq_topic(request.group), name, copy, 0)
        else:
            self._put(retry_topic(request.group), name, copy, request.delay_level or 3 + record.reconsume_times)
        return Command.response(command, 0)

    def _send_message_v2(self, name: str, _: Connection, command: Command) -> Command:
        request = SendRequest.from_command(command)
        topic, level = request.topic, int(names.decode(request.properties.encode()).get(names.DELAY, "0"))
        if is_retry_topic(topic):
            group = topic.removeprefix(retry_topic(""))
            most = 16 if request.max_reconsume_times is None else request.max_reconsume_times
            locked = any(lock_group == group for lock_group, _ in self.locks)
            if request.reconsume_times > most or locked:
                topic, level = dlq_topic(group), 0
        record = Record(
            topic=topic,
            body=command.body,
            raw_properties=request.properties.encode(),
            reconsume_times=request.reconsume_times,
            sys_flag=request.sys_flag,
            flag=request.flag,
        )
        self._put(topic, name, record, level)
        return Command.response(
            command, 0, fields=SendResponse("7F00000100002A9F0000000000000000", request.queue_id, 0).to_fields()
        )

    def _put(self, topic: str, name: str, record: Record, level: int) -> None:
        self.topics.setdefault(topic, {}).setdefault(name, 1)
        queue = MessageQueue(topic, name, 0)
        if level > 0:
            self.loop.call_later(DELAY_SECONDS[level - 1], self.store, queue, record)
        else:
            self.store(queue, record)


def subscription(
    name: str = "handler",
    *,
    topic: str = "topic",
    tags: str = "*",
    is_async: bool = True,
    concurrency: int = 64,
    **others: Any,
) -> Subscription:
    """A complete subscription with the usual values."""
    values: dict[str, Any] = {
        "topic": topic,
        "group": "group",
        "tags": parse_tags(tags),
        "expression": tags,
        "orderly": False,
        "batch": None,
        "batch_wait": 0.1,
        "concurrency": concurrency,
        "retries": 16,
        "start": "first",
        "timeout": None,
        "cluster": "",
        "is_async": is_async,
        "handler_name": name,
        "place": "app.py:1",
    }
    return Subscription(**{**values, **others})


def consumed(call: Callable[[Any], Any], *, start: Start = "first", retries: int = 16, **options: Any) -> ConsumedTopic:
    """A topic with one handler."""
    declared = subscription(start=start, retries=retries, **options)
    return consumed_by(Handler(declared, call))


def consumed_by(*handlers: Handler) -> ConsumedTopic:
    """A topic with these handlers."""
    one = handlers[0].subscription
    tags = frozenset[str]().union(*(handler.subscription.tags for handler in handlers))
    if any(not handler.subscription.tags for handler in handlers):
        tags = frozenset()
    data = SubscriptionData(one.topic, " || ".join(sorted(tags)) or "*", tags)
    return ConsumedTopic(one.topic, one.start, one.retries, handlers, data)


class Member:
    """One process of a group."""

    _pids = iter(range(1000, 100_000))

    def __init__(
        self,
        cluster: FakeCluster,
        topics: tuple[ConsumedTopic, ...],
        *,
        group: str = "group",
        config: ConsumerConfig | None = None,
        expected_members: int = 1,
        client_config: ClientConfig | None = None,
        cache_bytes: int = 1 << 27,
        seed: int = 1,
        journal: Journal | None = None,
        allocation: Allocation = AVERAGE,
        offset_store: OffsetStore | None = None,
        client_id: str | None = None,
        client: instance.ClientInstance | None = None,
        worker: int | None = None,
    ) -> None:
        """`client_id`: in place of one that nobody else has; "0" sorts before all of them. `client`: of another one."""
        self.cluster, self.events = cluster, Events()
        random = Random(seed)
        with pytest.MonkeyPatch.context() as patch:
            if client_id is not None:
                patch.setattr(instance, "make_client_id", lambda *_, **__: client_id)
            self.client = client or instance.ClientInstance(
                config=client_config or ClientConfig(name_server=NAME_SERVER),
                dial=cluster.network.dial,
                clock=cluster.clock,
                random=random,
                observe=self.events,
                client_ip="10.0.0.1",
                pid=next(self._pids),
            )
        self.producer = Producer(
            client=self.client,
            config=ProducerConfig(),
            group="producers",
            clock=cluster.clock,
            random=random,
        )
        self.flow_control = FlowControl(cache_bytes)
        member = engine.Member(
            group,
            topics,
            client=self.client,
            config=config or ConsumerConfig(subscription_check="off"),
            clock=cluster.clock,
            random=random,
            allocation=allocation,
            app_version="1.2.3",
            worker=worker,
        )
        self.owned = member.owned
        self.consumer = PushConsumer(
            member,
            send_raw=self.producer.send_raw,
            flow_control=self.flow_control,
            offset_store=offset_store,
            journal=journal,
            expected_members=expected_members,
        )

    async def start(self) -> Member:
        await self.client.start()
        await self.consumer.join()
        self.consumer.begin()
        return self

    async def stop(self, *, drain_timeout: float = 30.0, cut: asyncio.Event | None = None) -> bool:
        clean = await self.consumer.stop(drain_timeout=drain_timeout, cut=cut or asyncio.Event())
        await self.client.stop()
        return clean

    async def kill(self) -> None:
        """Go without a word, as far as brokers see: connections break, nothing is committed."""
        self.cluster.refuse(RequestCode.UPDATE_CONSUMER_OFFSET)
        await self.client.stop()
