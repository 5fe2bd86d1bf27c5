"""The pull loop, against brokers that are only a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.brokers import Brokers
from rocketapp.consumer.member import Member
from rocketapp.consumer.offsets.commits import Session
from rocketapp.consumer.pull.flow import FlowControl, QueueFlow
from rocketapp.consumer.pull.puller import Puller
from rocketapp.errors import ConnectError, TransportError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import MASTER_ID
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.pull import PullResponse
from tests.cases import cases
from tests.unit.consumer.members import member_alone
from tests.unit.scripted import eventually, in_virtual_time

QUEUE = MessageQueue("topic", "broker-a", 0)
NO_TASKS: Any = None
SLAVE = 1


class Script:
    """Brokers, and the one connection to them, which answers as a subclass says."""

    async def to_pull(self, queue: MessageQueue, broker_id: int) -> Script:
        return self

    def start_request(self, command: Command, *, timeout: float) -> asyncio.Future[Command]:
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        if (answered := self.answer(int((command.fields or {})["queueOffset"]))) is not None:
            answer.set_result(answered)
        return answer

    def answer(self, offset: int) -> Command | None:
        """To a pull from there; None: it is held."""
        raise AssertionError(offset)


class SlaveIsDown(Script):
    """Brokers whose master sends readers to a slave that cannot be reached."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def to_pull(self, queue: MessageQueue, broker_id: int) -> Script:
        self.asked.append(broker_id)
        if broker_id == SLAVE:
            raise ConnectError("10.0.0.2:10911", "Connection refused")
        return self

    def answer(self, offset: int) -> Command:
        return Command(ResponseCode.PULL_RETRY_IMMEDIATELY, PullResponse(SLAVE, offset, 0, offset).to_fields())


class TwoMessages(Script):
    """Brokers that hold two messages."""

    def answer(self, offset: int) -> Command | None:
        if offset >= 2:
            return None
        records = b"".join(encode_record(Record("topic", b"body", queue_offset=at)) for at in range(offset, 2))
        return Command(ResponseCode.SUCCESS, PullResponse(0, 2, 0, 2).to_fields(), records)


