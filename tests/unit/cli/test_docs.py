"""`rocketapp docs`, and what `run --http` serves of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rocketapp.cli.failure import USAGE
from rocketapp.cli.main import cli
from tests.unit.asyncapi.official import problems
from tests.unit.cli.asking import Http
from tests.unit.cli.conftest import Start

WriteApp = Callable[[str], None]
APP = """
@app.subscribe("orders")
async def settle(order: dict) -> None:
    'Take the money.'
"""


@pytest.fixture
def docs(folder: Path, write_app: WriteApp, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command in a folder with an app, in this process."""
    write_app(APP)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])

    def run(*arguments: str) -> Result:
        monkeypatch.delitem(sys.modules, "app", raising=False)
        return CliRunner().invoke(cli, ["docs", "app", *arguments], standalone_mode=False)

    return run


def failure(result: Result) -> tuple[str, int]:
    error = result.exception
    assert error is not None
    return str(error), getattr(error, "code", USAGE)


def test_a_document_goes_to_stdout_and_nothing_else(start: Start, write_app: WriteApp) -> None:
    write_app(APP)
    command = start("docs", "app")
    command.ends(0)
    document = json.loads(command.out)
    assert problems(document) == []
    assert document["operations"]["receive.orders.settle"]["summary"] == "Take the money."
    assert command.err == ""


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        (["--output", "a.json"], '{\n  "asyncapi"'),
        (["--html", "a.html"], "<!doctype html>"),
    ],
)
def test_files_are_written(options: list[str], begins: str, docs: Callable[..., Result], folder: Path) -> None:
    result = docs(*options)
    assert result.return_value == 0
    assert result.stdout == ""
    assert (folder / options[1]).read_text().startswith(begins)


def test_a_line_that_moves_changes_nothing(docs: Callable[..., Result], write_app: WriteApp) -> None:
    before = docs().stdout
    write_app("\n\n# a comment\n" + APP)
    assert docs().stdout == before


@pytest.mark.parametrize(
    ("options", "text", "code"),
    [
        (["--output", "b/a.json"], "b/a.json: cannot be written: no such file or directory", 1),
        (["--output", ""], "--output is empty", 2),
    ],
)
def test_what_cannot_be_done_is_one_line(options: list[str], text: str, code: int, docs: Callable[..., Result]) -> None:
    said, ended = failure(docs(*options))
    assert (said[: len(text)], ended) == (text, code)


def test_an_app_that_cannot_start_is_refused_with_its_place(docs: Callable[..., Result], write_app: WriteApp) -> None:
    write_app(APP.replace("dict", '"Missing"'))
    said, code = failure(docs())
    assert "app.py:" in said
    assert "Missing" in said
    assert code == 2


@pytest.mark.parametrize("arguments", [(), ("--workers", "2")])
def test_a_running_app_serves_its_document_and_page(
    arguments: tuple[str, ...], start: Start, write_app: WriteApp
) -> None:
    write_app(APP)
    run = start("run", "app", "--http", "127.0.0.1:0", *arguments)
    http = Http(run)
    run.says("started")
    document = json.loads(http.becomes("/asyncapi.json", 200).text)
    assert problems(document) == []
    assert list(document["operations"]) == ["receive.orders.settle"]
    page = http.get("/docs")
    assert page.status == 200
    assert "Take the money." in page.text
    assert 'href="/docs"' in http.get("/").text
    run.stops()


def test_nothing_of_it_is_imported_before_it_is_asked_for() -> None:
    program = (
        "import sys, rocketapp.cli.commands.run, rocketapp.cli.processes.run, rocketapp.cli.processes.worker;"
        "import rocketapp.operate.app_requests;"
        "print([name for name in sys.modules if name.startswith('rocketapp.asyncapi')])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
