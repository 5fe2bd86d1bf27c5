"""The pages for those who come from elsewhere: what they name on rocketapp's side is there."""

from __future__ import annotations

import re
from pathlib import Path

import click

import rocketapp
from rocketapp import Breaker, Context, Message, Policy, Publisher, RocketApp, Router
from rocketapp.app import settings
from rocketapp.app.declare.options import SubscribeOptions
from rocketapp.app.settings import fields_of
from rocketapp.cli.main import cli
from rocketapp.hooks import specs
from rocketapp.model.outgoing import PublishOptions
from tests.docs.pages import ROOT

COMING = sorted((ROOT / "docs/how-to").glob("from-*.md"))
PAGES = [page for page in COMING if page.stem in ("from-java", "from-faststream", "from-celery")]
OPTIONS = {f"{table}.{name}" for table, kind in settings.TABLES.items() for name in fields_of(kind)}
KEYWORDS = (
    {"clusters", "app", "delays", "on", "after", "reason", "prefix", "tzinfo", "format", "every"}
    | SubscribeOptions.__annotations__.keys()
    | PublishOptions.__annotations__.keys()
)
PUBLIC = set(rocketapp.__all__) | {"TestApp", "call", "call_sync"}
METHODS = {name for kind in (RocketApp, Router, Context, Message, Publisher, Policy, Breaker) for name in dir(kind)}


def own_cells(page: Path) -> list[str]:
    """What tables say of rocketapp: their last cell, code without the bars of a union."""
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [row.replace("\\|", "/").rstrip("| ").rpartition(" | ")[2] for row in rows]


def codes(page: Path) -> list[str]:
    return [code for cell in own_cells(page) for code in re.findall(r"`([^`]+)`", cell)]


def in_tables(pattern: str) -> set[str]:
    """What the pages name in their tables on rocketapp's side."""
    return {name for page in PAGES for code in codes(page) for name in re.findall(pattern, code)}


def test_there_are_three_of_them() -> None:
    assert len(PAGES) == 3


def test_every_setting_is_one() -> None:
    named = in_tables(rf"^(?:{'|'.join(settings.TABLES)})\.\w+$")
    assert named - OPTIONS - {f"app.{name}" for name in METHODS} == set()


def test_every_command_is_one() -> None:
    context = click.Context(cli)
    for code in (code for page in PAGES for code in re.findall(r"`rocketapp ([^`]+)`", page.read_text())):
        command = cli.get_command(context, code.split()[0])
        assert command is not None, code
        if isinstance(command, click.Group) and len(code.split()) > 1:
            assert code.split()[1] in command.commands, code


def test_every_keyword_is_one() -> None:
    named = in_tables(r"(?<![\w.])([a-z_]+)=(?!=)")
    assert named - KEYWORDS == set()


def test_every_decorator_and_method_of_an_app_is_one() -> None:
    named = in_tables(r"\bapp\.([a-z_]+)\b")
    tables = {name for option in OPTIONS if option.startswith("app.") for name in [option.removeprefix("app.")]}
    assert named - METHODS - tables == set()


def test_every_hook_is_one() -> None:
    pattern = r"hooks?\]?(?:\([^)]*\))? \[?`(\w+)`"
    named = {name for page in PAGES for name in re.findall(pattern, page.read_text())}
    assert [name for name in named if not hasattr(specs, name)] == []


def test_every_class_is_public() -> None:
    raised = in_tables(r"\braise ([A-Z]\w+)")
    made = in_tables(r"\b(Policy|Router|RocketApp|Topic|TestApp)\(")
    assert (raised | made) - PUBLIC == set()
