"""When a slave has everything that its master has, and what to do then."""

from __future__ import annotations

from dataclasses import replace

from rocketapp.admin.promotion import SENDS_GO_ON, WORK_GOES_ON, Copy, Fleet, Held, hopeless, missing, steps
from tests.cases import cases

COPY = Copy(1, "10.0.0.2:10911", 100, "10.0.0.1:9877", "10.0.0.1:9876")
FLEET = Fleet("broker-a", "10.0.0.1:9876", "ASYNC_MASTER", 100, 1, (COPY,))
NOW_MS = 1_795_000_000_000
HELD = Held(
    topics=frozenset({"orders", "%RETRY%billing"}),
    groups=frozenset({"billing"}),
    offsets={("orders@billing", 0): 5, ("orders@billing", 1): 7},
    delays={3: 2, 18: 1},
    timers=(NOW_MS, 4),
)


def test_a_slave_that_has_as_much_lacks_nothing() -> None:
    assert list(missing(HELD, HELD)) == []
    more = replace(HELD, delays={3: 3, 18: 1}, timers=(NOW_MS - 5_000, 4))
    assert list(missing(HELD, more)) == []


@cases(
    "slave, lacks",
    [
        (replace(HELD, topics=frozenset({"orders"})), "topic %RETRY%billing"),
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
