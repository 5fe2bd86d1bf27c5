"""What the reference says by hand of commands, options and public names is what there is."""

from __future__ import annotations

import re

import click

import rocketapp
from rocketapp import Message, RocketApp
from rocketapp.app.declare.options import InheritedOptions, SubscribeOptions
from rocketapp.app.declare.phases import declared_of
from rocketapp.cli.main import COMMANDS, cli
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.model.outgoing import PublishOptions
from tests.docs.pages import ROOT


def page(name: str) -> str:
    return (ROOT / "docs/reference" / f"{name}.md").read_text()


COMMANDS_PAGE, HANDLERS, PUBLISHING = page("commands"), page("handlers"), page("publishing")
_OPTION = re.compile(r"--[a-z][a-z-]*")


def section(command: str) -> str:
    """What the reference says of one command by hand."""
    match = re.search(rf"^## rocketapp {command}\b.*?(?=^##|\Z)", COMMANDS_PAGE, re.MULTILINE | re.DOTALL)
    return "" if match is None else match[0]


def command_of(name: str) -> click.Command:
    """By the words behind `rocketapp`."""
    found: click.Command | None = cli
    for word in name.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word)
    assert found is not None
    return found


def leaves(name: str) -> list[str]:
    """The command itself; of a group of commands, those in it; of a group that is a command as well, both."""
    found = command_of(name)
    if not isinstance(found, click.Group):
        return [name]
    return [*([name] if found.invoke_without_command else []), *(f"{name} {one}" for one in found.commands)]


LEAVES = [leaf for name in COMMANDS for leaf in leaves(name)]


def test_the_section_of_a_command_names_no_option_that_it_lacks() -> None:
    for name in LEAVES:
        options = {option for one in command_of(name).params for option in one.opts if option.startswith("--")}
        assert set(_OPTION.findall(section(name))) - options == set(), name


def test_every_command_and_option_says_what_it_does() -> None:
    commands = {name: command_of(name) for name in LEAVES}
    assert [name for name, command in commands.items() if not command.help] == []
    options = [(name, one) for name, command in commands.items() for one in command.params]
    assert [f"{name} {one.name}" for name, one in options if isinstance(one, click.Option) and not one.help] == []


def test_every_public_name_is_listed_and_no_other() -> None:
    listed = [
        name
        for line in page("names").splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    ]
    assert sorted(listed) == sorted(rocketapp.__all__)


def test_every_keyword_of_publish_is_listed() -> None:
    table = PUBLISHING.partition("## Keyword arguments")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` ", table, re.MULTILINE) == list(PublishOptions.__annotations__)


def test_every_option_of_subscribe_is_listed_with_what_holds_without_it() -> None:
    table = HANDLERS.partition("\n## ")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE))
    assert set(listed) == {"topic", *SubscribeOptions.__annotations__}
    app = RocketApp("shop")

    @app.subscribe("orders")
    async def handle(message: Message) -> None: ...

    (found,) = declared_of(app).subscribed("shop", ConsumerConfig())
    for name in ("orderly", "batch", "start", "timeout", "retries", "concurrency"):
        value = getattr(found.subscription, name)
        shown = f'`"{value}"`' if isinstance(value, str) else f"`{value}`"
        assert shown in listed[name], name


def test_the_inherited_options_are_listed() -> None:
    section = HANDLERS.partition("## Inherited options")[2].partition("\n## ")[0]
    assert re.findall(r"`(\w+)`", section.partition(":")[0]) == list(InheritedOptions.__annotations__)
