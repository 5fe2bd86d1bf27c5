"""`rocketapp run --workers N`: a parent without user code, and children that come and go."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketapp import SyncClient
from rocketapp.app.settings import Settings
from rocketapp.cli.processes.parent import Parent
from rocketapp.cli.processes.stop import ProcessStop
from tests.unit.cli.asking import Http
from tests.unit.cli.conftest import Send, Start
from tests.unit.cli.processes import Command, children_of, is_running, wait_until

WriteApp = Callable[[str], None]

HANDLER = """
@app.subscribe("orders", start="first")
async def settle(message):
    note("settled", message.text(), os.getpid())
"""
SETTLED = re.compile(r"^settled (\S+) (\d+)$", re.MULTILINE)


def settled(run: Command) -> dict[str, int]:
    """Body -> process that handled it."""
    return {body: int(pid) for body, pid in SETTLED.findall(run.out)}


def started(run: Command, workers: int) -> list[int]:
    """The workers' process ids, once all of them run."""

    def look() -> list[int]:
        assert run.process.poll() is None, run.err
        found = dict(re.findall(r"worker (\d) started, process (\d+)", run.err))
        return [int(pid) for pid in found.values()] if len(found) == workers else []

    return wait_until(look, f"{workers} workers started:\n{run.err}")


def send_to_every_queue(address: str) -> list[str]:
    """Sixteen messages with sixteen keys; returns their bodies."""
    bodies = [f"m{number}" for number in range(16)]
    with SyncClient(address) as client:
        for body in bodies:
            client.publish("orders", body, order_key=body)
    return bodies


