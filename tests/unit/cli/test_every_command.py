"""The rules that every command keeps. A new command is found by itself, and needs a sample of its use here."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from rocketapp.cli.main import COMMANDS, cli, run_command
from tests.cases import cases
from tests.peers.commands import Commands
from tests.unit.cli.conftest import PRELUDE
from tests.unit.cli.processes import Command

PRINTS_NO_DATA = {
    "run": "logs, and one line at its end that scripts read as it is",
    "broker": "its address, as text",
    "new": "what it made, for a person",
    "docs": "a document that has a format of its own",
}
"""Commands without --json, and what they print instead."""
SAMPLES = {
    "send": "orders hello",
    "tail": "orders --from first --count 1",
    "routes": "sample:app",
    "check": "sample:app",
    "docs": "sample:app",
    "config": "sample:app",
    "doctor": "sample:app",
    "plugins": "sample:app",
    "topic list": "",
    "topic show": "orders",
    "topic create": "fresh-{number}",
    "group create": "group{number}",
    "group list": "",
    "group show": "sample",
    "offset show": "sample",
    "offset reset": "sample orders --to last --dry-run",
    "dlq list": "sample",
    "dlq show": "sample {place}",
    "dlq try": "sample:app {place}",
    "dlq replay": "sample --again --rate 0",
    "message": "--key order-17 --topic orders",
}
"""What each is called with: everything but what serves, what waits for a slave, and what makes files."""
RUNS_ON = {"run", "broker", "broker promote", "new"}
NUMBERS = itertools.count()
"""So that no two topics have one name."""
APP = """
app = RocketApp("sample")

@app.subscribe("orders", start="first", retries=0)
async def settle(message: Message) -> None:
    raise ValueError("日本語のメッセージ")
"""


def leaves(group: click.Group, *words: str) -> Iterator[tuple[str, click.Command]]:
    """Every command with its words, in whatever group it is; a group that is a command as well is among them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from leaves(found, *words, name)
        if not isinstance(found, click.Group) or found.invoke_without_command:
            yield " ".join((*words, name)), found


EVERY = dict(leaves(cli))
every = cases("name", EVERY)
sampled = cases("name", [name for name in EVERY if name not in RUNS_ON])


class Ended(NamedTuple):
    """What became of one command line."""

    code: int
    out: str
    err: str


