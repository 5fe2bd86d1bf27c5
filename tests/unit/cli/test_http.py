"""`rocketapp run --http`: probes, metrics and the page of a real process, and of several."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketapp.app.settings import Settings
from rocketapp.cli.processes.worker import operation_of
from rocketapp.config.app import AppConfig
from tests.unit.cli.asking import Http
from tests.unit.cli.brokers import serving_in_memory
from tests.unit.cli.conftest import Send, Start
from tests.unit.cli.processes import Command, wait_until

WriteApp = Callable[[str], None]
FAST = {"ROCKETAPP_APP__READY_PATIENCE": "0.5"}
APP = """
import time

@app.on_startup
async def first():
    note("waits")
    while not os.path.exists("go"):
        await asyncio.sleep(0.02)
    await app.publish("orders", "first")

@app.subscribe("orders", start="first")
async def settle(message):
    if message.text() == "bad":
        raise DeadLetter("it is bad")
    if message.text() == "slow":
        await asyncio.sleep(2)
    if message.text() == "block":
        time.sleep(6)
    note("settled", message.text())
"""


@pytest.fixture
def run(start: Start, write_app: WriteApp) -> Callable[..., Command]:
    def run_app(*arguments: str) -> Command:
        write_app(APP)
        return start("run", "app", "--http", "127.0.0.1:0", *arguments, environment=FAST)

    return run_app


def test_an_app_is_watched_and_operated_from_its_start_to_its_drain(
    run: Callable[..., Command], start: Start, send: Send, folder: Path
) -> None:
    one = run()
    http = Http(one)
    one.says("waits")
    assert http.get("/health") == (200, "alive\n")
    assert http.get("/ready") == (503, "not ready\nthe app is starting\n")
    (folder / "go").touch()
    http.becomes("/ready", 200)

    send("orders", "bad")
    page = http.becomes("/", 200, "it is bad")
    identity = re.search(r"app:settle at orders, message (\w+), attempt 1", page.text)
    assert identity
    wait_until(lambda: http.metrics().get("rocketapp_handler_done_total") == 1, "the first one is done")
    assert http.metrics()["rocketapp_handler_dead_letters_total"] == 1
    assert http.metrics()["messaging_process_duration_seconds_count"] == 2

    found = http.post("/replay", group="shop", id=identity[1])
    assert (found.status, "of group shop" in found.text, "was replayed" in found.text) == (200, True, True)
    wait_until(lambda: http.metrics()["rocketapp_handler_dead_letters_total"] == 2, "it fails again")
    again = start("dlq", "replay", "shop", "--only", identity[1])
    again.ends(0)
    assert "was replayed" in again.out

    counted = http.metrics()["rocketapp_handler_done_total"]
    assert "done" in http.post("/try", handler="app:settle orders shop", tag="", body="tried").text
    assert "dead letter: it is bad" in http.post("/try", handler="app:settle orders shop", tag="", body="bad").text
    one.says("settled tried")
    assert http.metrics()["rocketapp_handler_done_total"] == counted

    assert http.post("/pause", topic="orders", group="shop").status == 303
    assert http.post("/pause", topic="odrers", group="shop").status == 404
    http.becomes("/ready", 503, "shop: orders@.*stands still: paused: by an operator")
    send("orders", "slow")
    assert "settled slow" not in one.out
    assert http.post("/resume", topic="orders", group="shop").status == 303
    http.becomes("/ready", 200)
    wait_until(lambda: http.metrics()["rocketapp_queue_unfinished"], "a message in hand")
    one.signal(signal.SIGTERM)
    http.becomes("/ready", 503, "draining")
    one.ends(0)
    assert "settled slow" in one.out


def test_a_dead_letter_is_replayed_in_the_cluster_where_it_is(
    start: Start, send: Send, write_app: WriteApp, folder: Path
) -> None:
    with serving_in_memory() as here, serving_in_memory() as there:
        write_app(f"""
app = RocketApp("shop", clusters={{"eu": "{there}"}})

@app.subscribe("orders", start="first")
async def settle(message):
    raise DeadLetter("it is bad")

app.subscribe("orders", start="first", cluster="eu")(settle)
""")
        one = start("run", "app", "--http", "127.0.0.1:0", "--name-server", here)
        http = Http(one)
        for address in (there, here):
            send("orders", "bad", at=address)
        both = r"(?s)app:settle at orders, message (\w+),.*app:settle at orders, message (\w+),"
        page = http.becomes("/", 200, both)
        identities = re.search(both, page.text)
        assert identities
        for identity in identities.groups():
            found = http.post("/replay", group="shop", id=identity)
            assert (found.status, "was replayed" in found.text) == (200, True), found.text
        for name in (".rocketapp.replay-shop.json", ".rocketapp.replay-shop.eu.json"):
            assert (folder / name).exists()
        one.signal(signal.SIGTERM)
        one.ends(0)


def test_workers_are_summed_and_each_that_is_blocked_or_dead_is_named(
    run: Callable[..., Command], start: Start, send: Send, folder: Path
) -> None:
    (folder / "go").touch()
    one = run("--workers", "2")
    http = Http(one)
    http.becomes("/ready", 200)
    send("orders", "early", "--count", "4")
    # Each worker publishes one at its start.
    wait_until(lambda: http.metrics().get("rocketapp_handler_done_total") == 6, "all are done")
    assert http.metrics()["rocketapp_processes"] == 2

    send("orders", "block")
    found = http.becomes("/health", 503, r"worker \d: app:settle has blocked the event loop for \d+ s at app\.py:\d+")
    assert "the event loop does not run" in found.text
    http.becomes("/health", 200)

    assert http.post("/pause", topic="orders", group="shop").status == 303
    http.becomes("/", 200, "paused: by an operator")
    os.kill(int(one.says(r"worker 1 started, process (\d+)")[1]), signal.SIGKILL)
    http.becomes("/ready", 503, "worker 1 has died and is started again")
    wait_until(lambda: http.metrics().get("rocketapp_processes") == 2, "it is back")
    # What the dead one did stays counted, and the new one is paused as well.
    assert http.metrics()["rocketapp_handler_done_total"] == 7
    assert http.metrics()["messaging_process_duration_seconds_count"] == 7
    assert http.post("/resume", topic="orders", group="shop").status == 303
    http.becomes("/ready", 200)
    wait_until(lambda: http.metrics()["rocketapp_handler_done_total"] > 7, "it goes on")
    one.stops()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_address_that_is_taken_is_one_line(start: Start, write_app: WriteApp, workers: str) -> None:
    write_app(APP)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        one = start("run", "app", "--workers", workers, "--http", address)
        one.ends(2)
    assert f"--http {address}: address already in use: choose another address or port" in one.err
    assert "Traceback" not in one.err


def test_what_is_not_an_address_is_one_line(start: Start, write_app: WriteApp) -> None:
    write_app(APP)
    one = start("run", "app", environment={"ROCKETAPP_APP__HTTP": "8080"})
    one.ends(2)
    assert "app.http 8080: write host:port, as in 127.0.0.1:8080" in one.err


@pytest.mark.parametrize(
    ("environment", "given", "are_measured"),
    [
        ("development", None, True),
        ("production", None, False),
        ("production", True, True),
        ("development", False, False),
    ],
)
def test_durations_are_measured_in_development_and_where_they_are_asked_for(
    environment: str, given: bool | None, are_measured: bool
) -> None:
    settings = Settings(app=AppConfig(http="127.0.0.1:0", http_durations=given), environment=environment)
    operation = operation_of(settings, lambda report: None)
    assert operation is not None
    assert (operation.publish_wrapper() is not None) is are_measured
