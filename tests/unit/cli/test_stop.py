"""Signals, in a process of their own: the first drains, the second cuts, and a stuck process ends all the same."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.processes import LIMIT, inherited

SCRIPT = """
import asyncio, logging, sys, time
from rocketapp.cli.runtime import run_in_loop
from rocketapp.cli.processes.stop import ProcessStop

logging.basicConfig(stream=sys.stdout, level=logging.ERROR, format="%(message)s")
stop = ProcessStop(float(sys.argv[1]), last_words=lambda: print("last words", flush=True))

async def main():
    stop.listen()
    stop.tell()
    print("ready", flush=True)
    await stop.requested.wait()
    print("draining", flush=True)
    if sys.argv[2] == "blocked":
        while True:
            time.sleep(0.1)
    if sys.argv[2] == "drain":
        return
    await stop.cut.wait()
    print("cut", flush=True)

run_in_loop(main(), sys.argv[3])
stop.finished()
print("end", flush=True)
"""

Process = subprocess.Popen[str]
DRAIN = 30.0
"""Seconds of a drain that is to end before: a process that ends within them was not ended by their limit."""

BLOCKED = (
    f"the event loop is blocked at <string>:{SCRIPT.splitlines().index('            time.sleep(0.1)') + 1} in main"
)


class Script:
    """One run of it."""

    def __init__(self, drain_timeout: float, behaviour: str, loop: str) -> None:
        self.drain_timeout = drain_timeout
        self.process: Process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(drain_timeout), behaviour, loop], stdout=subprocess.PIPE, text=True
        )
        self.expect("ready")
        self.signalled: list[float] = []

    def signal(self, number: signal.Signals) -> None:
        self.signalled.append(time.monotonic())
        self.process.send_signal(number)

    @property
    def since_signal(self) -> float:
        """Seconds since the first signal, with which the drain begins."""
        return time.monotonic() - self.signalled[0]

    def expect(self, line: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == line

    def ends(self, code: int) -> None:
        assert self.process.wait(LIMIT) == code
        assert self.process.stdout is not None
        self.process.stdout.close()

    def ends_before_the_drain_timeout(self, code: int) -> None:
        self.ends(code)
        assert self.since_signal < self.drain_timeout


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_drains(loop: str, number: signal.Signals) -> None:
    script = Script(DRAIN, "drain", loop)
    script.signal(number)
    script.expect("draining")
    script.expect("end")
    script.ends_before_the_drain_timeout(0)


def test_the_second_signal_cuts(loop: str) -> None:
    script = Script(DRAIN, "waits for the cut", loop)
    script.signal(signal.SIGTERM)
    script.expect("draining")
    script.signal(signal.SIGINT)
    script.expect("cut")
    script.expect("end")
    script.ends_before_the_drain_timeout(0)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_that_closes_does_not_cut_the_drain(loop: str, first: signal.Signals) -> None:
    script = Script(DRAIN, "waits for the cut", loop)
    script.signal(first)
    script.expect("draining")
    script.signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        script.process.wait(0.3)
    script.signal(signal.SIGTERM)
    if first == signal.SIGHUP:
        with pytest.raises(subprocess.TimeoutExpired):
            script.process.wait(0.3)
        script.signal(signal.SIGTERM)
    script.expect("cut")
    script.expect("end")
    script.ends_before_the_drain_timeout(0)


def test_what_ignores_a_hangup_goes_on_ignoring_it(loop: str) -> None:
    with inherited(signal.SIGHUP, signal.SIG_IGN):
        script = Script(DRAIN, "drain", loop)
    script.signal(signal.SIGHUP)
    script.signal(signal.SIGTERM)
    script.expect("draining")
    script.expect("end")
    script.ends_before_the_drain_timeout(0)


def test_two_signals_at_once_are_one_request(loop: str) -> None:
    """A supervisor may signal the process and its group; `timeout` of coreutils does."""
    script = Script(DRAIN, "waits for the cut", loop)
    script.signal(signal.SIGSTOP)
    script.signal(signal.SIGINT)
    script.signal(signal.SIGTERM)
    script.signal(signal.SIGCONT)
    script.expect("draining")
    with pytest.raises(subprocess.TimeoutExpired):
        script.process.wait(0.3)
    script.signal(signal.SIGTERM)
    script.expect("cut")
    script.expect("end")
    script.ends_before_the_drain_timeout(0)


def test_a_blocked_loop_is_ended_after_a_second_signal(loop: str) -> None:
    script = Script(DRAIN, "blocked", loop)
    script.signal(signal.SIGTERM)
    script.expect("draining")
    script.signal(signal.SIGTERM)
    script.expect(BLOCKED)
    script.expect("last words")
    script.ends_before_the_drain_timeout(1)


def test_a_blocked_loop_is_ended_after_the_drain_timeout(loop: str) -> None:
    script = Script(0.2, "blocked", loop)
    script.signal(signal.SIGTERM)
    script.expect("draining")
    script.expect(BLOCKED)
    script.expect("last words")
    script.ends(1)
    assert script.since_signal >= script.drain_timeout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_drain_while_the_app_is_loaded_ends_as_a_drain_does(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "rocketapp", "run", "slow"]
    with (
        inherited(number, signal.SIG_DFL),
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(number)
        assert process.stdout.read() == "handled=0 retried=0 dead_lettered=0 unmatched=0\n"
        assert process.wait(10) == 0
