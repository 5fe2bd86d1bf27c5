"""The pages of hooks list every hook, every member of the surface and every name; the plugins that they show work."""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from rocketapp import RocketApp, plugin, testing
from rocketapp.app.declare.phases import declared_of
from rocketapp.hooks import specs
from rocketapp.hooks.surface import Surface
from rocketapp.plugin import hookimpl
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs/reference/hooks.md").read_text()
NAMES = (ROOT / "docs/reference/plugin-names.md").read_text()
EXAMPLES = (ROOT / "docs/how-to/plugins.md").read_text()
HOOKS: dict[str, Callable[..., Any]] = {
    name: value for name, value in vars(specs).items() if hasattr(value, "rocketapp_spec")
}


def test_every_hook_has_its_section_and_there_is_no_other() -> None:
    told = re.findall(r"^### `(\w+)\((.*?)\)", TEXT, re.MULTILINE)
    assert told == [(name, ", ".join(inspect.signature(hook).parameters)) for name, hook in HOOKS.items()]


def test_every_member_of_the_surface_is_listed() -> None:
    table = TEXT.partition("## What a plugin may do")[2].partition("## ")[0]
    members = {name for name in vars(Surface) if not name.startswith("_")}
    assert set(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) == members


def test_every_name_of_the_front_door_is_listed_once_and_no_other() -> None:
    rows = [line.split("|")[1] for line in NAMES.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(plugin.__all__)


def test_the_table_of_wishes_names_hooks_and_checks_that_are_there() -> None:
    table = EXAMPLES.partition("## Which hook")[2].partition("\n\n")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)`", table)
    assert len(named) > 10
    assert [name for name in named if name not in HOOKS and not hasattr(testing, name)] == []


@pytest.mark.parametrize("source", re.findall(r"```python\n(.*?)```", EXAMPLES, re.DOTALL))
def test_its_plugins_can_be_registered(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = types.ModuleType("the_page")
    monkeypatch.setitem(sys.modules, "the_page", page)
    names = vars(page)
    exec(compile(source, "docs/how-to/plugins.md", "exec"), names)
    plugins = [
        value
        for value in names.values()
        if inspect.isclass(value) and any(hasattr(member, "rocketapp_impl") for member in vars(value).values())
    ]
    assert plugins
    app = RocketApp("shop", plugins=plugins)
    assert len(declared_of(app).plugins.names()) >= len(plugins)
    assert hookimpl.project_name == "rocketapp"
