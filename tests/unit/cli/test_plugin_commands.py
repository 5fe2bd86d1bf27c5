"""Commands of plugins under `rocketapp`: imported when they are called, and named when they fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Start

MODULE = """
import click

print("imported")

@click.command("greet")
@click.argument("name")
def greet(name):
    click.echo(f"hello {name}")
    return 1

plain = 5
"""


def install(folder: Path, name: str, commands: str) -> None:
    """A distribution in the current directory, which is on the path of `python -m`."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rocketapp.commands]\n{commands}\n")


@pytest.fixture(autouse=True)
def installed(folder: Path) -> None:
    (folder / "greeting.py").write_text(MODULE)
    install(
        folder,
        "greetings",
        "greet = greeting:greet\nplain = greeting:plain\nlost = no_such:command\nleaves = leaving:command",
    )
    (folder / "leaving.py").write_text("raise SystemExit(4)")


def test_a_plugin_s_command_runs_with_its_arguments_and_exit_code(start: Start) -> None:
    run = start("greet", "you")
    run.ends(1)
    assert run.out == "imported\nhello you\n"


def test_help_names_them_without_importing_them(start: Start) -> None:
    run = start("--help")
    run.ends(0)
    section = run.out.partition("Commands of plugins:")[2].split("\n")
    # Other installed distributions may have commands as well.
    assert [line.split() for line in section if line.endswith(" greetings")] == [
        ["greet", "from", "greetings"],
        ["leaves", "from", "greetings"],
        ["lost", "from", "greetings"],
        ["plain", "from", "greetings"],
    ]
    assert "imported" not in run.out


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("lost", "command lost of greetings (no_such:command) could not be loaded: ModuleNotFoundError"),
        ("leaves", "command leaves of greetings (leaving:command) could not be loaded: SystemExit: 4"),
        ("plain", "command plain of greetings (greeting:plain) is 5, not a click command"),
        ("nothing", "No such command 'nothing'"),
    ],
)
def test_a_command_that_fails_is_named(start: Start, name: str, problem: str) -> None:
    run = start(name)
    run.ends(2)
    assert problem in run.err


def test_a_plugin_that_fails_breaks_no_other_command(start: Start) -> None:
    greeting = start("greet", "you")
    greeting.ends(1)
    assert greeting.out == "imported\nhello you\n"
    help_of_plugins = start("plugins", "--help")
    help_of_plugins.ends(0)
    assert "imported" not in help_of_plugins.out


def test_two_plugins_with_one_command_are_both_named(start: Start, folder: Path) -> None:
    install(folder, "others", "greet = greeting:greet\nrun = greeting:greet")
    run = start("greet", "you")
    run.ends(2)
    assert "command greet: greetings and others both bring it: remove one of them" in run.err
    help_of_run = start("run", "--help")
    help_of_run.ends(0)
    assert "imported" not in help_of_run.out
