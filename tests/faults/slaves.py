"""A master is killed under load while its slave lives: the slave is read, and the master again when it returns."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults import checker
from tests.faults.checker import Event
from tests.faults.hand_overs import longest_pause
from tests.faults.members import Members, pause
from tests.faults.scenarios import Figures, fresh_name
from tests.peers.bare import Bare
from tests.peers.clusters import Apache
from tests.peers.java_client import JavaClient, Load, Peer
from tests.peers.waiting import wait_until

_QUEUES, _BACKLOG, _RATE = 4, 20_000, 100
_LIVE = 1_000_000
"""Added to the numbers of messages that are sent while members consume."""
_READ = ("slaveReadEnable=true",)
_SLAVE = (*_READ, "brokerRole=SLAVE", "brokerId=1")
_GET_MAX_OFFSET, _GET_TOPIC_CONFIG = 30, 351
_SOURCE = """
app = RocketApp("{group}")

@app.on_startup
async def joined() -> None:
    mark("joined")

@app.subscribe("{topic}", start="first"{options})
async def take(message: Message) -> None:
    prefix, number, *_ = message.body.split(b" ", 2)
    facts = dict(queue=message.queue.queue_id, offset=message.offset)
    facts["number"] = int(number) + (1_000_000 if prefix == b"live" else 0)
    mark("start", **facts)
    await asyncio.sleep(0.01)
    mark("done", **facts)
"""


class Away(NamedTuple):
    """When a master was away."""

    began: float
    returning: float
    """It was started again; members may find it from then on."""
    back: float
    """It was certain to serve."""


def slave(peer: Peer, directory: Path, *, seconds: float = 60.0, orderly: bool = False) -> Figures:
    """Two members with a backlog and a load; the master is away for `seconds`. Orderly handlers wait for it."""
    master, copy, members, load = Apache(directory / "master", heap="512m", conf=_READ), None, None, None
    try:
        copy = Apache(directory / "slave", heap="512m", name_server=master.name_server, conf=_SLAVE)
        java, topic, group = JavaClient(peer, master.name_server), fresh_name("slave"), fresh_name("group")
        java.create_topic(topic, _QUEUES)
        stored = java.produce(topic, _BACKLOG, size=64, threads=4, prefix="old", producer="old").wait(within=60)
        wait_until(lambda: _has_copied(master, copy, topic), within=120, what="the slave has the backlog", every=0.5)
        members = _join(directory, master, topic, group, ", orderly=True" if orderly else ", concurrency=2")
        load = java.produce(topic, 10**9, size=64, threads=1, rate=_RATE, prefix="live", producer="live")
        pause(15)
        away = time.monotonic()
        master.kill_broker()
        pause(seconds)
        returning = time.monotonic()
        master.start_again()
        back = time.monotonic()
        pause(30)
        wanted = {*stored["stored"], *(number + _LIVE for number in _end(load)["stored"])}
        wait_until(lambda: wanted <= _numbers(members.log), within=240, what=members.describe, every=2.0)
        wait_until(lambda: java.lag(topic, group) == 0, within=30, what="all is committed to the master", every=0.5)
        told = members.logs()
        members.stop()
    finally:
        for each in (load, members, copy, master):
            if each is not None:
                (each.discard if isinstance(each, Members) else each.stop)()
    return _figures(_events(members.log), wanted, Away(away, returning, back), told, orderly=orderly)


def _has_copied(master: Apache, copy: Apache, topic: str) -> bool:
    """Whether the slave has all messages, and knows the topic: it asks its master for topics once a minute."""
    with Bare(master.broker_address) as one, Bare(copy.broker_address) as other:
        if other.ask(_GET_TOPIC_CONFIG, topic=topic).code:
            return False
        ends = [
            [asking.ask(_GET_MAX_OFFSET, topic=topic, queueId=queue).fields["offset"] for queue in range(_QUEUES)]
            for asking in (one, other)
        ]
    return ends[0] == ends[1]


def _join(directory: Path, master: Apache, topic: str, group: str, options: str) -> Members:
    source = _SOURCE.replace("{topic}", topic).replace("{group}", group).replace("{options}", options)
    members = Members(directory / "members", source, [master.name_server] * 2)
    for place in range(2):
        members.join(place)
    for place in range(2):
        members.wait_until_joined(place, within=60)
    return members


def _end(load: Load) -> dict[str, Any]:
    load.stop()
    return load.wait(within=60)


def _events(log: Path) -> list[Event]:
    lines = [json.loads(line) for line in log.read_bytes().split(b"\n")[:-1]]
    return [
        Event(line["event"], line["at"], line["pid"], line["queue"], line["offset"], line["number"])
        for line in lines
        if line["event"] in ("start", "done")
    ]


def _numbers(log: Path) -> set[int]:
    return set(checker.done_numbers(_events(log)))


def _figures(events: list[Event], wanted: set[int], away: Away, told: str, *, orderly: bool) -> Figures:
    done = sorted(event.at for event in events if event.event == "done")
    during = [at for at in done if away.began + 1 < at < away.returning]
    # Until most of what the slave has is handled: after that it has nothing more.
    old = [event.at for event in events if event.event == "done" and event.number < _LIVE]
    until = away.back + 20 if orderly else sorted(old)[int(len(old) * 0.95)]
    figures: Figures = {
        "handlers": "orderly" if orderly else "async",
        "messages": len(wanted),
        "away_s": round(away.back - away.began, 1),
        "handled_while_away": len(during),
        "longest_pause_s": round(longest_pause(done, away.began - 5, until), 1),
        "goes_on_with_the_master_after_s": round(next(at for at in done if at > away.back) - away.back, 1),
        "lost": len(checker.lost(wanted, events)),
        "repeated": len(checker.repeated(events)),
        "order_violations": len(checker.overtaken(events)) if orderly else None,
        "members_read_the_slave": told.count("its slave 1 is read"),
        "members_are_back_on_the_master": told.count("is read again"),
    }
    assert figures["lost"] == 0, figures
    if orderly:
        assert not during, f"locks are the master's: {figures}"
        assert figures["order_violations"] == 0, figures
    else:
        assert len(during) > 1000, figures
        assert figures["longest_pause_s"] < 5, figures
        assert figures["members_read_the_slave"] == figures["members_are_back_on_the_master"] == 2, figures
    return figures