class Place:
    """A folder with an app, and a cluster with messages, a group and a dead letter."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def words(self, name: str) -> list[str]:
        values = {"number": next(NUMBERS), "place": "broker-a:0:0"}
        return [*name.split(), *SAMPLES[name].format(**values).split()]

    def run(self, *words: str) -> Ended:
        """In this process."""
        self._capsys.readouterr()
        code = run_command([*words])
        return Ended(code, *self._capsys.readouterr())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("sample")
    (folder / "sample.py").write_text(PRELUDE + APP)
    broker = Command(folder, "broker", "--memory")
    try:
        address = broker.says(r"serving on (\S+)")[1]
        named = {"ROCKETAPP_CLIENT__NAME_SERVER": address}
        Commands(address).run("send", "orders", "hello", "--key", "order-17")
        Command(folder, "run", "sample:app", "--exit-when-idle", "0.1", environment=named).ends(0)
        yield folder, address
    finally:
        broker.discard()


@pytest.fixture
def place(cluster: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Place:
    folder, address = cluster
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", address)
    monkeypatch.setenv("TERM", "xterm-256color")
    return Place(capsys)


def has_json(name: str) -> bool:
    return any("--json" in one.opts for one in EVERY[name].params)


def documents(text: str) -> list[Any]:
    """One document, or one on each line."""
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


@every
def test_its_help_says_what_it_does_and_has_an_example_that_it_takes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([*name.split(), "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    example = (EVERY[name].epilog or "").removeprefix("Example: ")
    assert example.startswith(f"rocketapp {name}")
    assert f"Example: {example}" in shown
    with EVERY[name].make_context(name, shlex.split(example)[1 + len(name.split()) :]) as context:
        assert context.params


@pytest.mark.parametrize("group", ["", "broker", "topic", "group", "offset", "dlq"])
def test_what_a_list_of_commands_says_of_each_is_whole(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([*group.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Commands:" in shown
    assert "..." not in shown.partition("Commands:")[2]


@every
def test_it_prints_json_when_it_prints_data(name: str) -> None:
    assert has_json(name) is (name not in PRINTS_NO_DATA)


@every
def test_an_unknown_option_is_one_line_and_exit_code_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([*name.split(), "--no-such-option"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "--no-such-option" in err and err.endswith(f": see rocketapp {name} --help\n")
    assert run_command([*name.split(), "--no-such-option", "--json"]) == 2
    out, err = capsys.readouterr()
    said = json.loads(err)
    assert (out, said["exit_code"]) == ("", 2)
    assert "--no-such-option" in said["error"]


@every
def test_the_cluster_is_named_by_the_same_option(name: str) -> None:
    for one in EVERY[name].params:
        if "--name-server" in one.opts:
            assert isinstance(one, click.Option)
            assert one.metavar == "H:P[;H:P]"
            assert (one.help or "").startswith("The cluster. Default: the settings', or ")


@sampled
def test_what_is_piped_has_no_colours_and_json_is_json(name: str, place: Place) -> None:
    plain = place.run(*place.words(name))
    assert plain.code in (0, 1), plain
    assert plain.out
    assert "\x1b" not in plain.out + plain.err
    if has_json(name):
        found = place.run(*place.words(name), "--json")
        assert found.code == plain.code, found
        assert documents(found.out)


@sampled
def test_a_reader_that_goes_away_is_no_failure(
    name: str, place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    state = ("--state", str(tmp_path / "pipe.json")) if name == "dlq replay" else ()
    with monkeypatch.context() as patch, os.fdopen(writing, "w") as unread:
        patch.setattr(sys, "stdout", unread)
        ended = place.run(*place.words(name), *state)
        unread.flush()  # as the interpreter does at its end
    assert ended.code == place.run(*place.words(name)).code, ended.err
    assert "Traceback" not in ended.err
    assert "BrokenPipe" not in ended.err and "Broken pipe" not in ended.err


@pytest.mark.parametrize("words", [["--help"], ["topic", "--help"], ["--version"]])
def test_nor_is_it_in_a_process_of_its_own(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "rocketapp", *words], stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_list_of_commands_says_of_each_what_its_own_help_does() -> None:
    context = click.Context(cli)
    own = {name: command for name in COMMANDS if (command := cli.get_command(context, name)) is not None}
    assert {name: text for name, (_, text) in COMMANDS.items()} == {
        name: command.get_short_help_str(limit=200) for name, command in own.items()
    }


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["rum"], "'run'"),
        (["topics"], "'topic'"),
        (["topic", "lst"], "'list'"),
        (["dlq", "reply"], "'replay'"),
        (["send", "--tagg", "x", "orders", "y"], "'--tag'"),
        (["offset", "reset", "--dryrun", "g", "t"], "'--dry-run'"),
    ],
    ids=" ".join,
)
def test_what_was_meant_is_named(words: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(words) == 2
    assert f"id you mean {meant}?" in capsys.readouterr().err


@cases(
    "words, meant",
    [
        ("topic show ordrs", "did you mean 'orders'?"),
        ("group show sampel", "did you mean 'sample'?"),
        ("offset show sampel", "did you mean 'sample'?"),
        ("offset reset sample ordrs --to first", "did you mean 'orders'?"),
        ("offset reset sampel orders --to last --dry-run", "did you mean 'sample'?"),
        ("dlq list sampel", "did you mean 'sample'?"),
        ("dlq replay sampel", "did you mean 'sample'?"),
        ("topic show nothing-like-it", "see rocketapp topic list"),
    ],
)
def test_of_the_cluster_too(words: str, meant: str, place: Place) -> None:
    ended = place.run(*words.split())
    assert meant in ended.out + ended.err


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["topic", "show", "missing"], 1, "topic missing: no broker holds it"),
        (["topic", "create", "a b"], 2, "only letters, digits"),
        (["send", "orders", "x", "--name-server", "nonsense"], 2, "host:port"),
        (["routes", "nothing"], 2, "nothing: no such module"),
        (["message", "7F000001000C06D1C4A40D4E5C5E0000"], 1, "is stored in any topic"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_goes_wrong_is_one_json_object_where_json_was_asked_for(
    words: list[str], code: int, error: str, place: Place
) -> None:
    ended = place.run(*words, "--json")
    assert (ended.code, ended.out) == (code, "")
    said = json.loads(ended.err)
    assert said["exit_code"] == code
    assert error in said["error"]


def test_a_traceback_that_was_asked_for_is_in_the_object(place: Place, cluster: tuple[Path, str]) -> None:
    (cluster[0] / "raises_early.py").write_text("1 / 0\n")
    ended = place.run("routes", "raises_early", "--json", "--traceback")
    said = json.loads(ended.err)
    assert said["error"] == "raises_early.py:1: ZeroDivisionError: division by zero"
    assert said["traceback"].startswith("Traceback (most recent call last)")
