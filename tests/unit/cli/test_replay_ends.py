"""However a replay of dead letters is ended, the same command goes on."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.commands import Commands
from tests.unit.cli.conftest import PRELUDE
from tests.unit.cli.processes import Command, wait_until

COUNT = 8
APP = """
@app.subscribe("bills", start="first", retries=0)
async def settle(message: Message) -> None:
    raise ValueError("not today")
"""


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder, and the address of a cluster with dead letters."""
    folder = tmp_path_factory.mktemp("letters")
    (folder / "app.py").write_text(PRELUDE + APP)
    broker = Command(folder, "broker", "--memory")
    try:
        address = broker.says(r"serving on (\S+)")[1]
        Commands(address).run("send", "bills", "x", "--count", str(COUNT))
        Command(folder, "run", "app", "--exit-when-idle", "0.1", "--name-server", address).ends(0)
        yield folder, address
    finally:
        broker.discard()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_the_same_command_goes_on_and_ctrl_c_ends_it_with_a_line_that_says_so(
    letters: tuple[Path, str], number: signal.Signals
) -> None:
    folder, address = letters
    state = folder / f"{number.name}.json"
    words = ("dlq", "replay", "shop", "--state")
    replay = Command(folder, *words, state.name, "--rate", "0.2", "--name-server", address)
    wait_until(lambda: state.exists() and json.loads(state.read_text())["replayed"], "some are replayed")
    replay.signal(number)
    replay.ends(1 if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        line = r"rocketapp: interrupted; (\d+) are replayed and (\d+) left: the same command goes on, from (\S+)\n"
        said = re.fullmatch(line, replay.err)
        assert said, replay.err
        assert int(said[1]) + int(said[2]) == COUNT
        assert said[3] == state.name
    rest = Commands(address).run(*words, str(state), "--rate", "0")
    assert rest.out.startswith(f"replayed {COUNT} dead letters of group shop")
