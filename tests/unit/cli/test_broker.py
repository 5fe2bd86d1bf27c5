"""`rocketapp broker`: it says when it serves, and refuses what it should not do."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rocketapp.app.settings import Settings
from rocketapp.cli.failure import CommandError
from rocketapp.cli.processes import broker as broker_process
from rocketapp.cli.processes.broker import BrokerKeeper, BrokerLog
from rocketapp.cli.processes.reports import Report
from rocketapp.cli.processes.stop import ProcessStop
from rocketapp.config.broker import BrokerConfig
from rocketapp.model.event import LoopFailed, RecordDamaged
from tests.peers.clusters import free_port
from tests.peers.commands import Commands
from tests.unit.cli.asking import Http
from tests.unit.cli.brokers import serving_in_memory
from tests.unit.cli.conftest import Here, Send, Start
from tests.unit.cli.processes import wait_until
from tests.unit.scripted import in_virtual_time


def test_it_prints_the_real_address_when_it_serves(start: Start, folder: Path) -> None:
    broker = start("broker", "--listen", "127.0.0.1:0")
    address = broker.says(r"^serving on (127\.0\.0\.1:\d+)\n$")[1]
    host, _, port = address.partition(":")
    socket.create_connection((host, int(port)), 5).close()
    assert json.loads((folder / ".rocketapp/broker.json").read_text()) == {
        "address": address,
        "pid": broker.process.pid,
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(start: Start, folder: Path, number: signal.Signals) -> None:
    broker = start("broker")
    broker.says("serving on")
    broker.signal(number)
    broker.ends(0)
    assert not (folder / ".rocketapp/broker.json").exists()
    assert not (folder / ".rocketapp/abort").exists()


def test_messages_survive_a_restart_in_the_named_directory(start: Start, send: Send, folder: Path) -> None:
    broker = start("broker", "--dir", "data")
    address = broker.says(r"serving on (\S+)")[1]
    send("orders", "one", at=address)
    broker.stops()
    again = start("broker", "--dir", "data")
    address = again.says(r"serving on (\S+)")[1]
    tail = start("tail", "orders", "--from", "first", "--count", "1", "--name-server", address)
    tail.ends(0)
    assert tail.out.endswith(" one\n")
    assert not (folder / ".rocketapp").exists()


def test_in_memory_nothing_is_left(start: Start, send: Send, folder: Path) -> None:
    broker = start("broker", "--memory")
    address = broker.says(r"serving on (\S+)")[1]
    send("orders", "one", at=address)
    broker.stops()
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []


def refused(start: Start | Here, *arguments: str) -> str:
    """The one line of a command that ends with 2."""
    command = start(*arguments)
    command.ends(2)
    assert command.err.count("\n") == 1, command.err
    assert command.out == ""
    return command.err


def test_a_taken_port_is_refused_with_its_mend(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        text = refused(start, "broker", "--listen", address)
    assert f"{address}: address already in use" in text
    assert "--listen" in text


def test_a_directory_in_use_is_refused_by_name(start: Start) -> None:
    start("broker", "--dir", "data").says("serving on")
    text = refused(start, "broker", "--dir", "data")
    assert "data: data directory is in use" in text


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:9876", "example.com:9876"])
def test_what_others_could_reach_is_refused_with_the_reason(here: Here, listen: str) -> None:
    text = refused(here, "broker", "--memory", "--listen", listen)
    assert f"--listen {listen}" in text
    assert "no access keys" in text


def test_it_is_watched_where_it_says(start: Start, send: Send, folder: Path) -> None:
    broker = start("broker", "--memory", "--http", "127.0.0.1:0")
    http = Http(broker, of="broker")
    address = broker.says(r"serving on (\S+)")[1]
    assert http.get("/ready") == (200, "ready\n")
    send("orders", "one", at=address)
    assert '<a href="/topic?name=orders">' in http.get("/").text
    assert http.metrics()["rocketapp_broker_stored_total"] == 1
    broker.stops()
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []


def test_the_page_asks_its_own_broker_as_that_serves_and_not_as_others_are_asked(start: Start, send: Send) -> None:
    tls = {"ROCKETAPP_CLIENT__TLS": "true", "ROCKETAPP_CLIENT__TLS_SERVER_NAME": "rocketmq.example.org"}
    broker = start("broker", "--memory", "--http", "127.0.0.1:0", environment=tls)
    http = Http(broker, of="broker")
    send("orders", "order-17", at=broker.says(r"serving on (\S+)")[1])
    assert "order-17" in http.get("/messages?topic=orders").text
    broker.stops()


@pytest.mark.parametrize("http", ["0.0.0.0:0", "8080"])
def test_the_page_is_for_this_machine_as_the_broker_is(here: Here, http: str) -> None:
    assert f"--http {http}" in refused(here, "broker", "--memory", "--http", http)


def test_a_taken_port_of_the_page_is_refused_before_anything_is_written(start: Start, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        text = refused(start, "broker", "--http", address)
    assert f"--http {address}: address already in use" in text
    assert not (folder / ".rocketapp").exists()


@pytest.mark.parametrize("listen", ["9876", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", ":1"])
def test_what_is_no_address_is_answered_with_an_example(here: Here, listen: str) -> None:
    assert "127.0.0.1:9876" in refused(here, "broker", "--memory", "--listen", listen)


def test_options_come_from_a_file_in_apaches_words(start: Start, folder: Path) -> None:
    (folder / "broker.conf").write_text("listenPort=0\nstorePathRootDir=from-the-file\nbrokerName=broker-z\n")
    broker = start("broker", "-c", "broker.conf")
    broker.says("serving on")
    assert (folder / "from-the-file" / "config").exists()
    (folder / "broker.conf").write_text("flushDiskTyp=SYNC_FLUSH\n")
    text = refused(start, "broker", "-c", "broker.conf")
    assert "broker.conf:1: the embedded broker has no option flushDiskTyp: did you mean flushDiskType?" in text
    assert "missing.conf" in refused(start, "broker", "-c", "missing.conf")


def test_a_directory_and_memory_exclude_each_other(here: Here) -> None:
    assert "--dir and --memory" in refused(here, "broker", "--memory", "--dir", "data")


async def test_a_port_that_is_taken_after_the_probe_is_replaced_by_a_free_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two first runs that begin at the same moment both find the usual port free."""
    taken = socket.create_server(("127.0.0.1", 0))
    listen = f"127.0.0.1:{taken.getsockname()[1]}"
    probes = iter([None])
    probe = broker_process.bind_problem
    monkeypatch.setattr(broker_process, "bind_problem", lambda host, port: next(probes, probe(host, port)))
    stop, addresses = ProcessStop(1.0, lambda: None), list[str]()

    def serving(address: str) -> None:
        addresses.append(address)
        stop.request("seen")

    with taken:
        await broker_process.serve_broker(
            Settings(broker=BrokerConfig(dir=str(tmp_path), listen=listen)),
            memory=True,
            or_free_port=True,
            names={"listen": "broker.listen", "dir": "--dir"},
            stop=stop,
            on_serving=serving,
        )
    assert len(addresses) == 1 and addresses != [listen]


