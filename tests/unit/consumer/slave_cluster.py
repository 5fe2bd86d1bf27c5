"""A broker of a fake cluster with a slave: the slave holds the same messages, and the offsets of its last look."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import BrokerData, QueueData, TopicRoute
from rocketapp.transport.connection import Connection, Listener
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.clients import GroupChanged, Heartbeat, encode_members
from rocketapp.wire.requests.offsets import OffsetResponse, QueryOffsetRequest
from rocketapp.wire.requests.pull import PullRequest, PullResponse
from rocketapp.wire.requests.routes import RouteRequest, encode_route
from tests.unit.consumer.fake_cluster import Asked, FakeCluster

NAME, SLAVE, PORT = "broker-a", 1, 10911


@dataclass
class Slave:
    """What the slave knows."""

    address: str = ""
    members: dict[Connection, Heartbeat] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    offsets: dict[tuple[str, MessageQueue], int] = field(default_factory=dict)
    first: int = 0
    """Its first offset: a slave that is younger than its master holds less."""
    behind: int = 0
    """How many messages of each queue it has not got yet."""
    is_read: bool = True
    """`slaveReadEnable`."""

    def count(self, code: RequestCode) -> int:
        return sum(each.code == code for each in self.asked)


class SlaveCluster(FakeCluster):
    """One broker: a master, which can be killed, and its slave."""

    def __init__(self) -> None:
        super().__init__()
        self.slave, self.is_named = Slave(), True
        self._slave_listener: Listener

    async def start(self) -> None:
        await super().start()
        self._slave_listener = Listener(
            serve=self._serve_slave,
            max_frame_bytes=1 << 24,
            on_lost=lambda connection, _: self._left_slave(connection),
        )
        listening = await self.network.listen("127.0.0.1", PORT + 100, self._slave_listener.accept)
        self.slave.address = listening.address

    async def stop(self) -> None:
        await self._slave_listener.close()
        await super().stop()

    async def kill_master(self, *, is_named: bool = False) -> None:
        """Its connections are reset and nothing listens there; the name server forgets it unless `is_named`."""
        broker = self.brokers[NAME]
        broker.members.clear()
        self.locks.clear()
        self.is_named = is_named
        self.network.unlisten(broker.address)
        self.network.cut(broker.address)

    async def start_broker(self, name: str, port: int) -> None:
        await super().start_broker(name, port)
        self.is_named = True

    async def master_returns(self) -> None:
        await self.start_broker(NAME, PORT)

    def _serve_route(self, connection: Connection, command: Command) -> Command | None:
        topic = RouteRequest.from_fields(command.fields).topic
        if topic not in self.topics:
            return Command.response(command, ResponseCode.TOPIC_NOT_EXIST, remark="no route")
        addresses = {SLAVE: self.slave.address}
        if self.is_named:
            addresses[0] = self.brokers[NAME].address
        queues = tuple(QueueData(name, count, count, 6) for name, count in self.topics[topic].items())
        route = TopicRoute(queues, (BrokerData("c", NAME, addresses),))
        return Command.response(command, 0, body=encode_route(route))

    # What the slave does.

    def _left_slave(self, connection: Connection) -> None:
        beat = self.slave.members.pop(connection, None)
        for data in beat.consumers if beat else ():
            self._tell_members(data.group)

    def _tell_members(self, group: str) -> None:
        fields = GroupChanged(group).to_fields()
        for connection in self.slave.members:
            if not connection.is_closed:
                connection.send_one_way(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields))

    def _serve_slave(self, connection: Connection, command: Command) -> Command | None:
        self.slave.asked.append(Asked(self.loop.time(), command.code, command.fields or {}, connection.peer))
        return self.answer_of_slave(connection, command)

    def answer_of_slave(self, connection: Connection, command: Command) -> Command | None:
        """What the slave does with a request; None: it answers later."""
        serve: dict[int, Any] = {
            RequestCode.HEART_BEAT: self._slave_heartbeat,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._slave_members,
            RequestCode.QUERY_CONSUMER_OFFSET: self._slave_offset,
            RequestCode.PULL_MESSAGE: self._slave_pull,
            RequestCode.UNREGISTER_CLIENT: self._slave_unregister,
        }
        answered: Command = serve[command.code](connection, command)
        answered.version = self.version
        return answered

    def _slave_heartbeat(self, connection: Connection, command: Command) -> Command:
        is_new = connection not in self.slave.members
        beat = self.slave.members[connection] = Heartbeat.decode(command.body)
        for data in beat.consumers if is_new else ():
            self._tell_members(data.group)
        return Command.response(command, 0)

    def _slave_unregister(self, connection: Connection, command: Command) -> Command:
        self._left_slave(connection)
        return Command.response(command, 0)

    def _slave_members(self, _: Connection, command: Command) -> Command:
        ids = [beat.client_id for beat in self.slave.members.values() if beat.consumers]
        if not ids:
            return Command.response(command, 1, remark="no consumer for this group")
        return Command.response(command, 0, body=encode_members(ids))

    def _slave_offset(self, _: Connection, command: Command) -> Command:
        request = QueryOffsetRequest.from_fields(command.fields)
        offset = self.slave.offsets.get((request.group, MessageQueue(request.topic, NAME, request.queue_id)))
        if offset is None:
            return Command.response(command, ResponseCode.QUERY_NOT_FOUND, remark="Not found")
        return Command.response(command, 0, fields=OffsetResponse(offset).to_fields())

    def _slave_pull(self, connection: Connection, command: Command) -> Command:
        request = PullRequest.from_fields(command.fields)
        queue = MessageQueue(request.topic, NAME, request.queue_id)
        slave, beat = self.slave, self.slave.members.get(connection)
        if not slave.is_read:
            return Command.response(command, ResponseCode.SYSTEM_BUSY, remark="[REJECTREQUEST]system busy")
        data = [each for one in (beat.consumers if beat else ()) for each in one.subscriptions]
        wanted = [each for each in data if each.topic == request.topic]
        if not wanted:
            return Command.response(command, ResponseCode.SUBSCRIPTION_NOT_EXIST, remark="who are you")
        end = max(0, len(self.log[queue]) - slave.behind)
        if not slave.first <= request.offset < end:
            # It sends readers back to its master, and does not say which offset would be right.
            fields = PullResponse(0, request.offset, slave.first, end).to_fields()
            return Command.response(command, ResponseCode.PULL_RETRY_IMMEDIATELY, fields=fields)
        few = request._replace(max_messages=min(32, end - request.offset))
        return self._read(queue, few, wanted[0], command)
