"""When a slave has everything that its master has, and what to do then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest

from rocketapp.admin.cluster import AdminError
from rocketapp.admin.promotion import (
    SENDS_GO_ON,
    WORK_GOES_ON,
    Copy,
    Fleet,
    Held,
    check_records,
    hopeless,
    missing,
    spread,
    steps,
)
from rocketapp.broker.store.files import MemoryFiles
from rocketapp.client.calls import replication
from rocketapp.config.broker import BrokerConfig
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.model.message_queue import MessageQueue
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.send import SendRequest
from rocketapp.wire.requests.statistics import TopicOffset
from tests.cases import cases
from tests.unit.admin.stage import Stage, stage
from tests.unit.broker.asking import SMALL_INDEX

COPY = Copy(1, "10.0.0.2:10911", 100, "10.0.0.1:9877", "10.0.0.1:9876")
FLEET = Fleet("broker-a", "10.0.0.1:9876", "ASYNC_MASTER", 100, 1, (COPY,))
OLD = TopicOffset(7, 7)
"""Of a queue whose messages have all expired: a younger slave does not know that there were any."""
ORDERS = MessageQueue("orders", "broker-a", 0)
NOW_MS = 1_795_000_000_000
HELD = Held(
    topics=frozenset({"orders", "%RETRY%billing"}),
    queues={ORDERS: TopicOffset(3, 9, NOW_MS), MessageQueue("late", "broker-a", 1): OLD},
    groups=frozenset({"billing"}),
    offsets={("orders@billing", 0): 5, ("orders@billing", 1): 7},
    delays={3: 2, 18: 1},
    timers=(NOW_MS, 4),
)


def test_a_slave_that_has_as_much_lacks_nothing() -> None:
    assert list(missing(HELD, HELD)) == []
    more = replace(
        HELD, queues={ORDERS: TopicOffset(3, 11, NOW_MS + 1)}, delays={3: 3, 18: 1}, timers=(NOW_MS - 5_000, 4)
    )
    assert list(missing(HELD, more)) == []
    read = replace(HELD, queues={ORDERS: TopicOffset(5, 9, NOW_MS)})
    assert list(missing(HELD, read)) == []  # what it has deleted is read
    assert list(missing(replace(HELD, queues={ORDERS: TopicOffset(6, 9, NOW_MS)}), HELD)) == []
    expired = replace(HELD, queues={ORDERS: TopicOffset(6, 9, NOW_MS)})
    assert list(missing(expired, expired)) == []  # at both


@cases(
    "slave, lacks",
    [
        (replace(HELD, topics=frozenset({"orders"})), "topic %RETRY%billing"),
        (replace(HELD, queues={ORDERS: TopicOffset(3, 8, NOW_MS - 1)}), "messages of orders"),
        (replace(HELD, queues={ORDERS: TopicOffset(3, 11, NOW_MS - 1)}), "messages of orders"),
        (replace(HELD, queues={ORDERS: TopicOffset(6, 9, NOW_MS)}), "unread messages of orders@billing"),
        (replace(HELD, groups=frozenset[str]()), "group billing"),
        (replace(HELD, offsets={("orders@billing", 0): 5}), "committed offsets of orders@billing"),
        (replace(HELD, offsets={**HELD.offsets, ("orders@billing", 1): 6}), "committed offsets of orders@billing"),
        (replace(HELD, offsets={**HELD.offsets, ("orders@billing", 1): 90}), "committed offsets of orders@billing"),
        (replace(HELD, delays={3: 1}), "progress of delay level 3, 18"),
        (replace(HELD, timers=(NOW_MS, 3)), "progress of timers"),
        (replace(HELD, timers=(NOW_MS - 60_000, 4)), "progress of timers"),
    ],
    ids=[
        "a topic",
        "a message",
        "messages behind those of a deleted topic",
        "messages that its group has not read",
        "a group",
        "a queue",
        "an offset",
        "an offset that was set back",
        "levels",
        "unread timers",
        "timers of a minute",
    ],
)
def test_what_it_lacks_is_named(slave: Held, lacks: str) -> None:
    assert list(missing(HELD, slave)) == [lacks]


def test_of_many_names_some_are_told() -> None:
    many = replace(HELD, topics=frozenset(f"topic-{number}" for number in range(5)))
    assert list(missing(many, HELD)) == ["topic topic-0, topic-1, topic-2 and 2 more"]


def test_an_offset_of_nothing_needs_no_copy() -> None:
    young = replace(HELD, offsets={**HELD.offsets, ("fresh@billing", 0): 0}, delays={**HELD.delays, 4: 0})
    assert list(missing(young, HELD)) == []


def test_the_topic_from_which_others_are_made_is_each_brokers_own() -> None:
    assert list(missing(replace(HELD, topics=HELD.topics | {"TBW102"}), HELD)) == []


def test_a_slave_of_another_history_is_not_waited_for() -> None:
    problem = hopeless(FLEET, 1, position=4096, end=2048, connected=0, grown=0, moved=0)
    assert "its log ends at 4096, that of broker-a at 2048" in problem
    assert not hopeless(FLEET, 1, position=2048, end=2048, connected=0, grown=0, moved=0)
    # It may have got the rest since the master was asked.
    assert not hopeless(FLEET, 1, position=4096, end=2048, connected=1, grown=0, moved=0)


@asynccontextmanager
async def copied(one: Stage, files: MemoryFiles) -> AsyncIterator[Copy]:
    """A broker that serves these files, as the slave of the stage's."""
    address = "127.0.0.1:9886"
    other = EmbeddedBroker(
        config=BrokerConfig(listen=address, segment_bytes=1 << 20, **SMALL_INDEX),
        clock=one.broker.clock,
        random=Random(1),
        observe=one.broker.events.append,
        files=files,
    )
    await other.start(one.broker.network)
    try:
        yield replace(COPY, address=address, end=1 << 22)
    finally:
        await other.stop()


