"""`rocketapp run --http`: probes, metrics and the page of a real process, and of several."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.asking import Http
from tests.unit.cli.conftest import Start
from tests.unit.cli.processes import Command, wait_until

WriteApp = Callable[[str], None]
FAST = {"ROCKETAPP_APP__READY_PATIENCE": "0.5"}
APP = """
@app.on_startup
async def first():
    await app.publish("orders", "0")

@app.subscribe("orders", start="first")
async def settle(message):
    if message.text() == "bad":
        raise DeadLetter("it is bad")
    note("settled", message.text())
"""
SLOW_START = """
@app.on_startup
async def wait():
    note("waits")
    while not os.path.exists("go"):
        await asyncio.sleep(0.02)
"""


@pytest.fixture
def run(start: Start, write_app: WriteApp) -> Callable[..., Command]:
    def run_app(*arguments: str, source: str = APP) -> Command:
        write_app(source)
        return start("run", "app", "--http", "127.0.0.1:0", *arguments, environment=FAST)

    return run_app


def send(start: Start, body: str, count: int = 1) -> None:
    start("send", "orders", body, "--count", str(count)).ends(0)


def test_it_is_alive_at_once_ready_when_it_consumes_and_unready_while_it_drains(
    run: Callable[..., Command], start: Start, folder: Path
) -> None:
    one = run(source=SLOW_START + APP.replace('    note("settled"', '    await asyncio.sleep(2)\n    note("settled"'))
    http = Http(one)
    one.says("waits")
    assert http.get("/health") == (200, "alive\n")
    assert http.get("/ready") == (503, "not ready\nthe app is starting\n")
    (folder / "go").touch()
    http.becomes("/ready", 200)
    send(start, "1")
    wait_until(lambda: http.metrics().get("rocketapp_queue_unfinished"), "a message in hand")
    one.signal(signal.SIGTERM)
    http.becomes("/ready", 503, "draining")
    one.ends(0)


def test_metrics_and_the_page_say_what_became_of_messages(run: Callable[..., Command], start: Start) -> None:
    one = run()
    http = Http(one)
    http.becomes("/ready", 200)
    send(start, "bad")
    wait_until(lambda: http.metrics().get("rocketapp_handler_dead_letters_total"), "a dead letter")
    page = http.becomes("/", 200, "dead letter in %DLQ%shop: app:settle at orders")
    assert "it is bad" in page.text
    assert http.metrics()["rocketapp_handler_done_total"] == 1
    one.stops()


def test_an_operator_pauses_and_resumes_a_topic(run: Callable[..., Command], start: Start) -> None:
    one = run()
    http = Http(one)
    http.becomes("/ready", 200)
    assert http.post("/pause", topic="orders", group="shop").status == 303
    http.becomes("/ready", 503, "shop: orders@.*stands still: paused: by an operator")
    send(start, "later", 4)
    assert http.post("/pause", topic="odrers", group="shop").status == 404
    assert "settled later" not in one.out
    assert http.post("/resume", topic="orders", group="shop").status == 303
    wait_until(lambda: one.out.count("settled later") == 4, "all of them")
    http.becomes("/ready", 200)
    one.stops()


def test_workers_are_summed_and_what_a_dead_one_did_stays_counted(run: Callable[..., Command], start: Start) -> None:
    one = run("--workers", "2")
    http = Http(one)
    http.becomes("/ready", 200)
    send(start, "early", 4)
    # Each worker publishes one at its start.
    wait_until(lambda: http.metrics().get("rocketapp_handler_done_total") == 6, "all are done")
    assert http.metrics()["rocketapp_processes"] == 2
    assert http.post("/pause", topic="orders", group="shop").status == 303
    http.becomes("/", 200, "paused: by an operator")
    victim = int(one.says(r"worker 1 started, process (\d+)")[1])
    os.kill(victim, signal.SIGKILL)
    http.becomes("/ready", 503, "worker 1 has died and is started again")
    one.says(r"(?s)worker 1 started.*worker 1 started")
    wait_until(lambda: http.metrics().get("rocketapp_processes") == 2, "it is back")
    assert http.metrics()["rocketapp_handler_done_total"] == 6
    http.becomes("/", 200, "paused: by an operator")
    assert http.post("/resume", topic="orders", group="shop").status == 303
    http.becomes("/ready", 200)
    # What the new process has published; and what the dead one had not committed comes again.
    wait_until(lambda: http.metrics()["rocketapp_handler_done_total"] > 6, "it goes on")
    one.stops()


def test_the_parent_names_the_worker_whose_loop_is_blocked(run: Callable[..., Command], start: Start) -> None:
    one = run("--workers", "2", source=APP + BLOCKS)
    http = Http(one)
    http.becomes("/ready", 200)
    send(start, "block")
    found = http.becomes("/health", 503, r"worker \d: app:stop has blocked the event loop for \d+ s at app\.py:\d+")
    assert "the event loop does not run" in found.text
    http.becomes("/health", 200)
    http.becomes("/ready", 200)
    one.stops()


BLOCKS = """
import time

@app.subscribe("orders", group="other", start="first")
async def stop(message):
    if message.text() == "block":
        time.sleep(6)
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_address_that_is_taken_or_none_is_one_line(start: Start, write_app: WriteApp, workers: str) -> None:
    write_app(APP)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        one = start("run", "app", "--workers", workers, "--http", address)
        one.ends(2)
    assert f"--http {address}: address already in use: choose another address or port" in one.err
    other = start("run", "app", "--workers", workers, environment={"ROCKETAPP_APP__HTTP": "8080"})
    other.ends(2)
    assert "app.http 8080: write host:port, as in 127.0.0.1:8080" in other.err
    assert "Traceback" not in one.err + other.err
