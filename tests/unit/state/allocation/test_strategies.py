"""What each strategy gives to whom. tests/conformance/test_allocation.py compares them with Java's classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.errors import AllocationError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation import (
    Allocation,
    Average,
    ByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    Nearby,
    parse_queue,
)
from tests.cases import cases

QUEUES = [MessageQueue("T", broker, number) for broker in ("broker-a", "broker-b") for number in range(4)]
MEMBERS = ["10.0.0.1@1#1", "10.0.0.2@2#2", "10.0.0.3@3#3"]
IN_ROOMS = [MessageQueue("T", broker, number) for broker in ("b3", "idc1@b1", "idc2@b2") for number in range(4)]


def first(text: str) -> str:
    """The room of `room-name`."""
    return text.partition("-")[0]


def shown(queues: list[MessageQueue]) -> list[str]:
    return [f"{queue.broker_name.removeprefix('broker-')}{queue.queue_id}" for queue in queues]


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [
        (Average(), ["a0 a1 a2", "a3 b0 b1", "b2 b3"]),
        (ByCircle(), ["a0 a3 b2", "a1 b0 b3", "a2 b1"]),
        (ConsistentHash(10), ["a2 b1", "a3", "a0 a1 b0 b2 b3"]),
    ],
)
def test_the_reference_allocations(strategy: Allocation, shares: list[str]) -> None:
    given = [strategy.allocate("g", member, QUEUES, MEMBERS) for member in MEMBERS]
    assert [" ".join(shown(list(share))) for share in given] == shares


def test_of_machine_rooms_only_the_queues_of_ours_are_shared() -> None:
    strategy = ByMachineRoom(frozenset({"idc1", "idc2"}))
    given = [strategy.allocate("g", member, IN_ROOMS, MEMBERS) for member in MEMBERS]
    assert [[(queue.broker_name, queue.queue_id) for queue in share] for share in given] == [
        [("idc1@b1", 0), ("idc1@b1", 1), ("idc2@b2", 2)],
        [("idc1@b1", 2), ("idc1@b1", 3), ("idc2@b2", 3)],
        [("idc2@b2", 0), ("idc2@b2", 1)],
    ]


def test_nearby_queues_go_to_members_of_their_room_and_the_rest_to_all() -> None:
    strategy = Nearby(ByCircle(), room_of_broker=first, room_of_member=first)
    queues = [MessageQueue("T", broker, number) for broker in ("r1-b", "r2-b", "r3-b") for number in range(2)]
    members = ["r1-m", "r1-n", "r2-m"]
    given = [strategy.allocate("g", member, queues, members) for member in members]
    assert [[(queue.broker_name, queue.queue_id) for queue in share] for share in given] == [
        [("r1-b", 0), ("r3-b", 0)],
        [("r1-b", 1), ("r3-b", 1)],
        [("r2-b", 0), ("r2-b", 1)],
    ]
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"


def test_a_queue_or_a_member_without_a_room_is_an_error_that_names_it() -> None:
    strategy = Nearby(Average(), room_of_broker=first, room_of_member=first)
    with pytest.raises(AllocationError, match="NEARBY-AVG: Machine room is null for consumer id -m"):
        strategy.allocate("g", "r-m", [MessageQueue("T", "r-b", 0)], ["-m", "r-m"])
    with pytest.raises(AllocationError, match=r"for mq MessageQueue \[topic=T, brokerName=-b, queueId=7\]"):
        strategy.allocate("g", "r-m", [MessageQueue("T", "-b", 7)], ["r-m"])


EVERYTHING: list[Allocation] = [
    Average(),
    ByCircle(),
    ByMachineRoom(frozenset({"r"})),
    ConsistentHash(10),
    Nearby(Average(), room_of_broker=first, room_of_member=first),
]


@cases("strategy", EVERYTHING)
@cases(
    "me, queues, members, why",
    [
        ("", QUEUES, MEMBERS, "currentCID is empty"),
        ("me", [], MEMBERS, "mqAll is null or mqAll empty"),
        ("me", QUEUES, [], "cidAll is null or cidAll empty"),
    ],
)
def test_where_java_throws_an_error_names_the_strategy_and_the_reason(
    strategy: Allocation, me: str, queues: list[MessageQueue], members: list[str], why: str
) -> None:
    with pytest.raises(AllocationError, match=f"allocation {strategy.name}: {why}"):
        strategy.allocate("g", me, queues, members)


@pytest.mark.parametrize("strategy", EVERYTHING, ids=lambda strategy: strategy.name)
def test_a_stranger_gets_nothing(strategy: Allocation) -> None:
    assert list(strategy.allocate("g", "stranger", QUEUES, MEMBERS)) == []


@given(
    st.sets(st.tuples(st.sampled_from(["r@a", "r@b"]), st.integers(0, 9)), min_size=1),
    st.sets(st.text("abé😀-", min_size=1, max_size=5).map("r-{}".format), min_size=1, max_size=7),
)
def test_every_queue_has_exactly_one_owner(places: set[tuple[str, int]], names: set[str]) -> None:
    queues, members = [MessageQueue("T", *place) for place in sorted(places)], sorted(names)
    for strategy in (*EVERYTHING[:4], Nearby(ByCircle(), lambda broker: broker[0], first)):
        given = [queue for member in members for queue in strategy.allocate("g", member, queues, members)]
        assert sorted(given) == queues, strategy.name


def test_a_listed_queue_is_ours_whatever_members_are_there() -> None:
    strategy = ByConfig((QUEUES[0], QUEUES[5]))
    assert strategy.allocate("g", "stranger", (), ()) == (QUEUES[0], QUEUES[5])


@pytest.mark.parametrize(
    ("text", "queue"),
    [
        ("orders@broker-a:3", MessageQueue("orders", "broker-a", 3)),
        ("%RETRY%shop@idc1@b1:0", MessageQueue("%RETRY%shop", "idc1@b1", 0)),
    ],
)
def test_a_queue_is_written_as_it_is_logged(text: str, queue: MessageQueue) -> None:
    assert parse_queue(text) == queue
    assert str(queue) == text


@cases("text", ["", "orders", "orders@b", "orders@b:", "@b:1", "orders@:1", "orders@b:-1", "o@b:x"])
def test_a_text_that_is_no_queue_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not topic@broker:id"):
        parse_queue(text)