class Starting:
    """A child that tells once a second for how long it has computed, and serves in the end."""

    def __init__(self, worked: Sequence[float], tell: Callable[[Report], None]) -> None:
        self.pid = 0
        self._over = asyncio.get_running_loop().create_future()
        for second, seconds in enumerate(worked, 1):
            asyncio.get_running_loop().call_later(second, tell, Report("starting", worked=seconds))
        asyncio.get_running_loop().call_later(len(worked), tell, Report("serving", address="127.0.0.1:9876"))

    async def ended(self) -> int:
        return await asyncio.shield(self._over)

    async def stop(self, *, timeout: float) -> int:
        self._over.cancel()
        return 0


@in_virtual_time
@pytest.mark.parametrize("works", [True, False])
async def test_a_run_waits_for_its_broker_as_long_as_that_works_on_its_store(
    works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    worked = [0.2 + 0.5 * second if works else 0.2 for second in range(60)]
    monkeypatch.setattr(broker_process, "Child", lambda name, spec, tell, descriptors: Starting(worked, tell))
    settings = Settings(broker=BrokerConfig(dir=str(tmp_path)))
    keeper = BrokerKeeper(settings, {"overrides": {}})
    try:
        if works:
            assert await keeper.start() == "127.0.0.1:9876"
        else:
            with pytest.raises(CommandError, match="did not serve within 10 s") as caught:
                await keeper.start()
            assert caught.value.code == 1  # a unit may start it again
        assert caplog.text.count(f"the embedded broker opens its store in {tmp_path}, and reads its log") == 1
    finally:
        await keeper.stop()


class Dying:
    """A child that is killed as it starts."""

    pid = 0

    async def ended(self) -> int:
        return -signal.SIGKILL

    async def stop(self, *, timeout: float) -> int:
        return -signal.SIGKILL


@in_virtual_time
async def test_a_broker_that_dies_at_its_start_is_told_by_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_process, "Child", lambda *_, **__: Dying())
    keeper = BrokerKeeper(Settings(broker=BrokerConfig(dir=str(tmp_path))), {"overrides": {}})
    with pytest.raises(CommandError) as caught:
        await keeper.start()
    assert str(caught.value) == f"{tmp_path}: the embedded broker ended before it served: killed by SIGKILL"
    assert caught.value.code == 1


