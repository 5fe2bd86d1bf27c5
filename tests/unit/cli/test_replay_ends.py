"""However a replay of dead letters is ended, its last line says how to go on."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.conftest import PRELUDE
from tests.unit.cli.processes import Command, wait_until

COUNT = 8
APP = """
@app.subscribe("bills", start="first", retries=0)
async def settle(message: Message) -> None:
    raise ValueError("not today")
"""


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder, and the surroundings in which its commands find a cluster with dead letters."""
    folder = tmp_path_factory.mktemp("letters")
    (folder / "app.py").write_text(PRELUDE + APP)
    broker = Command(folder, "broker", "--memory")
    try:
        named = {"ROCKETAPP_CLIENT__NAME_SERVER": broker.says(r"serving on (\S+)")[1]}
        Command(folder, "send", "bills", "x", "--count", str(COUNT), environment=named).ends(0)
        Command(folder, "run", "app", "--exit-when-idle", "0.1", environment=named).ends(0)
        yield folder, named
    finally:
        broker.discard()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_it_with_a_line_that_says_how_to_go_on(
    letters: tuple[Path, dict[str, str]], number: signal.Signals
) -> None:
    folder, environment = letters
    state = folder / f"{number.name}.json"
    words = ("dlq", "replay", "shop", "--to", "topic", "--state", state.name)
    replay = Command(folder, *words, "--rate", "0.2", environment=environment)
    wait_until(lambda: state.exists() and json.loads(state.read_text())["replayed"], "some are replayed")
    replay.signal(number)
    replay.ends(1)
    line = r"rocketapp: interrupted; (\d+) are replayed and (\d+) left: the same command goes on, from (\S+)\n"
    said = re.fullmatch(line, replay.err)
    assert said, replay.err
    assert int(said[1]) + int(said[2]) == COUNT
    assert said[3] == state.name
    rest = Command(folder, *words, "--rate", "0", environment=environment)
    rest.ends(0)
    assert rest.out.startswith(f"replayed {COUNT} dead letters of group shop")