def test_workers_share_the_queues_and_their_numbers_are_summed(
    start: Start, write_app: WriteApp, memory_broker: str
) -> None:
    write_app(HANDLER)
    bodies = send_to_every_queue(memory_broker)
    run = start("run", "app:app", "--workers", "2", "--exit-when-idle", "1", "--name-server", memory_broker)
    pids = started(run, 2)
    run.ends(0)
    handled = settled(run)
    assert sorted(handled) == sorted(bodies)
    assert len(SETTLED.findall(run.out)) == len(bodies)
    assert set(handled.values()) == set(pids)
    assert run.summary == (16, 0, 0, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_the_parent_starts_the_broker_and_ends_it_last(
    start: Start, write_app: WriteApp, number: signal.Signals
) -> None:
    write_app(HANDLER)
    run = start("run", "app:app", "--workers", "2")
    pids = started(run, 2)
    children = children_of(run.process.pid)
    assert set(pids) < set(children)
    assert len(children) == 3
    assert {os.getsid(child) for child in children} == set(children)
    run.signal(number)
    run.ends(0)
    assert not any(map(is_running, children))
    drains = re.findall(r"\[(worker \d|broker)\] draining", run.err)
    assert sorted(drains[:2]) == ["worker 1", "worker 2"]
    assert drains[2:] == ["broker"]
    assert run.summary == (0, 0, 0, 0)


def test_the_parent_imports_nothing_of_the_users(start: Start, write_app: WriteApp, memory_broker: str) -> None:
    write_app(HANDLER + 'note("imported by", os.getpid())\n')
    run = start("run", "app:app", "--workers", "2", "--name-server", memory_broker)
    pids = started(run, 2)
    assert sorted(int(pid) for pid in re.findall(r"imported by (\d+)", run.out)) == sorted(pids)
    run.stops()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_worker_has_not_died(
    start: Start, write_app: WriteApp, memory_broker: str, number: signal.Signals
) -> None:
    write_app(HANDLER)
    run = start("run", "app:app", "--workers", "2", "--name-server", memory_broker)
    victim, _ = started(run, 2)
    os.kill(victim, number)
    run.says(r"worker \d ended before the others; starting it again in 0\.\d s")
    wait_until(lambda: run.err.count("started, process") == 3, "it is started again")
    run.stops()
    assert " died " not in run.err


def test_a_worker_that_died_is_started_again(start: Start, write_app: WriteApp) -> None:
    write_app(HANDLER)
    run = start("run", "app:app", "--workers", "2")
    victim, _ = started(run, 2)
    os.kill(victim, signal.SIGKILL)
    run.says(r"worker \d died \(killed by SIGKILL\); starting it again in 0\.\d s")
    wait_until(lambda: run.err.count("started, process") == 3, "it is started again")
    bodies = send_to_every_queue(run.says(r"embedded broker serves on (\S+),")[1])
    wait_until(lambda: set(settled(run)) == set(bodies), "every message is settled")
    assert victim not in settled(run).values()
    run.stops()
    assert run.summary == (16, 0, 0, 0)


def test_a_machine_without_room_for_a_process_is_waited_for(start: Start, write_app: WriteApp) -> None:
    write_app(HANDLER)
    run = start("run", "app:app", "--workers", "1", "--reload")
    (worker,) = started(run, 1)
    (broker,) = set(children_of(run.process.pid)) - {worker}
    limits = resource.prlimit(run.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(run.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    os.kill(worker, signal.SIGKILL)
    os.kill(broker, signal.SIGKILL)
    run.says(r"worker 1 cannot be started: too many open files; trying again in \d\.\d s")
    run.says(r"the embedded broker cannot be started: too many open files; trying again in 0\.\d s")
    resource.prlimit(run.process.pid, resource.RLIMIT_NOFILE, limits)
    wait_until(lambda: run.err.count("serves on") == run.err.count("worker 1 started") == 2, "both are there again")


def test_a_worker_that_never_comes_to_the_end_of_its_imports_ends_with_its_parent(
    start: Start, write_app: WriteApp
) -> None:
    write_app(HANDLER + 'note("imports")\nthreading.Event().wait()\n')
    run = start("run", "app:app", "--workers", "2")
    wait_until(lambda: run.out.count("imports") == 2, "both import")
    children = children_of(run.process.pid)
    run.process.kill()
    run.process.wait()
    assert wait_until(lambda: not any(map(is_running, children)), "all children have ended")


def test_children_drain_and_end_when_the_parent_is_killed(start: Start, send: Send, write_app: WriteApp) -> None:
    write_app(
        """
@app.subscribe("orders", start="first")
async def settle(message):
    note("begins")
    await asyncio.sleep(0.5)
    note("finished")
"""
    )
    run = start("run", "app:app", "--workers", "2")
    started(run, 2)
    children = children_of(run.process.pid)
    send("orders", "one")
    run.says("begins")
    run.process.kill()
    run.process.wait()
    wait_until(lambda: not any(map(is_running, children)), "all children have ended")
    assert "finished" in run.out
    drains = re.findall(r"\[(worker \d|broker)\] draining: the parent process is gone", run.err)
    assert sorted(drains[:2]) == ["worker 1", "worker 2"]
    assert drains[2:] == ["broker"]
    again = start("run", "app:app", "--exit-when-idle", "0.3")
    again.ends(0)
    assert again.summary == (0, 0, 0, 0)  # what they had in hand was committed before the broker left


def test_children_of_a_killed_parent_end_even_when_a_handler_blocks_the_loop(
    start: Start, send: Send, write_app: WriteApp
) -> None:
    write_app(
        """
import threading

@app.subscribe("orders", start="first")
async def settle(message):
    note("blocks")
    threading.Event().wait()
"""
    )
    run = start("run", "app:app", "--workers", "2", "--drain-timeout", "0.5")
    started(run, 2)
    children = children_of(run.process.pid)
    send("orders", "one")
    run.says("blocks")
    run.process.kill()
    run.process.wait()
    wait_until(lambda: not any(map(is_running, children)), "all children have ended")
    assert "finished" not in run.out


def test_a_forked_copy_of_the_parent_does_not_keep_children_alive(start: Start, write_app: WriteApp) -> None:
    """The one worker is the broker's parent; its fork holds the broker's lifeline open."""
    write_app(
        HANDLER
        + """
@app.on_startup
async def fork():
    pid = os.fork()
    if pid == 0:
        import signal
        signal.alarm(60)  # in case the test ends before it kills this process
        signal.pause()
        os._exit(0)
    note("forked", pid)
"""
    )
    run = start("run", "app:app")
    forked = int(run.says(r"forked (\d+)")[1])
    broker = min(children_of(run.process.pid))
    try:
        run.process.kill()
        run.process.wait()
        wait_until(lambda: not is_running(broker), "the broker has ended")
        assert is_running(forked)
    finally:
        os.kill(forked, signal.SIGKILL)


def test_a_second_signal_cuts_every_worker(start: Start, send: Send, write_app: WriteApp, memory_broker: str) -> None:
    write_app(
        """
@app.subscribe("orders", start="first")
async def settle(message):
    note("begins")
    await asyncio.Event().wait()
"""
    )
    run = start("run", "app:app", "--workers", "2", "--name-server", memory_broker)
    started(run, 2)
    children = children_of(run.process.pid)
    send("orders", "one", at=memory_broker)
    run.says("begins")
    run.signal(signal.SIGTERM)
    run.says(r"\[worker 2\] draining")
    run.signal(signal.SIGTERM)
    run.ends(1)
    assert re.search(r"worker \d did not end cleanly \(exit code 1\)", run.err)
    assert not any(map(is_running, children))
    assert run.summary == (0, 0, 0, 0)


def test_the_drain_timeout_holds_for_workers_too(
    start: Start, send: Send, write_app: WriteApp, memory_broker: str
) -> None:
    write_app(
        """
@app.subscribe("orders", start="first")
def settle(message):
    note("begins")
    threading.Event().wait()
"""
    )
    run = start("run", "app:app", "--workers", "2", "--name-server", memory_broker, "--drain-timeout", "0.3")
    started(run, 2)
    send("orders", "one", at=memory_broker)
    run.says("begins")
    run.signal(signal.SIGTERM)
    run.ends(1)
    assert len(re.findall(r"worker \d did not end cleanly \(exit code 1\)", run.err)) == 1


def test_an_app_that_cannot_be_loaded_ends_the_run_with_one_line(start: Start, folder: Path) -> None:
    (folder / "app.py").write_text("import nowhere_to_be_found\n")
    run = start("run", "app:app", "--workers", "3")
    run.ends(2)
    assert run.err.startswith("rocketapp: app.py:1: ModuleNotFoundError")
    assert run.err.count("\n") == 1
    assert "handled=" not in run.out


def test_workers_find_modules_in_the_current_directory(
    start: Start, write_app: WriteApp, memory_broker: str, folder: Path
) -> None:
    (folder / "parts").mkdir()
    (folder / "parts/words.py").write_text('WORD = "found"\n')
    write_app(HANDLER + "from parts.words import WORD\nnote(WORD)\n")
    run = start("run", "app", "--workers", "2", "--name-server", memory_broker)
    started(run, 2)
    assert run.out.count("found") == 2
    run.stops()


def test_a_worker_whose_start_fails_ends_the_run(start: Start, write_app: WriteApp, memory_broker: str) -> None:
    write_app(HANDLER + '@app.on_startup\nasync def first():\n    raise OSError("no database")\n')
    run = start("run", "app:app", "--workers", "2", "--name-server", memory_broker)
    run.ends(1)
    assert "no database" in run.err.splitlines()[-1]
    assert run.err.count("no database") == 1


def test_more_workers_than_queues_are_idle_too(start: Start, write_app: WriteApp, memory_broker: str) -> None:
    write_app(HANDLER + '@app.on_startup\nasync def first():\n    await app.publish("orders", "one")\n')
    run = start("run", "app:app", "--workers", "3", "--name-server", memory_broker, "--exit-when-idle", "1")
    run.ends(0)
    assert run.summary == (3, 0, 0, 0)


def test_a_parent_goes_by_what_the_app_was_made_with(start: Start, write_app: WriteApp, folder: Path) -> None:
    own = '{"app": {"http": "127.0.0.1:0", "log_format": "json"}, "broker": {"dir": "elsewhere", "name": "own-name"}}'
    write_app(f'app = RocketApp("shop", settings={own})\n@app.subscribe("orders")\nasync def settle(message): ...\n')
    run = start("run", "app", "--workers", "2")
    http = Http(run)
    http.becomes("/ready", 200)
    assert http.metrics()["rocketapp_processes"] == 2
    assert (folder / "elsewhere/broker.json").exists()
    assert not (folder / ".rocketapp/broker.json").exists()
    run.says("%RETRY%shop@own-name")
    run.stops()
    # The lines of the parent and the broker as well, from the one on that says where it serves.
    lines = run.err.splitlines()
    assert all(line.startswith("{") for line in lines), run.err


@pytest.mark.parametrize(
    ("own", "limit"), [({"app": {"drain_timeout": 120.0}}, 120.0), ({"broker": {"dir": "b"}}, 30.0)]
)
async def test_a_drain_may_take_as_long_as_the_app_itself_says(own: dict[str, Any], limit: float) -> None:
    stop, spec = ProcessStop(1.0), {"settings": None, "overrides": {}, "log_config": None, "workers": 2}
    parent = Parent(spec, Settings(), stop)
    assert parent.drain_timeout == 30.0
    parent.adopt({"app": "shop", "settings": own, "place": "app.py:3"})
    assert parent.drain_timeout == limit
    assert stop.drain_timeout > limit


def test_an_address_of_the_app_itself_that_is_taken_is_one_line(start: Start, write_app: WriteApp) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        write_app(f'app = RocketApp("shop", settings={{"app": {{"http": "{address}"}}}})\n')
        run = start("run", "app", "--workers", "2")
        run.ends(2)
    assert run.err.endswith(
        f"rocketapp: code: app.http {address}: address already in use: choose another address or port\n"
    )
