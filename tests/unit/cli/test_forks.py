"""Handlers that fork: the child does not consume as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Send, Start
from tests.unit.cli.processes import children_of, wait_until

WriteApp = Callable[[str], None]

FORKS = """
import subprocess, multiprocessing, sys

def child():
    note("target runs")

def work(message):
    if message.text() == "fork":
        if os.fork() == 0:
            note("child", os.getpid())
    elif message.text() == "exec":
        note("exec", subprocess.run([sys.executable, "-c", "print(42)"], capture_output=True).stdout.decode().strip())
    elif message.text() == "process":
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        note("process", process.exitcode)
    note("settled", message.text(), os.getpid())
"""
KINDS = {
    "async": '@app.subscribe("orders", start="first")\nasync def settle(message):\n    work(message)\n',
    "sync": '@app.subscribe("orders", start="first")\ndef settle(message):\n    work(message)\n',
    "orderly": '@app.subscribe("orders", start="first", orderly=True)\ndef settle(message):\n    work(message)\n',
    "polled": """
import asyncio
from rocketapp import Pull

@app.poll("orders", every=0.2, start="first")
async def settle(pull: Pull):
    for message in await pull(1):
        work(message)
    await asyncio.sleep(0.01)  # which a forked child cannot
""",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_child_that_comes_back_from_the_handler_ends_and_consumes_nothing(
    start: Start, send: Send, write_app: WriteApp, kind: str, memory_broker: str
) -> None:
    write_app(FORKS + KINDS[kind])
    bodies = ["one", "fork", "two", "exec", "process", "three"]
    for body in bodies:
        send("orders", body, "--order-key", "k", at=memory_broker)
    run = start("run", "app:app", "--name-server", memory_broker, fresh=kind == "async")
    run.says(r"settled three")
    child = int(run.says(r"child (\d+)")[1])
    wait_until(lambda: child not in children_of(run.process.pid) or _is_zombie(child), "the child has ended")
    send("orders", "last", at=memory_broker)
    run.says("settled last")
    run.stops()
    settled = [line.split()[1:] for line in run.out.splitlines() if line.startswith("settled")]
    by_parent = sorted(body for body, pid in settled if pid == str(run.process.pid))
    assert by_parent == sorted([*bodies, "last"])
    assert {body for body, pid in settled if pid != str(run.process.pid)} <= {"fork"}
    assert "exec 42" in run.out and "target runs" in run.out and "process 0" in run.out
    assert run.summary == (7, 0, 0, 0)
    assert "retry in" not in run.err and "no running event loop" not in run.err


ASKS = """
@app.poll("orders", every=0.2, start="first")
def settle(pull: SyncPull):
    for message in pull(1):
        if (child := os.fork()) == 0:
            note("pulled", pull(1))
            for call in (app.publish_sync, app.request_sync):
                try:
                    call("orders", "child")
                except SetupError as error:
                    note("refused", error)
            os._exit(0)
        os.waitpid(child, 0)
        note("settled", message.text())
"""


def test_a_forked_child_that_pulls_and_publishes_is_told_at_once(
    start: Start, send: Send, write_app: WriteApp, memory_broker: str
) -> None:
    write_app(ASKS)
    for body in ("one", "two"):
        send("orders", body, "--order-key", "k", at=memory_broker)
    run = start("run", "app:app", "--name-server", memory_broker)
    run.says("settled two")
    run.stops()
    assert run.out.count("pulled []") == 2
    assert run.out.count("nothing can be published; a forked process makes a client of its own") == 4
    assert run.summary == (2, 0, 0, 0)


def _is_zombie(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "Z"
