"""Apache RocketMQ follows an embedded master as its slave, the other way round too, and takes its place at its end."""

from __future__ import annotations

from pathlib import Path

from rocketapp.errors import ProtocolError
from rocketapp.wire.lenient_json import loads
from rocketapp.wire.requests.replication import decode_timer_checkpoint
from tests.peers import toolchain
from tests.peers.bare import Bare
from tests.peers.clusters import Apache, Embedded, free_port
from tests.peers.commands import Commands
from tests.peers.java_client import JavaClient, Peer
from tests.peers.running_app import RunningApp
from tests.peers.waiting import wait_until

QUEUES, OLD, SEGMENT, SMALL = 4, 400, 4_194_304, 1_048_576
SAME_SEGMENT = f"mappedFileSizeCommitLog={SEGMENT}"
SLAVE = ("brokerRole=SLAVE", "brokerId=1", "timerFlushIntervalMs=500", SAME_SEGMENT)
SEND, QUERY_CONSUMER_OFFSET, GET_MAX_OFFSET, DELETE_TOPIC, GET_TOPIC_CONFIG = 10, 14, 30, 215, 351
SYSTEM_BUSY = 2
SCHEDULE, HALF, TIMERS = ("SCHEDULE_TOPIC_XXXX", 3), ("RMQ_SYS_TRANS_HALF_TOPIC", 0), ("rmq_sys_wheel_timer", 0)
LATE = ["at a second", "in half a minute", "open", "was delivered before"]
TAKE = """
app = RocketApp("mover")

@app.subscribe("moving", start="first")
async def take(message: Message) -> None:
    note("done", message)

@app.subscribe("late", start="first")
async def take_late(message: Message) -> None:
    note("late", message)
"""
TAKE_BACK = TAKE.replace("mover", "back")
"""Another group: Java's side keeps one producer of transactions for each."""
ANSWER = """
@app.transaction("late")
async def place(body: str) -> bool:
    return False

@place.check
async def known(message: Message) -> bool:
    return True
"""


def _end(broker: Apache | Embedded, topic: str, queue: int) -> int:
    with Bare(broker.broker_address) as asking:
        return int(asking.ask(GET_MAX_OFFSET, topic=topic, queueId=queue).fields["offset"])


def _knows(slave: Apache, topic: str) -> bool:
    with Bare(slave.broker_address) as asking:
        return asking.ask(GET_TOPIC_CONFIG, topic=topic).code == 0


def _offsets_of(store: Path) -> object:
    try:
        return loads((store / "config" / "consumerOffset.json").read_bytes())["offsetTable"].get("moving@mover")
    except (FileNotFoundError, ProtocolError):
        return None  # Apache RocketMQ writes it anew while one looks


def _timers_of(store: Path) -> int:
    """How far the master has read the queue of timers, as the slave knows it."""
    return decode_timer_checkpoint((store / "config" / "timercheck").read_bytes()[:56])[1]


def _log(store: Path) -> bytes:
    """The whole log, without the zeros behind its end."""
    return b"".join(file.read_bytes() for file in sorted((store / "commitlog").iterdir())).rstrip(b"\0")


def test_a_slave_of_apaches_takes_the_place_of_its_embedded_master(peer: Peer, tmp_path: Path) -> None:
    port = free_port(around=(-2, 0, 1))
    options = {"ha_port": port + 1, "segment_bytes": SEGMENT}
    master = Embedded(tmp_path / "master", listen=f"127.0.0.1:{port}", options=options)
    java = JavaClient(peer, master.name_server)
    try:
        java.create_topic("moving", QUEUES)
        java.create_topic("late", 1)
        java.produce("moving", OLD, size=300, prefix="old").wait(within=30)
        before = RunningApp(tmp_path / "before", TAKE, master.name_server, "--exit-when-idle", "0.5")
        assert before.wait(within=60).handled == OLD
        java.send("late", {"text": "was delivered before", "delay_ms": 1000})
        done = {queue: line["committed"] for queue, line in java.offsets("moving", "mover").items()}
        load = java.produce("moving", 10**9, size=300, threads=1, rate=80, prefix="new")
        slave = Apache(tmp_path / "slave", name_server=master.name_server, conf=SLAVE, options=toolchain.BRIEF)
        try:
            store = slave.directory / "store"
            wait_until(lambda: _offsets_of(store) == done, within=60, what=lambda: f"offsets {_offsets_of(store)}")
            assert _knows(slave, "moving")
            _cannot_take_over_while_sends_go_on(master)
            load.stop()
            acknowledged = set(load.wait(within=30)["stored"])
            _can_take_over(master, slave)
            java.send("late", {"text": "in half a minute", "delay": 4}, {"text": "at a second", "delay_ms": 30_500})
            assert java.transaction("late", "open", group="mover", local="unknown") == "UNKNOW"
            places = [SCHEDULE, HALF, TIMERS, *(("moving", queue) for queue in range(QUEUES))]
            ends = {place: _end(master, *place) for place in places}
            assert (ends[SCHEDULE], ends[HALF], ends[TIMERS]) == (1, 1, 2)
            wait_until(lambda: {at: _end(slave, *at) for at in places} == ends, within=30, what="the slave has it all")
            wait_until(lambda: _timers_of(store) == 2, within=15, what="the slave knows how far the timers are")
            assert set(_addresses(master)) == {"0", "1"}
            master.kill_broker()
        finally:
            slave.stop()
    finally:
        java.stop()
        master.stop()
    assert _log(master.store).startswith(_log(store))
    _promoted(peer, tmp_path, store, acknowledged, done)


