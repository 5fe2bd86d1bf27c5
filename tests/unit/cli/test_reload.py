"""`rocketapp run --reload`: workers drain and start again at an edit of what the app is made of, and at no other."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketapp.cli.main import run_command
from rocketapp.cli.processes.reload import Watched
from tests.unit.cli.asking import Http
from tests.unit.cli.conftest import PRELUDE, Here, Send, Start
from tests.unit.cli.processes import Command, children_of, wait_until

WriteApp = Callable[[str], None]

APP = """
from part import WORD

@app.on_startup
def ready():
    note("ready", WORD)

@app.subscribe("orders", start="first")
async def settle(message):
    note("begins")
    await asyncio.sleep(float(message.text()))
    note("ends", WORD)
"""


@pytest.fixture
def run(start: Start, write_app: WriteApp, folder: Path) -> Command:
    """An app of two files that has started and is watched."""
    (folder / "part.py").write_text('WORD = "one"\n')
    write_app(APP)
    command = start("run", "app:app", "--reload")
    command.says("ready one")
    command.says("watching")
    return command


def restarts(command: Command) -> list[str]:
    """The files that the log names as reasons to start again."""
    return re.findall(r"INFO +(.*): starting again\n", command.err)


def test_an_edit_starts_the_app_again_after_a_drain_and_the_broker_goes_on(
    run: Command, start: Start, send: Send, folder: Path
) -> None:
    send("orders", "1.5")
    run.says("begins")
    (folder / "part.py").write_text('WORD = "two"\n')
    run.says("ready two")
    assert "ends one\nready two\n" in run.out
    send("orders", "0")
    run.says("ends two")
    run.stops()
    assert run.summary == (2, 0, 0, 0)
    assert restarts(run) == ["part.py"]
    assert "watchfiles" not in run.err  # the line with the files says it
    assert run.err.count("embedded broker serves on") == 1


def test_an_app_that_cannot_be_loaded_is_told_and_the_next_edit_mends_it(run: Command, folder: Path) -> None:
    (folder / "part.py").write_text("WORD = 1 / 0\n")
    run.says(r"worker 1: part\.py:1: .*ZeroDivisionError")
    run.says(r"worker 1 could not be started \(exit code 2\): waiting for the next edit")
    (folder / "part.py").write_text('WORD = "two"\n')
    run.says("ready two")
    run.stops()


def test_an_edit_starts_a_worker_at_once_that_waits_after_its_death(
    start: Start, write_app: WriteApp, folder: Path
) -> None:
    (folder / "sitecustomize.py").write_text(
        "import rocketapp.cli.processes.parent as parent\nparent.FIRST_PAUSE = parent.LONGEST_PAUSE = 600.0\n"
    )
    (folder / "part.py").write_text('WORD = "one"\n')
    write_app(APP)
    paths = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
    command = start("run", "app:app", "--reload", environment={"PYTHONPATH": paths}, fresh=True)
    command.says("ready one")
    command.says("watching")
    os.kill(int(command.says(r"worker 1 started, process (\d+)")[1]), signal.SIGKILL)
    command.says(r"worker 1 died \(killed by SIGKILL\); starting it again in \d{3}\.\d s")
    (folder / "part.py").write_text('WORD = "two"\n')
    command.says("ready two")
    command.stops()


def test_a_topic_that_was_paused_and_is_not_in_the_app_any_more_keeps_it_from_nothing(
    start: Start, write_app: WriteApp, folder: Path
) -> None:
    (folder / "part.py").write_text('WORD = "one"\n')
    write_app(APP)
    command = start("run", "app:app", "--reload", "--http", "127.0.0.1:0")
    Http(command).becomes("/ready", 200)
    assert Http(command).post("/pause", topic="orders", group="shop").status == 303
    command.says("topic orders of group shop was paused by an operator")
    command.says("watching")
    (folder / "app.py").write_text((folder / "app.py").read_text().replace('"orders"', '"orders-2"'))
    command.says("topic orders of group shop was paused, and the app has no handler of it any more")
    wait_until(lambda: command.out.count("ready one") == 2, "the app has started again")


def test_an_app_that_cannot_be_loaded_at_first_is_waited_for(start: Start, folder: Path) -> None:
    (folder / "app.py").write_text("import part\n")
    command = start("run", "app:app", "--reload")
    command.says("waiting for the next edit")
    command.says("watching")
    (folder / "app.py").write_text(PRELUDE + '@app.on_startup\ndef ready():\n    note("ready")\n')
    command.says("ready")
    command.stops()


def test_a_number_of_workers_that_only_the_code_says_is_told_to_be_left_out(start: Start, folder: Path) -> None:
    (folder / "app.py").write_text(
        'from rocketapp import RocketApp\napp = RocketApp("shop", settings={"app": {"workers": 2}})\n'
    )
    command = start("run", "app:app", "--reload")
    command.says("app.workers is 2 in the code, which --reload does not load before: give --workers 2")
    command.stops()


def test_what_no_app_is_made_of_starts_nothing(run: Command, folder: Path) -> None:
    (child,) = [pid for pid in children_of(run.process.pid) if "worker" in Path(f"/proc/{pid}/cmdline").read_text()]
    for name in (
        "notes.txt",
        "__pycache__/part.pyc",
        "__pycache__/part.py",
        ".rocketapp/x.py",
        ".venv/x.py",
        "venv/x.py",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x = 1\n")
    (folder / "late.py").write_text("")
    wait_until(lambda: restarts(run), "an edit that counts")
    wait_until(lambda: run.out.count("ready one") == 2, "the app has started again")
    assert restarts(run) == ["late.py"]
    assert child not in children_of(run.process.pid)
    run.stops()


def test_several_folders_and_a_settings_file_elsewhere_are_watched(
    start: Start, write_app: WriteApp, folder: Path
) -> None:
    for name in ("first", "second", "third"):
        (folder / name).mkdir()
    settings = folder / "third/production.conf"
    settings.write_text("[app]\ndrain_timeout = 1.0\n")
    write_app('@app.on_startup\ndef ready():\n    note("ready")\n')
    words = ("--reload-dir", "first", "--reload-dir", "second", "--settings", str(settings))
    command = start("run", "app:app", "--reload", *words)
    for count, edited in enumerate((folder / "second/b.py", settings), start=1):
        command.says("(?s)" + "ready.*" * count)
        command.says("watching")
        edited.write_text("[app]\ndrain_timeout = 2.0\n" if edited == settings else "x = 1\n")
        wait_until(lambda wanted=count: len(restarts(command)) == wanted, f"{edited} starts it again")
    (folder / "third/c.py").write_text("x = 1\n")
    (folder / "app.py").write_text((folder / "app.py").read_text().replace('"ready"', '"other"'))
    (folder / "first/d.py").write_text("x = 1\n")
    command.says("other")
    command.stops()
    assert restarts(command) == ["second/b.py", "third/production.conf", "first/d.py"]


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("app.py", True),
        ("shop/model.py", True),
        ("pyproject.toml", True),
        ("settings.conf", True),
        ("shop/__pycache__/model.py", False),
        ("shop/model.pyc", False),
        (".rocketapp/x.py", False),
        (".#app.py", False),
        ("../app.py", False),
    ],
)
def test_which_files_count(path: str, counts: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = folder / ".hidden"  # what is above the folder does not matter
    here.mkdir()
    monkeypatch.chdir(here)
    assert Watched((), "settings.conf").has(str((here / path).resolve())) is counts


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--reload-dir", "."], "--reload-dir needs --reload"),
        (["--reload", "--reload-dir", "nowhere"], "--reload-dir nowhere: no such folder"),
    ],
)
def test_folders_that_cannot_be_watched_are_refused(words: list[str], text: str, here: Here) -> None:
    command = here("run", "app:app", *words)
    command.ends(2)
    assert text in command.err


def test_without_watchfiles_the_line_names_the_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert run_command(["run", "app:app", "--reload"]) == 2
    line = capsys.readouterr().err
    assert "--reload needs watchfiles: pip install 'rocketapp[reload]'" in line
