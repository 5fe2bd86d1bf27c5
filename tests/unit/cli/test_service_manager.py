"""What systemd hears of a run: datagrams to the socket that it names, and signs of life for its watchdog."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketapp.cli.processes.service_manager import SilentWorkers, ready, tell, watchdog_of
from tests.cases import cases
from tests.unit.cli.asking import Http
from tests.unit.cli.conftest import Send, Start
from tests.unit.cli.processes import LIMIT, Command, wait_until

WriteApp = Callable[[str], None]
_NUMBERS = itertools.count()
BLOCKS = """
import time

@app.subscribe("orders", start="first")
async def settle(message):
    note("blocks", os.getpid())
    while not os.path.exists("go on"):
        time.sleep(0.02)
"""


class Manager:
    """The socket that systemd would listen on; an abstract one, because a path may be too long for a test's folder."""

    def __init__(self) -> None:
        self._name = f"rocketapp-test-{os.getpid()}-{next(_NUMBERS)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{self._name}")
        self.environment = {"NOTIFY_SOCKET": f"@{self._name}"}
        self.heard: list[dict[str, str]] = []

    def hear(self, within: float = LIMIT) -> dict[str, str]:
        """The next message. Raises TimeoutError when there is none in time."""
        self._socket.settimeout(within)
        lines = self._socket.recv(4096).decode().splitlines()
        self.heard.append(dict(line.split("=", 1) for line in lines))
        return self.heard[-1]

    def hears(self, name: str) -> dict[str, str]:
        """The next message that has this name."""
        while name not in (message := self.hear()):
            pass
        return message

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd() -> Iterator[Manager]:
    manager = Manager()
    yield manager
    manager.close()


WAITS = """
@app.subscribe("orders", start="first")
async def settle(message):
    note("begins")
    while not os.path.exists("go on"):
        await asyncio.sleep(0.02)
    note("finished")
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_tells_that_it_consumes_and_that_it_drains(
    start: Start, write_app: WriteApp, systemd: Manager, workers: int
) -> None:
    write_app(WAITS)
    run = start("run", "app", "--workers", str(workers), "--drain-timeout", "5", environment=systemd.environment)
    assert systemd.hear() == {"STATUS": "starting", "EXTEND_TIMEOUT_USEC": "70000000"}
    ready = systemd.hear()
    assert ready["READY"] == "1"
    assert ready["STATUS"] == f"consuming in {workers} process{'es' if workers > 1 else ''}"
    assert len(re.findall("started, process", run.err)) == workers
    run.signal(signal.SIGTERM)
    stopping = systemd.hear()
    assert (stopping["STOPPING"], stopping["STATUS"]) == ("1", "draining: SIGTERM")
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 5_000_000
    run.ends(0)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_says_it_consumes_is_ready_for_who_asks_by_http(
    start: Start, write_app: WriteApp, systemd: Manager, workers: int
) -> None:
    write_app(WAITS)
    words = ["run", "app", "--workers", str(workers), "--http", "127.0.0.1:0"]
    run = start(*words, environment=systemd.environment)
    http = Http(run)
    systemd.hears("READY")
    assert http.get("/ready").text.startswith("ready")
    run.stops()


def test_a_run_that_cannot_start_is_never_ready(start: Start, write_app: WriteApp, systemd: Manager) -> None:
    write_app(WAITS)
    run = start("run", "app", "--workers", "2", "--no-embedded", environment=systemd.environment)
    run.ends(2)
    systemd.hear()
    with pytest.raises(TimeoutError):
        while "READY" not in systemd.hear(within=0.1):
            pass


def test_signs_of_life_come_from_the_event_loop(
    start: Start, write_app: WriteApp, systemd: Manager, folder: Path
) -> None:
    write_app(BLOCKS + '@app.on_startup\nasync def first():\n    await app.publish("orders", "one")\n')
    run = start("run", "app", environment={**systemd.environment, "WATCHDOG_USEC": "600000"})
    assert systemd.hears("WATCHDOG") == {"WATCHDOG": "1"}
    run.says("blocks")
    with pytest.raises(TimeoutError):
        while systemd.hear(within=0.7):  # what was sent before it blocked
            pass
    (folder / "go on").touch()
    systemd.hears("WATCHDOG")
    run.stops()


@pytest.fixture
def broker(memory_broker: str, send: Send) -> str:
    """The address of one that holds a message for the topic of the handlers."""
    send("orders", "one", at=memory_broker)
    return memory_broker


def test_the_watchdog_ends_the_one_worker_whose_loop_is_blocked(
    start: Start, write_app: WriteApp, systemd: Manager, folder: Path, broker: str
) -> None:
    write_app(BLOCKS)
    environment = {**systemd.environment, "WATCHDOG_USEC": "3000000"}
    run = start("run", "app", "--workers", "2", "--name-server", broker, environment=environment)
    blocked = run.says(r"blocks (\d+)")[1]
    number = run.says(rf"worker (\d) started, process {blocked}\b")[1]
    run.says(rf"worker {number} has not reported for 3 s: the watchdog ends it")
    run.says(rf"worker {number} died \(killed by SIGKILL\); starting it again")
    (folder / "go on").touch()
    wait_until(lambda: run.err.count("started, process") == 3, "it is started again")
    systemd.hears("WATCHDOG")
    run.stops()


def test_the_watchdog_leaves_a_worker_alone_that_drains(
    start: Start, write_app: WriteApp, systemd: Manager, broker: str
) -> None:
    write_app(
        """