class Holding(Script):
    """Brokers that have no messages, and hold every pull."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def answer(self, offset: int) -> None:
        self.asked.append(offset)


class NoOffsets:
    """Nothing travels with these pulls."""

    def travelling(self, session: Session) -> None:
        return None

    def arrived(self, session: Session, offset: int) -> None:
        return None

    async def look_before_pull(self, session: Session) -> None: ...


class Refusing(Script):
    """Brokers that answer every pull with this code."""

    def __init__(self, code: int) -> None:
        self.code, self.times = code, list[float]()

    def answer(self, offset: int) -> Command:
        self.times.append(asyncio.get_running_loop().time())
        return Command(self.code, remark="as the test wants it")


class Slaves:
    """Slaves that are asked when their master says so, and never in its place."""

    instead: tuple[str, ...] = ()

    def reader(self, broker_name: str, suggested: int) -> int:
        return suggested

    def stand_in(self, broker_name: str, error: TransportError) -> bool:
        return False


class Asked(Brokers):
    """What a pull loop asks of others."""

    def __init__(self, source: Any) -> None:
        super().__init__("group", cast(Any, SimpleNamespace(routes=self)), ConsumerConfig(), Random(1), NO_TASKS)
        self.to_pull, self.told = source.to_pull, list[str]()  # type: ignore[method-assign]
        self.slaves = cast(Any, Slaves())

    def recognised_at(self, queue: MessageQueue) -> None:
        """Each pull asks for its connection."""

    def has_read(self, queue: MessageQueue, result: object, last: object, *, is_master: bool) -> None:
        """Remembers nothing."""

    def heartbeat_soon(self) -> None:
        self.told.append("heartbeat")

    def refresh_soon(self, topic: str) -> None:
        self.told.append(f"route of {topic}")


def puller_of(
    queue: ProcessQueue[Message],
    source: Any,
    deliver: Callable[[Sequence[Message]], None] = lambda _: None,
    member: Member | None = None,
    committer: Any = None,
) -> Puller:
    member = member_of(Asked(source)) if member is None else member
    limits = QueueLimits(max_messages=100, max_bytes=1 << 20, max_span=100)
    flow = QueueFlow(FlowControl(1 << 20), member, queue, limits)
    session = Session(committer or NoOffsets(), queue, is_contested=False, is_fenced=True)
    return Puller(member, session, decode=decode_records, deliver=deliver, flow=flow)


def member_of(asked: Asked) -> Member:
    return member_alone(brokers=asked, routes=asked)


@in_virtual_time
async def test_a_slave_that_cannot_be_reached_is_left_for_the_master() -> None:
    brokers, queue = SlaveIsDown(), ProcessQueue[Message](QUEUE, 0)
    puller = puller_of(queue, brokers)
    pulling = asyncio.ensure_future(puller.run())
    await eventually(lambda: len(brokers.asked) >= 3)
    assert brokers.asked[:3] == [MASTER_ID, SLAVE, MASTER_ID]
    pulling.cancel()
    await asyncio.wait([pulling])


@in_virtual_time
async def test_messages_that_could_not_be_handed_over_are_pulled_again() -> None:
    given: list[int] = []
    problems = [RuntimeError("can't start new thread")]

    def deliver(messages: Sequence[Message]) -> None:
        if problems:
            raise problems.pop()
        given.extend(message.offset for message in messages)

    queue = ProcessQueue[Message](QUEUE, 0)
    puller = puller_of(queue, TwoMessages(), deliver)
    pulling = asyncio.ensure_future(puller.run())
    await eventually(lambda: given == [0, 1])
    assert queue.commit_offset == 0
    pulling.cancel()
    await asyncio.wait([pulling])


OTHERWISE = {
    ResponseCode.SUBSCRIPTION_NOT_EXIST: "heartbeat",
    ResponseCode.SUBSCRIPTION_NOT_LATEST: "heartbeat",
    ResponseCode.FILTER_DATA_NOT_EXIST: "heartbeat",
    ResponseCode.FILTER_DATA_NOT_LATEST: "heartbeat",
    ResponseCode.TOPIC_NOT_EXIST: "route of topic",
    ResponseCode.INVALID_PARAMETER: "route of topic",
    ResponseCode.NO_PERMISSION: "",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "heartbeat",
    ResponseCode.SYSTEM_ERROR: "",
}
"""What a pull loop asks for besides when a broker refuses its pulls."""


@cases("code", [*OTHERWISE, ResponseCode.FLOW_CONTROL])
def test_a_refused_pull_is_said_and_tried_again_and_what_may_mend_it_is_asked_for(code: ResponseCode) -> None:
    @in_virtual_time
    async def run() -> None:
        brokers, queue = Refusing(code), ProcessQueue[Message](QUEUE, 7)
        asked = Asked(brokers)
        member = member_of(asked)
        puller = puller_of(queue, brokers, member=member)
        pulling = asyncio.ensure_future(puller.run())
        await eventually(lambda: len(brokers.times) == 3)
        assert brokers.times[2] == pytest.approx(0.04 if code == ResponseCode.FLOW_CONTROL else 2.0, abs=0.01)
        assert set(asked.told) == set(filter(None, [OTHERWISE.get(code, "")]))
        reason = member.blocked.reasons()[QUEUE]
        assert reason.startswith("pull failed: ")
        assert "as the test wants it" in reason
        assert queue.end_offset == 7
        pulling.cancel()
        await asyncio.wait([pulling])

    run()


@in_virtual_time
async def test_a_pull_that_asks_for_too_little_by_now_is_discarded_and_sent_anew() -> None:
    brokers = Holding()
    puller = puller_of(ProcessQueue[Message](QUEUE, 5), brokers)
    pulling = asyncio.ensure_future(puller.run())
    await eventually(lambda: brokers.asked == [5])
    puller.start_over()
    await eventually(lambda: brokers.asked == [5, 5])
    pulling.cancel()
    await asyncio.wait([pulling])
    assert pulling.cancelled()
    assert brokers.asked == [5, 5]


class FirstDialWaits:
    """A client that reaches its broker only when it may, and the connection that it gets."""

    def __init__(self) -> None:
        self.may, self.sent = asyncio.Event(), list[Mapping[str, str]]()

    def broker_address(self, broker_name: str, broker_id: int = MASTER_ID) -> str:
        return "10.0.0.1:10911"

    def living_connection(self, address: str) -> FirstDialWaits | None:
        return self if self.may.is_set() else None

    async def connection(self, address: str) -> FirstDialWaits:
        await self.may.wait()
        return self

    def start_request(self, command: Command, *, timeout: float) -> asyncio.Future[Command]:
        self.sent.append(command.fields or {})
        return asyncio.get_running_loop().create_future()


@in_virtual_time
async def test_a_pull_that_waited_for_its_connection_carries_what_is_done_when_it_is_written() -> None:
    """What was done when it was queued may be less than what was committed meanwhile."""
    client, queue, done = FirstDialWaits(), ProcessQueue[Message](QUEUE, 20), [8]
    brokers = Brokers("group", cast(Any, client), ConsumerConfig(), Random(1), NO_TASKS)
    committer = NoOffsets()
    committer.travelling = lambda _: done[0]  # type: ignore[assignment,method-assign,return-value]
    puller = puller_of(queue, None, member=member_alone(brokers=brokers), committer=committer)
    pulling = asyncio.ensure_future(puller.run())
    await asyncio.sleep(0.1)
    done[0] = 15
    client.may.set()
    await eventually(lambda: bool(client.sent))
    assert client.sent[0]["commitOffset"] == "15"
    pulling.cancel()
    await asyncio.wait([pulling])


class Dialled:
    """A client whose broker is reached by the newest of its connections."""

    def __init__(self) -> None:
        self.newest: Any = None

    def dial(self) -> Any:
        self.newest = SimpleNamespace()
        return self.newest

    def living_connection(self, address: str) -> Any:
        return self.newest

    def broker_address(self, broker_name: str, broker_id: int = MASTER_ID) -> str:
        return "10.0.0.1:10911"

    async def connection(self, address: str) -> Any:
        return self.newest


@in_virtual_time
async def test_a_pull_looks_its_connection_up_when_that_has_ended() -> None:
    client = Dialled()
    brokers = Brokers("group", cast(Any, client), ConsumerConfig(), Random(1), NO_TASKS)
    first = client.dial()
    assert brokers.recognised_at(QUEUE) is None
    assert await brokers.to_pull(QUEUE, MASTER_ID) is first
    assert brokers.recognised_at(QUEUE) is first
    assert brokers.recognised_at(QUEUE._replace(queue_id=1)) is None
    client.newest = None
    assert brokers.recognised_at(QUEUE) is None
    second = client.dial()
    assert brokers.recognised_at(QUEUE) is None
    assert await brokers.to_pull(QUEUE, MASTER_ID) is second
    assert brokers.recognised_at(QUEUE) is second
