"""An embedded broker follows an embedded master as its slave, over real sockets, and takes its place."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rocketapp.broker.replication import master
from rocketapp.broker.replication import slave as slave_side
from rocketapp.broker.replication.slave import MasterLog, MasterTables
from rocketapp.broker.store.files import MemoryFiles, read_whole
from rocketapp.broker.store.store import MessageStore
from rocketapp.clock import Clock, SystemClock
from rocketapp.config.broker import BrokerConfig
from rocketapp.config.client import ClientConfig
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.errors import ConfigError
from rocketapp.model.event import BrokerRegistered, FollowsMaster, LeftMaster, LoopFailed
from rocketapp.tasks import scope
from rocketapp.transport.access import tls_of
from rocketapp.transport.stream import split_address
from rocketapp.transport.tcp import dial_tcp
from rocketapp.transport.tls import Tls
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.replication import block_head
from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION
from rocketapp.wire.requests.replication import decode_ha_status
from tests.peers.clusters import free_port
from tests.unit.broker.asking import Client
from tests.unit.broker.store.stores import SEGMENT, Events, bodies, delete_topic, open_store, record
from tests.unit.broker.store.test_copying import copy, full, log_of, slave_store
from tests.unit.broker.test_transactions import COMMIT, end, half
from tests.unit.certificates import Authority
from tests.unit.scripted import eventually

FOUR = {"readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master, "LAST_PATIENCE", 0.2)
    monkeypatch.setattr(slave_side, "AGAIN", 0.01)
    monkeypatch.setattr(slave_side, "INTERVAL", 0.1)


class _Tcp:
    dial = staticmethod(dial_tcp)


class Node:
    """One broker in files that outlive it."""

    def __init__(
        self, files: MemoryFiles | None = None, clock: Clock | None = None, our_tls: Tls | None = None, **options: Any
    ) -> None:
        self.files, self.events = files or MemoryFiles(), Events()
        listen = options.get("listen") or f"127.0.0.1:{free_port(around=(-2, 0, 1))}"
        port = split_address(listen)[1]
        config = {"listen": listen, "segment_bytes": SEGMENT, "flush_interval": 0.05, **options}
        if options.get("role") != "slave":
            config["ha_port"] = port + 1
        self.broker = EmbeddedBroker(
            config=BrokerConfig(**config),
            clock=clock or SystemClock(),
            random=Random(1),
            observe=self.events,
            files=None if "dir" in options else self.files,
            tls=our_tls,
        )

    async def start(self) -> Node:
        self.address = await self.broker.start()
        self.client = await Client("client", self).connect()  # type: ignore[arg-type]
        return self

    network = _Tcp()

    async def stop(self) -> None:
        await self.broker.stop()
        await self.client.connection.close("over")

    async def offset(self, queue_id: int, group: str = "billing") -> int | None:
        fields = {"consumerGroup": group, "topic": "bills", "queueId": str(queue_id)}
        answer = await self.client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        return int((answer.fields or {})["offset"]) if answer.code == ResponseCode.SUCCESS else None

    async def commit(self, queue_id: int, offset: int) -> None:
        fields = {"consumerGroup": "billing", "topic": "bills", "queueId": str(queue_id), "commitOffset": str(offset)}
        assert (await self.client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == ResponseCode.SUCCESS

    def log(self) -> bytes:
        """All bytes of the log but for the zeros behind its end."""
        names = sorted(self.files.names("commitlog"))
        return b"".join(read_whole(self.files, f"commitlog/{name}") or b"" for name in names).rstrip(b"\0")


@contextlib.asynccontextmanager
async def pair(credentials: str = "", **options: Any) -> AsyncIterator[tuple[Node, Node]]:
    """A master and its slave."""
    first = await Node(**options).start()
    try:
        second = await Node(role="slave", id=1, master=first.address, credentials=credentials).start()
        try:
            yield first, second
        finally:
            await second.stop()
    finally:
        await first.stop()


async def all_of(node: Node, topic: str = "bills") -> list[bytes]:
    return [message.body for message in await node.client.messages(topic)]


async def count_of(node: Node) -> int:
    return len(await all_of(node))


async def test_a_slave_has_the_log_the_tables_and_the_offsets() -> None:
    async with pair() as (first, second):
        for number in range(300):
            assert (await first.client.send("bills", b"%d" % number + b"." * 300, queue_id=0)).code == 0
        await first.client.send("bills", b"late", "DELAY\x014\x02")
        await first.commit(0, 250)
        await eventually(lambda: second.log() == first.log(), 10)
        assert len(first.log()) > SEGMENT
        await eventually_async(lambda: second.offset(0), 250)
        await eventually_async(lambda: count_of(second), 32)  # when it has the topic, too
        status = decode_ha_status((await second.client.ask(RequestCode.GET_BROKER_HA_STATUS)).body)
        assert (status.is_master, status.end) == (False, len(first.log()))
        assert status.copies_from.startswith("127.0.0.1:")


async def test_it_takes_the_place_of_its_master_and_goes_on() -> None:
    async with pair() as (first, second):
        await first.client.send("bills", b"delivered", "DELAY\x011\x02", queue_id=0)
        await eventually_async(lambda: all_of(first), [b"delivered"])
        await first.client.send("bills", b"due", "DELAY\x012\x02", queue_id=0)
        due_ms = int(SystemClock().now() * 1000) + 3000
        await first.client.send("bills", b"timed", f"TIMER_DELIVER_MS\x01{due_ms}\x02", queue_id=0)
        open_one, ended = await half(first.client, b"open"), await half(first.client, b"ended")
        assert await end(first.client, ended, COMMIT) == ResponseCode.SUCCESS
        await first.commit(0, 1)
        await eventually(lambda: second.log() == first.log())
        await eventually_async(lambda: second.offset(0), 1)
        assert len(second.broker.running.halves) == 1
    third = await Node(second.files).start()
    try:
        assert await third.offset(0) == 1
        assert await end(third.client, open_one, COMMIT) == ResponseCode.SUCCESS
        assert await end(third.client, ended, COMMIT) == ResponseCode.SYSTEM_ERROR
        assert [message.body for message in await third.client.messages("orders", queue_id=2)] == [b"ended", b"open"]
        await eventually(lambda: third.broker.running.next_delayed() is None, 20)
        assert sorted(await all_of(third)) == [b"delivered", b"due", b"timed"]
        assert (await third.client.send("bills", b"new", queue_id=0)).code == ResponseCode.SUCCESS
        assert (await all_of(third))[-1] == b"new"
    finally:
        await third.stop()


async def test_a_topic_that_its_master_deletes_goes_here_too_and_a_new_one_of_that_name_begins_anew() -> None:
    async with pair() as (first, second):
        for queue_id in range(4):
            await first.client.send("bills", b"old", queue_id=queue_id)
        await first.client.send("kept", b"kept", queue_id=0)
        await eventually_async(lambda: by_queue(second), [[b"old"]] * 4)
        await delete(first)
        await eventually_async(lambda: ends(second), [0] * 4)  # not made again before it is gone here too
        await eventually(
            lambda: not [path for path in second.files.paths() if path.startswith("consumequeue/bills")], 30
        )
        await first.client.send("bills", b"new", queue_id=2)
        await eventually_async(lambda: by_queue(second), [[], [], [b"new"], []])
        assert await all_of(second, "kept") == [b"kept"]
    third = await Node(second.files).start()
    try:
        assert await by_queue(third) == [[], [], [b"new"], []]
        assert (await third.client.send("bills", b"newer", queue_id=0)).code == ResponseCode.SUCCESS
        assert await by_queue(third) == [[b"newer"], [], [b"new"], []]
    finally:
        await third.stop()


async def test_a_topic_that_is_younger_than_the_last_round_is_there_when_the_slave_takes_its_masters_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pair() as (first, second):
        await first.client.send("kept", queue_id=0)
        await eventually_async(lambda: all_of(second, "kept"), [b"hello"])
        monkeypatch.setattr(MasterTables, "take_over", _never)
        queues = {"topic": "bills", "readQueueNums": "16", "writeQueueNums": "16", "perm": "6"}
        await first.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, queues)
        for queue_id in (0, 15, 3):
            assert (await first.client.send("bills", b"%d" % queue_id, queue_id=queue_id)).code == ResponseCode.SUCCESS
        await eventually(lambda: second.log() == first.log(), 30)
    third = await Node(second.files).start()
    try:
        for queue_id in (0, 3, 15):
            found = await third.client.messages("bills", queue_id=queue_id)
            assert [message.body for message in found] == [b"%d" % queue_id]
    finally:
        await third.stop()


async def test_a_lock_that_its_master_has_granted_is_given_to_nobody_else_while_it_may_be_trusted() -> None:
    async with pair() as (first, second):
        await first.client.send("bills", queue_id=0)
        assert await locks(first, "a member")
        await eventually_async(lambda: count_of(second), 1)
    third = await Node(second.files, lock_expiry=1.0).start()
    try:
        assert not await locks(third, "another")
        await eventually_async(lambda: locks(third, "another"), [0])
    finally:
        await third.stop()


async def locks(node: Node, client_id: str) -> list[int]:
    """The queues of the topic that this client gets."""
    queue = {"brokerName": "broker-a", "topic": "bills", "queueId": 0}
    asked = {"consumerGroup": "billing", "clientId": client_id, "mqSet": [queue]}
    answer = await node.client.ask(RequestCode.LOCK_BATCH_MQ, {}, json.dumps(asked).encode())
    return [one["queueId"] for one in json.loads(answer.body)["lockOKMQSet"]]


async def test_two_slaves_of_one_host_follow_one_master_and_a_third_takes_no_number_of_theirs() -> None:
    first, slaves = await Node().start(), list[Node]()
    try:
        for number in (1, 2, 2):
            slaves.append(await Node(role="slave", id=number, name_server=first.address).start())
            problem = (
                f"broker.id: {first.address} knows a slave 2 of broker-a at {slaves[-2].address}: "
                "stop that one, or choose another number"
                if len(slaves) == 3
                else ""
            )
            await eventually(lambda problem=problem: is_told(slaves[-1], problem), 30)
        for body in (b"1", b"2"):
            await first.client.send("bills", body, queue_id=0)
        await first.commit(0, 2)
        for slave in slaves[:2]:
            await eventually(lambda slave=slave: slave.log() == first.log(), 30)
            await eventually_async(lambda slave=slave: slave.offset(0), 2)
            assert await all_of(slave) == [b"1", b"2"]
        assert slaves[2].log() == b""
        await slaves.pop(0).stop()
        await first.client.send("bills", b"3", queue_id=0)
        await eventually_async(lambda: all_of(slaves[0]), [b"1", b"2", b"3"])
    finally:
        for node in (*slaves, first):
            await node.stop()


async def test_another_slave_of_the_master_follows_the_one_that_takes_its_place() -> None:
    async with pair() as (first, second):
        other = await Node(role="slave", id=2, master=first.address).start()
        await first.client.send("bills", b"1", queue_id=0)
        for slave in (second, other):
            await eventually(lambda slave=slave: slave.log() == first.log(), 30)
        await other.stop()
        await first.client.send("bills", b"2", queue_id=0)
        await eventually(lambda: second.log() == first.log(), 30)
    third = await Node(second.files).start()
    other = await Node(other.files, role="slave", id=2, master=third.address).start()
    try:
        await third.client.send("bills", b"3", queue_id=0)
        await eventually_async(lambda: all_of(other), [b"1", b"2", b"3"])
        assert not other.events.of(LeftMaster)
    finally:
        await other.stop()
        await third.stop()


def is_told(node: Node, problem: str) -> bool:
    """Whether it has registered; with a problem, whether that kept it from it."""
    failed = [event.error for event in node.events if isinstance(event, LoopFailed)]
    return problem in failed if problem else bool(node.events.of(BrokerRegistered))


async def test_what_came_behind_the_table_that_lacks_a_topic_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is made again while its table is on the way, so its new messages are here when it is taken over."""
    ask, is_deleted, made_again = MasterTables._ask, asyncio.Event(), asyncio.Event()

    async def make_again(tables: MasterTables, code: int, *fields: Any) -> Command:
        answer = await ask(tables, code, *fields)
        lacks_it = code == RequestCode.GET_ALL_TOPIC_CONFIG and b"bills" not in answer.body
        if lacks_it and is_deleted.is_set() and not made_again.is_set():
            for queue_id, body in ((1, b"new"), (3, b"more")):
                await first.client.send("bills", body, queue_id=queue_id)
            await eventually(lambda: second.log() == first.log(), 30)
            made_again.set()
        return answer

    monkeypatch.setattr(MasterTables, "_ask", make_again)
    async with pair() as (first, second):
        for queue_id in range(3):
            await first.client.send("bills", b"old", queue_id=queue_id)
            await first.client.send("bills", b"old as well", queue_id=queue_id)
        await eventually_async(lambda: by_queue(second), [*[[b"old", b"old as well"]] * 3, []])
        await delete(first)
        is_deleted.set()
        await made_again.wait()
        await eventually_async(lambda: by_queue(second), [[], [b"new"], [], [b"more"]])
        assert await by_queue(first) == await by_queue(second)


