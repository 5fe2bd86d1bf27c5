"""The fault runs on the embedded broker, and those of effects outside: small, or full with ROCKETAPP_FAULTS=full."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rocketapp.cli.commands.doctor import ask
from tests.faults import connections, effects, frames, kills, restarts, scenarios
from tests.faults.conftest import Tell
from tests.peers import toolchain
from tests.peers.clusters import Embedded, free_port
from tests.peers.java_client import Peer
from tests.peers.running_app import RunningApp
from tests.peers.waiting import wait_until

_READER = """
app = RocketApp("reader")

@app.subscribe("orders")
async def take(message: Message) -> None:
    mark("done", text=message.text())
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if scenarios.scale() is scenarios.FULL else 900)]


def test_nothing_acknowledged_is_lost_when_the_embedded_broker_is_killed(
    peer: Peer, tmp_path: Path, tell: Tell
) -> None:
    assert tell(scenarios.broker_kills(peer, tmp_path, scenarios.scale()))["lost"] == 0


def test_a_member_that_joins_after_the_embedded_broker_restarted_does_not_overlap(
    peer: Peer, tmp_path: Path, tell: Tell
) -> None:
    figures = tell(restarts.broker_pause(peer, tmp_path, (0.0,)))
    assert (figures["lost"], figures["order_violations"], figures["overlaps"]) == (0, 0, 0)


def test_whatever_frames_come_the_broker_goes_on_and_no_turn_is_long(tell: Tell) -> None:
    count = 1_000_000 if scenarios.scale() is scenarios.FULL else 5_000
    assert tell(frames.hostile_frames(count))["grown_mb"] < 64


def test_an_idle_connection_costs_the_broker_little(tmp_path: Path, tell: Tell) -> None:
    count = 10_000 if scenarios.scale() is scenarios.FULL else 500
    assert tell(connections.idle_connections(tmp_path, count))["kib_each"] <= 20


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_effect_with_its_mark_in_one_transaction_is_there_exactly_once(
    embedded: Embedded, tmp_path: Path, tell: Tell, kind: str
) -> None:
    figures = tell(effects.exactly_once(embedded, tmp_path, kind, effects.harm()))
    assert (figures["missing_effects"], figures["duplicate_effects"]) == (0, 0)


def test_a_kill_repeats_at_most_the_message_in_hand(embedded: Embedded, tmp_path: Path, tell: Tell) -> None:
    figures = tell(effects.marked_elsewhere(embedded, tmp_path, "redis", effects.harm()))
    assert figures["missing_effects"] == 0
    assert figures["duplicate_effects"] <= figures["kills"]


def test_the_outbox_loses_nothing_and_keeps_the_order_of_keys(embedded: Embedded, tmp_path: Path, tell: Tell) -> None:
    assert tell(effects.outbox(embedded, tmp_path, "postgresql", effects.harm()))["lost"] == 0


@pytest.mark.parametrize("count", [40, 150], ids=["that has less than was handled", "that has more"])
def test_a_running_member_reads_all_of_an_empty_broker_in_the_place_of_its_own_and_says_so(
    tmp_path: Path, count: int
) -> None:
    broker = Embedded(tmp_path / "broker")
    address = f"127.0.0.1:{free_port()}"
    member = RunningApp(tmp_path / "reader", _READER, broker.name_server, "--http", address)
    try:
        member.wait_for(
            lambda: "takes orders" in member.stderr or "orders does not exist" in member.stderr,
            within=20,
            what="it has joined",
        )
        effects.produce(broker.name_server, "orders", [f"old {number}" for number in range(100)])
        member.wait_for_count(100, within=60)
        # It sees the new broker when that one has got all its messages.
        member.process.send_signal(signal.SIGSTOP)
        broker.kill_broker()
        shutil.rmtree(broker.store)
        broker.start_again()
        fresh = [f"new {number}" for number in range(count)]
        effects.produce(broker.name_server, "orders", fresh)
        member.process.send_signal(signal.SIGCONT)
        member.wait_for_count(100 + count, within=60)
        assert sorted(member.texts()[100:]) == sorted(fresh)
        told = wait_until(
            lambda: [one for one in ask(address).findings if "its records are others" in one.text],
            within=10,
            what="/ready says it",
        )
        assert "orders@broker-a" in told[0].text
        assert "rocketapp offset reset reader orders --to first" in told[0].mend
        doctor = toolchain.rocketapp_command(
            "doctor", "app:app", "--http", address, "--name-server", broker.name_server
        )
        said = subprocess.run(
            doctor,
            cwd=tmp_path / "reader",
            env={**os.environ, "HANDLER_LOG": str(tmp_path / "doctor.jsonl")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (said.returncode, told[0].text in said.stdout) == (0, True), said
    finally:
        member.discard()
        broker.stop()


def test_an_app_that_is_refused_at_its_start_is_not_waited_for(embedded: Embedded, peer: Peer, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="the app ended while waiting"):
        kills.cut_forward(embedded, peer, tmp_path, end="kill", order="no_option=True")


def test_runs_that_are_terminated_leave_no_process_behind(tmp_path: Path) -> None:
    log, command = tmp_path / "runs.txt", ["marks", "--small", "--cluster", "embedded"]
    with log.open("wb") as out:
        runs = subprocess.Popen(
            [sys.executable, "-m", "tests.faults", *command], stdout=out, stderr=out, start_new_session=True
        )
    try:
        wait_until(lambda: "redis-server" in _commands_of(runs.pid), within=12, what=log.read_text, every=0.1)
        runs.terminate()
        assert runs.wait(60) == 128 + signal.SIGTERM
        assert _commands_of(runs.pid) == ""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(runs.pid, signal.SIGKILL)


def _commands_of(group: int) -> str:
    """What runs in this group of processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if os.getpgid(int(process.name)) == group:
                found.append((process / "cmdline").read_text())
    return "".join(found)