def test_a_failure_that_goes_on_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = BrokerLog(lambda: now)
    full = LoopFailed("flush", "[Errno 28] No space left on device: 'data/recovery.hint.tmp'")
    for _ in range(240):
        log.tell(full)
        log.tell(RecordDamaged("orders", 0, 7, 100))
        now += 0.5
    log.tell(LoopFailed("flush", "another reason"))
    assert [record.getMessage().partition(":")[0] for record in caplog.records].count("flush failed and goes on") == 3
    assert len(caplog.records) == 3 + 2


@pytest.mark.parametrize("option", [("--memory",), ("--dir", "data"), ("--listen", "127.0.0.1:9876")], ids=" ".join)
def test_an_option_of_the_start_does_not_choose_what_is_promoted(here: Here, option: tuple[str, ...]) -> None:
    assert "--name-server" in refused(here, "broker", *option, "promote")


def test_nothing_takes_the_place_of_a_broker_that_nobody_copies() -> None:
    with serving_in_memory() as alone:
        said = Commands(alone).run("broker", "promote", code=1)
    assert said.out == ""
    assert said.err == "rocketapp: broker-a lets nobody copy its log: set broker.ha_port, and start a slave\n"


def test_a_slave_that_has_everything_may_take_the_place_of_its_master(start: Start, send: Send) -> None:
    port, other = free_port(around=(-2, 0, 1)), free_port(around=(-2, 0))
    master, copy = f"127.0.0.1:{port}", f"127.0.0.1:{other}"
    listens = {"ROCKETAPP_BROKER__HA_PORT": str(port + 1)}
    start("broker", "--memory", "--listen", master, environment=listens).says("serving on")
    follows = {"ROLE": "slave", "ID": "1", "NAME_SERVER": master}
    environment = {f"ROCKETAPP_BROKER__{name}": value for name, value in follows.items()}
    slave = start("broker", "--memory", "--listen", copy, environment=environment)
    slave.says("serving on")
    wait_until(lambda: "is registered with the name server" in slave.err, "the slave is registered")
    send("orders", "one", at=master)
    found = Commands(master).json("broker", "promote", "--timeout", "60")
    assert [(one["broker_id"], one["address"]) for one in found["slaves"]] == [(1, copy)]
    assert (found["lacks"], len(found["steps"])) == ([], 6)


def test_a_master_without_slaves_is_shown_and_has_no_successor(start: Start) -> None:
    port = free_port(around=(-2, 0, 1))
    listen, options = f"127.0.0.1:{port}", {"ROCKETAPP_BROKER__HA_PORT": str(port + 1)}
    start("broker", "--memory", "--listen", listen, environment=options).says("serving on")
    said = Commands(listen).run("broker", "promote", code=1)
    assert said.out == f"master   broker-a at {listen}, ASYNC_MASTER, its log ends at 0\n"
    assert said.err == "rocketapp: broker-a lacks a slave: the name server knows none\n"
    found = json.loads(Commands(listen).run("broker", "promote", "--json", code=1).out)
    assert (found["slaves"], found["steps"]) == ([], [])
    assert "known are broker-a" in Commands(listen).run("broker", "promote", "--broker", "other", code=1).err