def _cannot_take_over_while_sends_go_on(master: Embedded) -> None:
    said = Commands(master.name_server).run("broker", "promote", "--timeout", "60", code=1)
    assert "sends go on" in said.err
    assert f"master   broker-a at {master.name_server}, ASYNC_MASTER" in said.out


def _can_take_over(master: Embedded, slave: Apache) -> None:
    found = Commands(master.name_server).json("broker", "promote", "--timeout", "90")
    (copy,) = found["slaves"]
    assert (copy["broker_id"], copy["address"], copy["copies_from"]) == (1, slave.broker_address, _ha_address(master))
    assert found["lacks"] == []
    assert any("brokerRole=ASYNC_MASTER, brokerId=0" in step for step in found["steps"])


def _ha_address(master: Embedded) -> str:
    host, _, port = master.name_server.rpartition(":")
    return f"{host}:{int(port) + 1}"


def _addresses(master: Apache | Embedded) -> dict[str, str]:
    """What the name server says where the broker is, by broker id."""
    with Bare(master.name_server) as asking:
        (broker,) = loads(asking.ask(105, topic="moving").body)["brokerDatas"]
    return dict(broker["brokerAddrs"])


def _takes_all(after: RunningApp, java: JavaClient, acknowledged: set[int], more: str) -> None:
    """It gets every message that was acknowledged, one more that is sent now, and each late one once; then it stops."""
    after.wait_for_count(len(acknowledged), within=60)
    assert {int(text.split()[1]) for text in after.texts()} == acknowledged
    java.send("moving", more)
    after.wait_for_count(len(acknowledged) + 1, within=20)
    after.wait_for_count(len(LATE), "late", within=60)
    assert sorted(after.texts("late")) == LATE
    after.stop()


def _promoted(peer: Peer, directory: Path, store: Path, acknowledged: set[int], done: dict[int, int | None]) -> None:
    """A master on the slave's directory has every message that was acknowledged, and goes on."""
    apache = Apache(directory / "promoted", store=store, conf=(SAME_SEGMENT,), options=toolchain.BRIEF)
    after = None
    try:
        java = JavaClient(peer, apache.name_server)
        assert {queue: line["committed"] for queue, line in java.offsets("moving", "mover").items()} == done
        after = RunningApp(directory / "after", TAKE + ANSWER, apache.name_server)
        _takes_all(after, java, acknowledged, "written by Apache")
    finally:
        if after is not None:
            after.discard()
        apache.stop()


