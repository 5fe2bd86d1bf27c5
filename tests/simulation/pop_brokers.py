"""The brokers of a simulated cluster that hand out messages one by one.

They are the ones of the unit tests, each in a process of its own. What they have stored and hidden outlives their end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import is_retry_topic
from rocketapp.model.route import BrokerData
from rocketapp.namesrv.name_server import Shown
from rocketapp.transport.connection import Connection, Listener
from rocketapp.transport.stream import split_address
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import Record
from rocketapp.wire.requests.admin import TopicConfig
from rocketapp.wire.requests.pop import pop_retry_topic
from rocketapp.wire.requests.send import SendRequest, SendResponse
from tests.simulation import history as facts
from tests.simulation.brokers import QUEUES, NamedBroker
from tests.simulation.processes import Process
from tests.simulation.world import GROUP, World, number_of
from tests.unit.consumer.fake_cluster import Broker as Listening
from tests.unit.consumer.pop.pop_cluster import HandedOut, PopCluster

_POPPED = facts.POPPED, ""


class PopBroker(NamedBroker, PopCluster):
    """One broker with the popped topics of the world."""

    def __init__(self, world: World, *, invisible: float) -> None:
        """`invisible`: seconds for which members want messages in flight to be hidden."""
        NamedBroker.__init__(self, world)
        PopCluster.__init__(self, network=world.network)
        self._invisible, self._why = invisible, _POPPED
        self._clients: dict[Connection, str] = {}
        """Whose connection it is."""
        self.process = Process(self.name)
        self.topics = {topic.name: {self.name: QUEUES} for topic in world.topics}

    # What is done to it.

    async def start(self) -> None:
        await self.process.start(self._listen())
        if self.listed_until > float("-inf"):
            self._world.fault(facts.BROKER_START, self.name)
        self.is_running = True
        self._tell_routes()

    async def _listen(self) -> None:
        listener = Listener(
            serve=lambda connection, command: self._serve(self.name, connection, command),
            max_frame_bytes=1 << 24,
            on_lost=lambda connection, _: self._leave(self.name, connection, None),
        )

        def accept(stream: Any) -> Connection:
            connection = listener.accept(stream)
            self._clients[connection] = next(name for name in sorted(stream.names) if ":" not in name)
            return connection

        await self.network.listen(*split_address(self.address), accept)
        self.brokers[self.name] = Listening(self.name, self.address, listener)

    async def stop(self, *, listed: float = 0.0) -> None:
        self._world.fault(facts.BROKER_STOP, self.name)
        self._ends(listed)
        self.network.unlisten(self.address)
        await self.process.start(self.brokers[self.name].listener.close())

    def crash(self, *, listed: float = 0.0) -> None:
        self._world.fault(facts.BROKER_CRASH, self.name)
        self._ends(listed)
        self.network.unlisten(self.address)
        self.network.cut(self.address)

    def bury(self) -> None:
        self.process.kill()
        self.process.bury()

    # What is known of it.

    def shown(self) -> Shown:
        counts = {topic: queues[self.name] for topic, queues in self.topics.items()}
        topics = {topic: TopicConfig(topic, count, count) for topic, count in counts.items()}
        return BrokerData("c", self.name, {0: self.address}), topics

    def lag(self) -> dict[str, int]:
        """What was not handed out, and what is hidden."""
        names = {topic.name for topic in self._world.topics}
        names |= {name for name in self.topics if is_retry_topic(name) and name != f"%RETRY%{GROUP}"}
        lag = {
            str(queue): behind
            for queue, records in self.log.items()
            if queue.topic in names and (behind := len(records) - self.offsets.get((GROUP, queue), 0))
        }
        if hidden := sum(map(len, self.hidden.values())):
            lag[f"hidden@{self.name}"] = hidden
        return lag

    # What it writes down.

    def answer(self, name: str, connection: Connection, command: Command) -> Command | None:
        if command.code == RequestCode.SEND_MESSAGE_V2:
            request = SendRequest.from_command(command)
            if any(topic.name == request.topic for topic in self._world.topics):
                return self._sent(name, command, request)
        if command.code != RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
            return super().answer(name, connection, command)
        self._why = self._reason(name, command)
        try:
            return super().answer(name, connection, command)
        finally:
            self._why = _POPPED

    def _sent(self, name: str, command: Command, request: SendRequest) -> Command:
        queue = MessageQueue(request.topic, name, request.queue_id)
        offset = self.store(
            queue, Record(topic=queue.topic, body=command.body, raw_properties=request.properties.encode())
        )
        answer = SendResponse("7F00000100002A9F0000000000000000", request.queue_id, offset)
        return Command.response(command, 0, fields=answer.to_fields())

    def store(self, queue: MessageQueue, record: Record) -> int:
        offset = super().store(queue, record)
        if not is_retry_topic(queue.topic):
            self._tell(facts.Stored(self.loop.time(), _told(queue), offset, number_of(record.body)))
        return offset

    def hide_for(
        self, connection: Connection, out: HandedOut, offsets: Iterable[int], invisible_ms: int, *, counts: bool = True
    ) -> None:
        offsets = list(offsets)
        for offset in offsets:
            record = self._record(out, offset)
            about = self.loop.time(), self._clients[connection], self.name, _handle(out, offset)
            place = _told(MessageQueue(out.topic, out.broker_name, out.queue_id)), offset
            what = number_of(record.body), record.reconsume_times + 1, invisible_ms / 1000
            self._tell(facts.Hidden(*about, *place, *what, *self._why))
        super().hide_for(connection, out, offsets, invisible_ms, counts=counts)

    def _reason(self, name: str, command: Command) -> tuple[str, str]:
        """Why a member wants another invisibility timeout, and the handle that it had."""
        out, request = self._named(name, command)
        assert request.invisible_ms is not None
        is_renewed = request.invisible_ms == round(1000 * self._invisible)
        why = facts.GIVEN_BACK if request.suspend else facts.RENEWED if is_renewed else facts.RETRY
        return why, _handle(out, request.handle.offset)

    def revive(self, out: HandedOut, counts: bool) -> None:
        for offset in sorted(self.hidden.get(out, ())):
            self._tell(facts.Shown(self.loop.time(), _handle(out, offset)))
        super().revive(out, counts)

    def acked(self, connection: Connection, out: HandedOut, offsets: Iterable[int]) -> None:
        offsets = list(offsets)
        for offset in offsets:
            if offset in self.hidden.get(out, ()):
                self._tell(facts.Acked(self.loop.time(), self._clients[connection], _handle(out, offset)))
        super().acked(connection, out, offsets)

    def _record(self, out: HandedOut, offset: int) -> Record:
        topic = pop_retry_topic(out.group, out.topic, out.kind)
        return self.log[MessageQueue(topic, out.broker_name, out.queue_id)][offset]

    def _tell(self, event: facts.Event) -> None:
        self._world.history.append(event)


def _handle(out: HandedOut, offset: int) -> str:
    return f"{out.topic}@{out.broker_name} {out.kind}:{out.queue_id} #{offset} {out.popped_ms}"


def _told(queue: MessageQueue) -> str:
    return f"{queue.topic}@{queue.broker_name}:{queue.queue_id}"