@pytest.fixture
def may_ask(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """A slave asks for its master's tables while this is set, as it is at first."""
    take_over, may_ask = MasterTables.take_over, asyncio.Event()
    may_ask.set()

    async def gated(tables: MasterTables) -> None:
        await may_ask.wait()
        await take_over(tables)

    monkeypatch.setattr(MasterTables, "take_over", gated)
    return may_ask


async def test_a_topic_that_is_deleted_and_made_again_between_two_rounds_shows_no_old_message(
    may_ask: asyncio.Event,
) -> None:
    async with pair() as (first, second):
        for queue_id in range(4):
            await first.client.send("bills", b"old", queue_id=queue_id)
        await first.client.send("kept", b"kept", queue_id=0)
        await eventually_async(lambda: by_queue(second), [[b"old"]] * 4)
        await eventually_async(lambda: all_of(second, "kept"), [b"kept"])
        may_ask.clear()
        await delete(first)
        await first.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**FOUR, "topic": "bills"})
        await first.client.send("bills", b"new", queue_id=2)
        await first.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**FOUR, "topic": "kept"})
        may_ask.set()
        await eventually_async(lambda: by_queue(second), [[], [], [b"new"], []])
        await first.client.send("bills", b"newer", queue_id=1)
        await eventually_async(lambda: by_queue(second), [[], [b"newer"], [b"new"], []])
        assert await all_of(second, "kept") == [b"kept"]


