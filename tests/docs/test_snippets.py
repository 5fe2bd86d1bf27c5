"""What the pages show is true: snippets run, settings load, commands parse, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import click
import pytest

from rocketapp.app.sources import load_settings
from rocketapp.cli.main import cli
from rocketapp_site.settings import OF_PLUGINS
from tests.docs.pages import PAGES, ROOT, all_blocks, blocks, commands, name_of, run_tests
from tests.environments.recipes import RECIPES

_LINK = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")
_MAKE = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


_WITH_PYTHON = [
    page for page in PAGES if page not in RECIPES and any(block.language == "python" for block in blocks(page))
]
"""Recipes are tested where what they need is installed."""


@pytest.mark.parametrize("page", _WITH_PYTHON, ids=name_of)
def test_every_snippet_runs_as_a_module_and_its_tests_pass(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        if block.language == "python":
            module = types.ModuleType("snippet")
            monkeypatch.setitem(sys.modules, "snippet", module)
            lines_before = "\n" * (int(block.place.rpartition(":")[2]) - 1)
            exec(compile(lines_before + block.text, str(page), "exec"), vars(module))
            assert run_tests(module) == block.text.count("def test_"), block.place


PROGRAMS = {
    *("python3", "pip", "pytest", ".", "activate", "export", "curl", "jupyter", "kubectl", "python", "uvicorn"),
    *("mqbroker", "mqnamesrv"),
}
"""Others' programs."""
_SETTINGS = [block for block in all_blocks("toml") if "[handlers." not in block.text]
_LOGGING = [block for block in all_blocks("toml") if block not in _SETTINGS]
_SET_UP = "from rocketapp.cli.logs import *; set_up_logging(AppConfig(), file='log.toml'); logging.info('written')"


def test_the_shown_configuration_of_logs_can_be_used(tmp_path: Path) -> None:
    (block,) = _LOGGING
    (tmp_path / "log.toml").write_text(block.text)
    subprocess.run([sys.executable, "-c", _SET_UP], cwd=tmp_path, check=True)
    assert "written" in (tmp_path / "shop.log").read_text()


def test_shown_settings_load(tmp_path: Path) -> None:
    for block in _SETTINGS:
        file = tmp_path / f"{block.place.replace('/', '-').replace(':', '-')}.toml"
        file.write_text(block.text)
        assert load_settings(str(file), {}, {}, {}, tables=OF_PLUGINS).sources, block.place


def test_every_shown_command_is_one() -> None:
    assert len(commands()) > 50
    for place, line in commands():
        check_command(place, line)


def check_command(place: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    words = words[: min((words.index(sign) for sign in "<>" if sign in words), default=None)]
    program = words[0].rpartition("/")[2]
    if program == "make":
        of_project = words[1] == "-C"  # made by `rocketapp new`
        assert words[3 if of_project else 1] in ({"run", "test"} if of_project else _MAKE), place
    elif program == "rocketapp":
        parse(words[1:], place)
    else:
        assert program in PROGRAMS, f"{place}: {program} is not checked"


def parse(words: list[str], place: str) -> None:
    """As the command line would, short of running it."""
    context = click.Context(cli, info_name="rocketapp")
    command = cli.get_command(context, words[0])
    assert command is not None, f"{place}: no command {words[0]}"
    try:
        command.make_context(words[0], words[1:], parent=context)
    except click.ClickException as error:
        pytest.fail(f"{place}: {error.format_message()}")


def test_links_lead_somewhere() -> None:
    lost = [
        f"{name_of(page)}: {target}"
        for page in PAGES
        for target in _LINK.findall(page.read_text())
        if not (page.parent / target).exists()
    ]
    assert lost == []


def test_a_page_has_a_title_and_lines_that_can_be_read_side_by_side() -> None:
    assert [name_of(page) for page in PAGES if not page.read_text().startswith("# ")] == []
    long = [
        f"{name_of(page)}:{number}"
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > 130 and not line.startswith("|")
    ]
    assert long == []
