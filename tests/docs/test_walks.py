"""The README's quick start and the tutorial, walked as a reader would: what they promise is what happens."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, commands
from tests.unit.cli.processes import Command

README, TUTORIAL, INDEX = ROOT / "README.md", ROOT / "docs/tutorial.md", ROOT / "docs/index.md"
_ITS_OWN = (
    r"^\d{4}-\S+ \S+ ",
    r"\b[0-9A-F]{32}\b",
    r"(?<=127\.0\.0\.1:)\d+",
    r"(?<=process )\d+",
    r"(?<=orders@broker-a:)\d",
)
"""What is different in each session: times, message ids, ports, processes, the queue that a message gets."""


def lines_of(said: str) -> Counter[str]:
    """What was printed, without what each session has of its own."""
    lines = [line for line in said.splitlines() if line and not line.startswith(("# ", "$ "))]
    return Counter(reduce(lambda line, own: re.sub(own, "", line), _ITS_OWN, line) for line in lines)


class Reader:
    """A reader with a folder and two terminals."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._commands: list[Command] = []

    def write(self, page: Path, number: int) -> None:
        """Put the page's n-th Python block into app.py."""
        (self._folder / "app.py").write_text([one for one in blocks(page) if one.language == "python"][number].text)

    def types(self, page: Path, beginning: str) -> Command:
        """The first of the page's commands that begins so."""
        lines = [text.removeprefix(".venv/bin/") for _, text in commands(page)]
        return self.opens(f"$ {next(line for line in lines if line.startswith(beginning))}")

    def opens(self, session: str) -> Command:
        """A terminal, in which the command of a session is typed."""
        words = shlex.split(next(line for line in session.splitlines() if line.startswith("$ "))[2:])
        self._commands.append(Command(self._folder, *words[1:]))
        return self._commands[-1]

    def runs(self, words: str) -> str:
        """What another program says that ends well."""
        command = [sys.executable, "-m", *shlex.split(words)]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def leaves(self) -> None:
        for command in reversed(self._commands):
            command.discard()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.leaves()


def test_the_quick_start(reader: Reader) -> None:
    reader.write(README, 0)
    run = reader.types(README, "rocketapp run app:app")
    run.says("embedded broker serves on")
    run.says("shop started")
    reader.types(README, "rocketapp send orders").ends(0)
    run.says("paid order 1\n")
    run.stops()
    assert run.out.splitlines()[-1] == next(one.text for one in blocks(README) if one.language == "text").strip()


def test_the_session_on_the_first_page(reader: Reader) -> None:
    """Typed again, each line of it comes again, but for times, ids, ports and the queue; the log may say more."""
    reader.write(INDEX, 0)
    first, second = next(one.text for one in blocks(INDEX) if one.text.startswith("# first")).split("\n\n")
    run = reader.opens(first)
    run.says("shop started")
    send = reader.opens(second)
    send.ends(0)
    run.says("paid order 1\n")
    run.signal(signal.SIGINT)
    run.ends(0)
    assert lines_of(first) - lines_of(f"{run.out}{run.err}") == Counter(["^C"])
    assert lines_of(second) == lines_of(send.out)


def test_the_first_message_comes_once_and_its_topic_has_four_queues_for_four_workers(reader: Reader) -> None:
    reader.write(TUTORIAL, 0)
    run = reader.types(TUTORIAL, "rocketapp run app:app")
    run.says("shop started")
    reader.types(TUTORIAL, 'rocketapp send orders "order 1"').ends(0)
    run.says("settling order 1\n")
    run.stops()
    again = reader.types(TUTORIAL, "rocketapp run app:app")
    again.says("group shop takes orders")
    again.stops()
    assert again.summary == (0, 0, 0, 0)
    reader.write(TUTORIAL, 7)
    workers = reader.types(TUTORIAL, "rocketapp run app:app --workers 4")
    workers.says("(?s)" + "group shop takes orders.*" * 4)
    reader.types(TUTORIAL, 'rocketapp send orders "order 3" --count 8').ends(0)
    workers.says("(?s)(process [0-9]+ settles order 3.*){8}")
    settled = Counter(re.findall("process ([0-9]+) settles order 3", workers.out))
    assert sorted(settled.values()) == [2, 2, 2, 2]
    workers.stops()


def test_typed_payloads_and_the_dead_letter(reader: Reader) -> None:
    reader.write(TUTORIAL, 1)
    run = reader.types(TUTORIAL, "rocketapp run app:app")
    run.says("shop started")
    reader.types(TUTORIAL, """rocketapp send orders '{"id": "1\"""").ends(0)
    run.says("settling 1: 5, attempt 1\n")
    reader.types(TUTORIAL, """rocketapp send orders '{"id": "2\"""").ends(0)
    run.says("dead letter in %DLQ%shop")
    tail = reader.types(TUTORIAL, "rocketapp tail %DLQ%shop")
    tail.ends(0)
    assert '{"id": "2"}' in tail.out
    run.stops()
    assert run.summary == (1, 0, 1, 0)


def test_tags(reader: Reader) -> None:
    reader.write(TUTORIAL, 3)
    run = reader.types(TUTORIAL, "rocketapp run app:app")
    run.says("shop started")
    for number in (1, 2, 3):
        reader.types(TUTORIAL, f'rocketapp send parcels "parcel {number}"').ends(0)
    for text in ("shipping parcel 1", "searching parcel 2", "something else: weighed parcel 3"):
        run.says(text)  # a thread and the loop may share a line
    run.stops()


def test_the_shown_tests_pass_under_pytest(reader: Reader) -> None:
    reader.write(TUTORIAL, 6)
    words = next(text for _, text in commands(TUTORIAL) if text.startswith("pytest "))
    assert "2 passed" in reader.runs(words)


def test_publishing_at_the_start(reader: Reader) -> None:
    reader.write(TUTORIAL, 5)
    run = reader.types(TUTORIAL, "rocketapp run app:app")
    run.says("hours: the shop is open\n")
    run.stops()
