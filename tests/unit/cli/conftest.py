"""A folder of its own for each test, and commands that end with it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketapp.embedded.running import read_running
from tests.peers.commands import Commands
from tests.unit.cli.processes import Command, inherited

Start = Callable[..., Command]
Send = Callable[..., None]


@pytest.fixture(autouse=True)
def hangups_are_heard() -> Iterator[None]:
    """Commands begin as in a terminal, also where the tests themselves run under `nohup`."""
    with inherited(signal.SIGHUP, signal.SIG_DFL):
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where commands run."""
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """`start("run", "app:app")`: a command in the folder. What a test leaves is ended, the last one first."""
    commands: list[Command] = []

    def start_one(*arguments: str, **options: dict[str, str]) -> Command:
        commands.append(Command(folder, *arguments, **options))
        return commands[-1]

    yield start_one
    for command in reversed(commands):
        command.discard()


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