@app.subscribe("orders", start="first")
async def settle(message):
    note("begins", os.getpid())
    await asyncio.sleep(5)
    note("finished")
"""
    )
    environment = {**systemd.environment, "WATCHDOG_USEC": "2000000"}
    run = start("run", "app", "--workers", "2", "--name-server", broker, environment=environment)
    worker = int(run.says(r"begins (\d+)")[1])
    run.says(rf"started, process {worker}\b")
    os.kill(worker, signal.SIGTERM)
    run.says("finished")
    run.says(r"worker \d ended before the others")
    assert "the watchdog ends it" not in run.err


@pytest.mark.parametrize("first", ["workers", "parent"])
def test_a_signal_to_every_process_at_once_does_not_cut_the_drain(
    start: Start, write_app: WriteApp, folder: Path, broker: str, first: str
) -> None:
    """A unit without `KillMode=mixed` signals the workers, and their parent signals them again."""
    write_app(WAITS)
    run = start("run", "app", "--workers", "2", "--name-server", broker)
    workers = [int(pid) for pid in wait_until(lambda: _both(run), "both workers have started")]
    run.says("begins")
    for pid in (*workers, run.process.pid) if first == "workers" else (run.process.pid, *workers):
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: len(re.findall(r"\[worker \d\] draining", run.err)) == 2, "both drain")
    (folder / "go on").touch()
    run.ends(0)
    assert "finished" in run.out
    assert run.summary == (1, 0, 0, 0)
    assert "cutting" not in run.err


def _both(run: Command) -> list[str]:
    found = re.findall(r"worker \d started, process (\d+)", run.err)
    return found if len(found) == 2 else []


@cases(
    "environment, watchdog",
    [
        ({"NOTIFY_SOCKET": "/run/systemd/notify", "WATCHDOG_USEC": "30000000"}, 30.0),
        ({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "1"}, None),
        ({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "0"}, None),
        ({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "soon"}, None),
        ({"NOTIFY_SOCKET": "@x"}, None),
        ({"WATCHDOG_USEC": "1500000"}, None),
    ],
)
def test_the_watchdog_is_on_when_the_variables_mean_this_process(
    environment: dict[str, str], watchdog: float | None
) -> None:
    assert watchdog_of(environment) == watchdog


def test_a_socket_is_found_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("notify")
        path = Path("/proc/self/cwd/notify")  # short, wherever the folder is
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        tell("READY=1", "STATUS=here")
        assert listening.recv(100) == b"READY=1\nSTATUS=here"


@pytest.mark.parametrize("address", ["", "/nowhere/to/be/found", "@listens-nowhere", "vsock:2:1234"])
def test_where_nothing_listens_nothing_fails(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    ready()
    assert watchdog_of(os.environ) is None


def test_a_worker_is_silent_when_it_told_nothing_new_in_three_looks() -> None:
    silence = SilentWorkers()
    assert [silence.look({1: at, 2: 5.0}) for at in (1.0, 2.0, 3.0)] == [[], [], []]
    assert silence.look({1: 4.0, 2: 5.0}) == [2]
    assert silence.look({1: 5.0, 2: 6.0}) == []


def test_a_worker_that_is_started_again_is_not_silent() -> None:
    silence = SilentWorkers()
    for _ in range(3):
        silence.look({1: 1.0})
    assert silence.look({}) == []
    assert silence.look({1: 9.0}) == []