async def test_in_its_place_no_offset_counts_of_a_topic_that_was_made_again_after_the_last_round(
    may_ask: asyncio.Event,
) -> None:
    async with pair() as (first, second):
        for _ in range(5):
            await first.client.send("bills", b"old", queue_id=0)
        await first.commit(0, 5)
        await first.client.send("kept", b"kept", queue_id=0)
        await eventually_async(lambda: second.offset(0), 5)
        may_ask.clear()
        await delete(first)
        for _ in range(3):
            await first.client.send("bills", b"new", queue_id=0)
        await eventually(lambda: second.log() == first.log())
    third = await Node(second.files).start()
    try:
        assert await third.offset(0) == 0
        assert await all_of(third) == [b"new"] * 3
    finally:
        await third.stop()


async def test_a_master_that_has_lost_its_table_of_topics_takes_no_message_from_its_slave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask, is_lost, rounds = MasterTables._ask, False, 0

    async def lost(tables: MasterTables, code: int, *fields: Any) -> Command:
        nonlocal rounds
        answer = await ask(tables, code, *fields)
        if code == RequestCode.GET_ALL_TOPIC_CONFIG and is_lost:
            rounds += 1
            table = json.loads(answer.body)
            table["topicConfigTable"].pop("bills", None)
            answer = Command(answer.code, answer.fields, json.dumps(table).encode())
        return answer

    monkeypatch.setattr(MasterTables, "_ask", lost)
    async with pair() as (first, second):
        for queue_id in range(4):
            await first.client.send("bills", b"stays", queue_id=queue_id)
        await eventually_async(lambda: by_queue(second), [[b"stays"]] * 4)
        is_lost = True
        await eventually(lambda: rounds > 3, 30)
        assert await ends(second) == [1] * 4
        is_lost = False
        await eventually_async(lambda: by_queue(second), [[b"stays"]] * 4)
        await delete(first)
        await eventually_async(lambda: ends(second), [0] * 4)