async def test_a_slave_with_another_record_below_its_end_is_refused() -> None:
    async with stage() as one:
        for number in range(6):
            await one.client.send("orders", b"%d" % number, queue_id=0)
        fleet = replace(FLEET, address=one.broker.address)
        async with copied(one, deepcopy(one.broker.files)) as copy:
            connection = await one.cluster.client.connection(copy.address)
            await check_records(one.cluster, fleet, copy)  # as many bytes, and the same ones
            own = Command(
                RequestCode.SEND_MESSAGE_V2, SendRequest("makers", "orders", queue_id=0).to_fields(), b"o" * 99
            )
            for _ in range(3):
                await connection.start_request(own, timeout=3.0)
            for number in range(10):
                await one.client.send("orders", b"%d" % number, queue_id=0)
            stored = await one.client.messages("orders")
            compared = stored[7].physical_offset  # of what the slave has of that queue: 0, 1, 5, 7 and 8
            with pytest.raises(AdminError, match=f"slave 1 .* has another record at {compared} than broker-a"):
                await check_records(one.cluster, fleet, copy)


@pytest.mark.parametrize("asked", [[], [0, 0]], ids=["before", "meanwhile"])
async def test_a_slave_that_has_deleted_what_its_master_still_has_is_of_the_same_history(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    log_begin = replication.log_begin

    async def answered(connection: Connection, timeout: float) -> int:
        return asked.pop() if asked else await log_begin(connection, timeout)

    monkeypatch.setattr(replication, "log_begin", answered)
    async with stage() as one:
        for _ in range(30):
            await one.client.send("orders", bytes(100_000), queue_id=0)
        files = deepcopy(one.broker.files)
        files.remove(f"commitlog/{files.names('commitlog')[0]}")
        async with copied(one, files) as copy:
            await check_records(one.cluster, replace(FLEET, address=one.broker.address), copy)
            assert asked == []
            assert await log_begin(await one.cluster.client.connection(copy.address), 3.0) > 0


def test_the_records_that_are_compared_lie_closer_together_towards_the_end() -> None:
    assert spread(TopicOffset(0, 40), TopicOffset(0, 20)) == {0, 4, 12, 16, 18, 19}
    assert spread(TopicOffset(5, 8), TopicOffset(0, 8)) == {5, 6, 7}
    assert spread(TopicOffset(5, 8), TopicOffset(0, 5)) == set()
    assert len(spread(TopicOffset(0, 10**9), TopicOffset(0, 10**9))) == 31


def test_sends_that_go_on_are_refused_unless_they_wait_for_the_slave() -> None:
    assert not hopeless(FLEET, 1, position=0, end=100, connected=1, grown=SENDS_GO_ON - 1, moved=0)
    assert "sends go on" in hopeless(FLEET, 1, position=0, end=100, connected=1, grown=SENDS_GO_ON, moved=0)
    synchronous = replace(FLEET, role="SYNC_MASTER")
    assert not hopeless(synchronous, 1, position=0, end=100, connected=1, grown=SENDS_GO_ON, moved=0)


def test_offsets_that_move_on_all_the_time_are_not_waited_for() -> None:
    assert not hopeless(FLEET, 1, position=100, end=100, connected=1, grown=0, moved=WORK_GOES_ON)
    problem = hopeless(FLEET, 1, position=100, end=100, connected=1, grown=0, moved=WORK_GOES_ON + 1)
    assert "stop the apps" in problem


def test_the_slave_that_is_furthest_takes_the_place() -> None:
    further, same = replace(COPY, broker_id=3, end=101), replace(COPY, broker_id=2)
    assert replace(FLEET, slaves=(COPY, same)).successor == COPY
    assert replace(FLEET, slaves=(COPY, same, further)).successor == further
    assert replace(FLEET, slaves=()).successor is None


def test_the_steps_name_what_is_to_be_written_where() -> None:
    told = steps(FLEET, COPY)
    assert "10.0.0.1:9876" in told[1]
    assert "brokerRole=ASYNC_MASTER, brokerId=0, namesrvAddr=HOST:9876 (" in told[2]
    assert "a name server of Apache's" in told[3]
    assert not any("slave 2" in step for step in told)
    both = steps(replace(FLEET, slaves=(COPY, replace(COPY, broker_id=2, address="10.0.0.3:10911"))), COPY)
    assert both[4].startswith("Start slave 2 at 10.0.0.3:10911 again, with namesrvAddr=HOST:9876 in its broker.conf")
    elsewhere = steps(FLEET, replace(COPY, name_server="10.0.0.1:9876;10.0.0.9:9876"))
    assert "namesrvAddr=10.0.0.9:9876 (" in elsewhere[2]
    assert elsewhere[3] == "Start it again."
    assert elsewhere[4] == "Start the apps with --name-server 10.0.0.9:9876"
