"""Every command, option and public name is in the reference; nothing else is."""

from __future__ import annotations

import inspect
import re

import click
import pytest

import rocketapp
from rocketapp import RocketApp
from rocketapp.cli.main import COMMANDS, cli
from rocketapp.model.publish_options import PublishOptions
from tests.docs.pages import ROOT

REFERENCE = (ROOT / "docs/reference.md").read_text()
_OPTION = re.compile(r"--[a-z][a-z-]*")


def section(command: str) -> str:
    """What the reference says of one command."""
    match = re.search(rf"^### rocketapp {command}\b.*?(?=^##)", REFERENCE, re.MULTILINE | re.DOTALL)
    assert match is not None, f"the reference has no section for {command}"
    return match[0]


def command_of(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_in_its_section_and_no_other(name: str) -> None:
    options = {option for one in command_of(name).params for option in one.opts if option.startswith("--")}
    assert set(_OPTION.findall(section(name))) == options


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does(name: str) -> None:
    options = [one for one in command_of(name).params if isinstance(one, click.Option)]
    assert [one.name for one in options if not one.help] == []
    assert command_of(name).help


def test_every_public_name_is_listed_and_no_other() -> None:
    table = REFERENCE.partition("## Public names")[2]
    listed = [
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    ]
    assert sorted(listed) == sorted(rocketapp.__all__)


def test_every_keyword_of_publish_is_listed() -> None:
    section = REFERENCE.partition("## Publishing")[2].partition("\n## ")[0]
    told = section.partition("Keyword arguments:")[2].partition(".")[0]
    assert re.findall(r"`(\w+)`", told) == list(PublishOptions.__annotations__)


def test_every_argument_of_subscribe_is_listed_with_its_default() -> None:
    table = REFERENCE.partition("## Declaring handlers")[2].partition("###")[0]
    for name, parameter in inspect.signature(RocketApp.subscribe).parameters.items():
        if name == "self":
            continue
        if parameter.default is inspect.Parameter.empty:
            assert f"`{name}`" in table
        else:
            shown = f'"{parameter.default}"' if isinstance(parameter.default, str) else str(parameter.default)
            assert f"`{name}={shown}`" in table
