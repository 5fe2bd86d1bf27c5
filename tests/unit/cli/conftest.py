"""A folder of its own for each test, and commands that end with it."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rocketapp.cli.main import run_command
from rocketapp.embedded.running import read_running
from tests.peers.commands import Commands
from tests.unit.cli.brokers import serving_in_memory
from tests.unit.cli.processes import SURROUNDINGS, Command, inherited

Start = Callable[..., Command]
Send = Callable[..., None]


class Ended(NamedTuple):
    """What became of a command that ran in this process."""

    code: int
    out: str
    err: str

    def ends(self, code: int) -> None:
        """As of a `Command`: the exit code is this one."""
        assert self.code == code, f"exit code {self.code}:\n{self.out}\n{self.err}"


Here = Callable[..., Ended]
HEARD = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


@pytest.fixture(autouse=True)
def apps_are_forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every test may have an `app.py` of its own: what it imported of its folder is not there for the next one."""
    before = set(sys.modules)
    yield
    folders = f"{tmp_path_factory.getbasetemp()}/"
    for name in sys.modules.keys() - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(folders):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def signals_are_heard() -> Iterator[None]:
    """Commands begin as in a terminal, also under `nohup`, and behind a command that ran in this process: at its end
    signals are ignored.
    """
    with contextlib.ExitStack() as stack:
        for number, handler in HEARD.items():
            stack.enter_context(inherited(number, handler))
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where commands run."""
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """`start("run", "app:app")`: a command in the folder. What a test leaves is ended, the last one first."""
    commands: list[Command] = []

    def start_one(*arguments: str, **options: Any) -> Command:
        commands.append(Command(folder, *arguments, **options))
        return commands[-1]

    yield start_one
    for command in reversed(commands):
        command.discard()


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """`here("doctor", "app")`: a command that ends by itself, in the folder and in this process.

    A process of its own takes most of a second. What it imports of the folder is forgotten after each.
    """

    def run_here(*arguments: str, environment: Mapping[str, str] | None = None) -> Ended:
        out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "path", sys.path.copy())
            for name, value in {**SURROUNDINGS, **(environment or {})}.items():
                patch.setenv(name, value)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = run_command([*arguments])
            for name, module in tuple(sys.modules.items()):
                if str(getattr(module, "__file__", "")).startswith(f"{folder}/"):
                    del sys.modules[name]
        return Ended(code, *(stream.detach().getvalue().decode() for stream in (out, err)))

    return run_here


@pytest.fixture
def memory_broker() -> Iterator[str]:
    """The address of a broker in memory that belongs to no run."""
    with serving_in_memory() as address:
        yield address


@pytest.fixture
def send(folder: Path) -> Send:
    """`send("orders", "one", at=address)`: the command in this process; a process of its own takes half a second.

    Without `at` it goes to the broker that serves the folder.
    """

    def send_it(*arguments: str, at: str = "") -> None:
        if not at:
            serving = read_running(folder / ".rocketapp")
            assert serving is not None
            at = serving.address
        Commands(at).run("send", *arguments)

    return send_it


@pytest.fixture
def write_app(folder: Path) -> Callable[[str], None]:
    """Write `app.py`; it may use `app`, `note(text)` and what rocketapp exports."""

    def write(source: str) -> None:
        (folder / "app.py").write_text(PRELUDE + source)

    return write


PRELUDE = """\
import asyncio, os, signal, threading
from rocketapp import *

app = RocketApp("shop")

def note(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

"""