async def delete(node: Node, topic: str = "bills") -> None:
    assert (await node.client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})).code == ResponseCode.SUCCESS


async def ends(node: Node) -> list[int]:
    fields = [{"topic": "bills", "queueId": str(queue_id)} for queue_id in range(4)]
    answers = [await node.client.ask(RequestCode.GET_MAX_OFFSET, each) for each in fields]
    return [int(answer.fields["offset"]) if answer.fields else 0 for answer in answers]


async def by_queue(node: Node) -> list[list[bytes]]:
    found = [await node.client.messages("bills", queue_id=queue_id) for queue_id in range(4)]
    return [[message.body for message in messages] for messages in found]


async def test_a_slave_serves_while_its_master_is_away_and_catches_up_when_it_is_back() -> None:
    async with pair() as (first, second):
        await first.client.send("bills", b"1", queue_id=0)
        await eventually_async(lambda: all_of(second), [b"1"])
        there = await second.client.pull("bills", 1)
        assert there.code == ResponseCode.PULL_RETRY_IMMEDIATELY, "its master has what comes next"
        beyond = await second.client.pull("bills", 7, sys_flag=FLAG_SUBSCRIPTION)
        assert (beyond.code, (beyond.fields or {})["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "7")
        await first.stop()
        await eventually(lambda: bool(second.events.of(LeftMaster)))
        assert await all_of(second) == [b"1"]
        held = second.client.pull("bills", 1)
        again = await Node(first.files, listen=first.address).start()
        try:
            await again.client.send("bills", b"2", queue_id=0)
            answer = await held
            assert (answer.code, len(answer.body) > 0) == (ResponseCode.SUCCESS, True)
            await eventually(lambda: second.log() == again.log())
        finally:
            await again.stop()


async def test_a_slave_shows_its_keys_to_a_master_that_asks_for_them() -> None:
    keys = {"authentication": True, "admin_user": '{"username":"ops","password":"s3cret"}'}
    async with pair('{"accessKey":"ops","secretKey":"s3cret"}', **keys) as (_, second):
        await eventually(lambda: bool(second.events.of(FollowsMaster)))
        assert not second.events.of(LeftMaster)
    async with pair('{"accessKey":"ops","secretKey":"other"}', **keys) as (_, second):
        await eventually(lambda: bool(second.events.of(LeftMaster)))
        assert not second.events.of(FollowsMaster)
    with pytest.raises(ConfigError, match=r"broker\.credentials"):
        async with pair("ops:s3cret"):
            pass


async def test_a_slave_asks_with_tls_where_its_master_and_its_name_server_want_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shown = authority.issue("server", names="IP:127.0.0.1")
    trusting = tls_of(ClientConfig(tls=True, ca_file=str(authority.cert)))
    files = {"cert_file": str(shown.cert), "key_file": str(shown.key)}
    first = Node(tls="enforcing", **files)
    await first.broker.start()
    options = {"role": "slave", "id": 1, "name_server": first.broker.address}
    plain, second = await Node(**options).start(), await Node(our_tls=trusting, **options).start()
    try:
        await eventually(lambda: bool(second.events.of(BrokerRegistered) and second.events.of(FollowsMaster)))
        assert not plain.events.of(BrokerRegistered)
    finally:
        for node in (second, plain):
            await node.stop()
        await first.broker.stop()


async def test_a_round_that_describes_more_than_the_log_here_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The master counts a message as delivered whose copy is not here: without it, it would be lost."""
    monkeypatch.setattr(slave_side, "_PATIENCE", 0.1)

    async def copy_nothing(self: MasterLog, reader: Any, writer: Any, start: int, is_ours: asyncio.Event) -> None:
        is_ours.set()
        await _never()

    monkeypatch.setattr(MasterLog, "_copy", copy_nothing)
    async with pair() as (first, second):
        await first.client.send("bills", queue_id=0)
        await first.commit(0, 1)
        await eventually(lambda: any(isinstance(event, LoopFailed) for event in second.events), 30)
        assert await second.offset(0) is None
    told = [event for event in second.events if isinstance(event, LoopFailed)]
    assert "ours ends at 0: not taken over yet" in told[0].error


async def test_a_slave_that_does_not_know_the_offsets_yet_guesses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MasterTables, "run", _never)
    files = MemoryFiles()
    first = await Node().start()
    try:
        await first.client.send("bills", queue_id=0)
        for _ in range(2):
            second = await Node(files, role="slave", id=1, master=first.address).start()
            try:
                await eventually(lambda node=second: node.log() == first.log())
                second.broker.running.create_topic("bills")
                await second.commit(0, 1)  # of a member that has read them at the master: no file to begin from
                fields = {"consumerGroup": "billing", "topic": "bills", "queueId": "0"}
                answer = await second.client.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
                assert answer.code == ResponseCode.SYSTEM_BUSY, answer.fields
            finally:
                await second.stop()
    finally:
        await first.stop()


async def test_an_empty_master_in_its_place_wipes_no_tables_of_the_slave() -> None:
    async with pair() as (first, second):
        await first.client.send("bills", queue_id=0)
        await first.commit(0, 1)
        await eventually(lambda: second.log() == first.log())
        await eventually_async(lambda: second.offset(0), 1)
        await first.stop()
        empty = await Node(listen=first.address).start()
        try:
            await eventually(lambda: len([left for left in _left(second) if "another history" in left]) > 20)
            assert await all_of(second)  # its table still has the topic
            assert await second.offset(0) == 1
        finally:
            await empty.stop()


async def test_log_and_tables_come_from_the_same_master_also_while_it_moves() -> None:
    first, other = await Node().start(), await Node().start()
    second = await Node(role="slave", id=1, name_server="127.0.0.1:1").start()
    broker = second.broker._broker
    try:
        broker.master_is(first.address)
        await first.client.send("bills", queue_id=0)
        await eventually(lambda: "bills" in broker.shown()[1] and second.log() == first.log())
        broker.master_is(other.address)
        await first.client.send("bills", queue_id=0)  # it hears of the move when it has read this
        await eventually(lambda: f"the master is {other.address} now" in _left(second))
        await eventually(lambda: any("another history" in left for left in _left(second)))
        assert "bills" in broker.shown()[1]
    finally:
        await second.stop()
        await other.stop()
        await first.stop()


def _left(node: Node) -> list[str]:
    return [event.reason for event in node.events if isinstance(event, LeftMaster)]


async def _never(*_: object) -> None:
    await asyncio.Event().wait()


async def eventually_async(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    async with asyncio.timeout(30):
        while await ask() != wanted:  # noqa: ASYNC110 - a broker answers, and nothing here is an event to wait for
            await asyncio.sleep(0.02)


class Scripted:
    """A master that sends its log from where a slave asks for it, each connection so many bytes and no more."""

    def __init__(self, store: MessageStore) -> None:
        self.store, self.log, self.master = store, log_of(store), "here"
        self.cuts: list[int] = []
        """Bytes after which the next connections end. The last one goes on."""
        self.shift = 0
        self.port = 0
        self._left = 0

    async def run(self, copies_from: str) -> None:
        await _never()

    async def log_address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def log_begin(self) -> int:
        return 0

    async def log_end(self) -> int:
        return len(self.log)

    async def record_at(self, position: int) -> bytes | None:
        return self.store.record_at(position)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            position = int.from_bytes(await reader.readexactly(8))
            left = self.cuts.pop(0) if self.cuts else 1 << 60
            while left > 0 and position < len(self.log):
                block = self.log[position : min(position + 1000, SEGMENT * (position // SEGMENT + 1))]
                writer.write((block_head(position + self.shift, len(block)) + block)[:left])
                position, left = position + len(block), left - 12 - len(block)
            await writer.drain()
            if left > 0:
                await reader.read()


@contextlib.asynccontextmanager
async def following_of(master: Scripted, slave: MessageStore, events: Events) -> AsyncIterator[None]:
    server = await asyncio.start_server(master.serve, "127.0.0.1", 0)
    master.port = server.sockets[0].getsockname()[1]
    try:
        async with scope(MasterLog(slave, master, events, "here").run()):  # type: ignore[arg-type]
            yield
    finally:
        server.close()
        await server.wait_closed()


async def test_a_cut_at_each_byte_of_a_head_and_inside_of_blocks_loses_nothing_and_repeats_nothing() -> None:
    master, slave = Scripted(full(count=250)), slave_store()
    master.cuts = [*range(30), 1011, 1012, 1013, 1030, 5000]
    async with following_of(master, slave, Events()):
        await eventually(lambda: slave.end_position == master.store.end_position, 20)
    assert master.cuts == []
    assert log_of(slave) == master.log
    assert bodies(slave) == bodies(master.store)


async def test_a_block_that_does_not_follow_ends_the_connection() -> None:
    master, slave, events = Scripted(full(count=20)), slave_store(), Events()
    copy(slave, master.log[:3000], 1000)
    end, last = slave.end_position, slave.last_position
    master.shift = 500
    async with following_of(master, slave, events):
        await eventually(lambda: bool(events.of(LeftMaster)))
    reason = f"it sends position {last + 500}, and not {last}"
    assert events.of(LeftMaster)[0] == LeftMaster("here", end, reason)
    assert slave.end_position == end


@pytest.mark.parametrize("is_longer", [True, False])
async def test_another_history_is_refused_with_its_position_and_nothing_is_cut(is_longer: bool) -> None:
    master, slave, events = Scripted(full(count=20)), slave_store(), Events()
    other = full(count=30 if is_longer else 10, size=400 if is_longer else 399)
    copy(slave, log_of(other), 1000)
    end, data = slave.end_position, log_of(slave)
    async with following_of(master, slave, events):
        await eventually(lambda: bool(events.of(LeftMaster)))
    (left, *_), wrong = events.of(LeftMaster), str(len(master.log)) if is_longer else str(slave.last_position)
    assert isinstance(left, LeftMaster)
    assert left.reason.endswith("of another history")
    assert wrong in left.reason
    assert (slave.end_position, log_of(slave)) == (end, data)
    assert not events.of(FollowsMaster)


async def test_a_slave_that_lacks_what_its_master_has_deleted_says_so() -> None:
    class Shorter(Scripted):
        async def log_begin(self) -> int:
            return SEGMENT

    master, slave, events = Shorter(full(count=250)), slave_store(), Events()
    copy(slave, master.log[:3000], 1000)
    async with following_of(master, slave, events):
        await eventually(lambda: bool(events.of(LeftMaster)))
    reason = f"our last record is at {slave.last_position}, its log begins at {SEGMENT}: that is deleted there"
    assert events.of(LeftMaster)[0] == LeftMaster("here", slave.end_position, reason)
    assert not events.of(FollowsMaster)


async def test_a_slave_claims_nothing_that_its_master_has_not_been_compared_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slave_side, "REPORT", 0.01)
    said = list[int]()

    class Silent(Scripted):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.closing(writer), contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    while True:
                        said.append(int.from_bytes(await reader.readexactly(8)))

    master, slave, events = Silent(full(count=20)), slave_store(), Events()
    copy(slave, master.log[:3000], 1000)
    async with following_of(master, slave, events):
        await eventually(lambda: bool(events.of(LeftMaster)))
    assert set(said) == {slave.last_position}


async def test_a_fork_that_goes_on_past_our_last_record_is_another_history() -> None:
    theirs, slave, events = open_store(), slave_store(), Events()
    theirs.append(record(b"common", queue_id=1))
    ours = open_store()
    ours.append(record(b"common", queue_id=1))
    ours.append(record(b"a" * 200))
    for size in (50, 50, 300):  # none of them begins where our last one does
        theirs.append(record(b"x" * size))
    copy(slave, log_of(ours), 1000)
    async with following_of(Scripted(theirs), slave, events):
        await eventually(lambda: bool(events.of(LeftMaster)))
    assert not events.of(FollowsMaster)
    assert log_of(slave) == log_of(ours)


async def test_deleted_topics_that_were_stored_last_are_no_other_history() -> None:
    theirs, slave, events = open_store(), slave_store(), Events()
    theirs.append(record(b"common", topic="kept"))
    for queue_id in range(16):
        theirs.append(record(b"gone", queue_id=queue_id))
    copy(slave, log_of(theirs), 1000)
    delete_topic(theirs, "T")
    theirs.append(record(b"after", topic="kept"))
    async with following_of(Scripted(theirs), slave, events):
        await eventually(lambda: slave.end_position == theirs.end_position)
    assert not events.of(LeftMaster)


@pytest.mark.parametrize("is_same", [True, False])
async def test_a_slave_that_has_only_the_first_record_of_a_log_of_several_files_goes_on(is_same: bool) -> None:
    master, slave, events = Scripted(full(count=250)), slave_store(), Events()
    assert master.store.end_position > SEGMENT
    copy(slave, log_of(full(count=1) if is_same else full(count=1, size=77)), 1000)
    async with following_of(master, slave, events):
        await eventually(lambda: slave.end_position == master.store.end_position or bool(events.of(LeftMaster)))
    assert [left.reason for left in events if isinstance(left, LeftMaster)][:1] == (
        [] if is_same else ["it has another record at 0: it is of another history"]
    )


async def test_a_slave_has_a_number_and_a_master() -> None:
    for lacking in ({"id": 1}, {"master": "127.0.0.1:9876"}):
        with pytest.raises(ConfigError, match=r"broker\.role"):
            await Node(role="slave", **lacking).broker.start()
    with pytest.raises(ConfigError, match=r"broker\.master: .*nowhere"):
        await Node(role="slave", id=1, master="nowhere").broker.start()


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY),
        (RequestCode.END_TRANSACTION, ResponseCode.SLAVE_NOT_AVAILABLE),
        (RequestCode.POP_MESSAGE, ResponseCode.SYSTEM_ERROR),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_slave_refuses_what_only_its_master_does(code: RequestCode, wanted: ResponseCode) -> None:
    node = await Node(role="slave", id=1, master="127.0.0.1:1").start()
    try:
        answer = await node.client.ask(code, {"topic": "bills"})
        assert answer.code == wanted
        assert "slave" in (answer.remark or "")
    finally:
        await node.stop()