def test_an_embedded_slave_takes_the_place_of_its_master_of_apaches(peer: Peer, tmp_path: Path) -> None:
    apache = Apache(
        tmp_path / "apache",
        conf=(f"mappedFileSizeCommitLog={SMALL}", "timerFlushIntervalMs=500"),
        options=toolchain.BRIEF,
    )
    options = {"role": "slave", "id": 1, "name_server": apache.name_server, "segment_bytes": SMALL}
    slave: Embedded | None = None
    java = JavaClient(peer, apache.name_server)
    try:
        java.create_topic("moving", QUEUES)
        java.create_topic("late", 1)
        java.create_topic("gone", QUEUES)
        java.produce("moving", OLD, size=3000, prefix="old").wait(within=30)  # more than a segment
        java.produce("gone", 10 * QUEUES, size=100, prefix="old").wait(within=30)
        before = RunningApp(tmp_path / "before", TAKE_BACK, apache.name_server, "--exit-when-idle", "0.5")
        assert before.wait(within=60).handled == OLD
        java.send("late", {"text": "was delivered before", "delay_ms": 1000})
        done = {queue: line["committed"] for queue, line in java.offsets("moving", "back").items()}
        load = java.produce("moving", 10**9, size=300, threads=1, rate=100, prefix="new")
        slave = Embedded(tmp_path / "slave", options=options)
        wait_until(lambda: _committed(slave) == done, within=30, what=lambda: f"the offsets: {slave.log()}")
        _made_again(java, apache, slave)
        slave.stop()
        slave = Embedded(tmp_path / "slave", options=options)  # goes on behind its last record
        load.stop()
        acknowledged = set(load.wait(within=30)["stored"])
        java.send("late", {"text": "in half a minute", "delay": 4}, {"text": "at a second", "delay_ms": 30_500})
        assert java.transaction("late", "open", group="back", local="unknown") == "UNKNOW"
        places = [SCHEDULE, HALF, TIMERS, *(("moving", queue) for queue in range(QUEUES))]
        ends = {place: _end(apache, *place) for place in places}
        wait_until(  # it may have more: Apache RocketMQ stores a half message again at each look at it
            lambda: all(_end(slave, *at) >= end for at, end in ends.items()), within=30, what="the slave has it all"
        )
        wait_until(lambda: set(_addresses(apache)) == {"0", "1"}, within=15, what="the name server knows the slave")
        apache.kill_broker()
        assert _log(apache.directory / "store").startswith(_log(slave.store))
        assert len(_log(slave.store)) > SMALL
        _serves(tmp_path / "reading", apache.name_server, slave, acknowledged)
        slave.stop()
        slave = Embedded(tmp_path / "slave", options={"segment_bytes": SMALL})
        _goes_on(peer, tmp_path, slave, acknowledged, done)
    finally:
        java.stop()
        if slave is not None:
            slave.stop()
        apache.stop()


def _made_again(java: JavaClient, apache: Apache, slave: Embedded) -> None:
    """A topic is deleted at the master and made again: the slave has its new messages, and none of the old ones."""
    wait_until(lambda: _ends(slave, "gone") == [10] * QUEUES, within=30, what="the slave has the old messages")
    with Bare(apache.broker_address) as asking:
        assert asking.ask(DELETE_TOPIC, topic="gone").code == 0
    wait_until(lambda: _ends(slave, "gone") == [0] * QUEUES, within=30, what="the slave has deleted them")
    java.create_topic("gone", QUEUES)
    java.produce("gone", 6, size=100, prefix="new").wait(within=30)
    wait_until(lambda: sum(_ends(apache, "gone")) == 6, within=10, what="Apache's broker shows what it has stored")
    ends = _ends(apache, "gone")
    wait_until(lambda: _ends(slave, "gone") == ends, within=30, what="the slave has the new messages")


def _ends(broker: Apache | Embedded, topic: str) -> list[int]:
    return [_end(broker, topic, queue) for queue in range(QUEUES)]


def _committed(slave: Embedded) -> dict[int, int | None]:
    """What the slave knows of the group's offsets."""
    found: dict[int, int | None] = {}
    with Bare(slave.broker_address) as asking:
        for queue in range(QUEUES):
            answer = asking.ask(QUERY_CONSUMER_OFFSET, consumerGroup="back", topic="moving", queueId=queue)
            found[queue] = int(answer.fields["offset"]) if answer.code == 0 else None
    return found


def _serves(directory: Path, name_server: str, slave: Embedded, acknowledged: set[int]) -> None:
    """The group gets every message of the load from the slave, which takes none."""
    app = RunningApp(directory, TAKE_BACK, name_server)
    try:
        app.wait_for_count(len(acknowledged), within=60)
        assert {int(text.split()[1]) for text in app.texts()} == acknowledged
    finally:
        app.discard()
    with Bare(slave.broker_address) as asking:
        answer = asking.ask(SEND, b"x", producerGroup="p", topic="moving", queueId=0, defaultTopic="TBW102",
                            defaultTopicQueueNums=4, sysFlag=0, bornTimestamp=0, flag=0)  # fmt: skip
        assert answer.code == SYSTEM_BUSY


def _goes_on(
    peer: Peer, directory: Path, master: Embedded, acknowledged: set[int], done: dict[int, int | None]
) -> None:
    """The slave's directory has every message that was acknowledged, and a master there goes on."""
    after = None
    java = JavaClient(peer, master.name_server)
    assert {queue: line["committed"] for queue, line in java.offsets("moving", "back").items()} == done
    try:
        after = RunningApp(directory / "after", TAKE_BACK + ANSWER, master.name_server)
        _takes_all(after, java, acknowledged, "written after")
    finally:
        if after is not None:
            after.discard()
