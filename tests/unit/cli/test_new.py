"""`rocketapp new`: what it refuses, and where it takes rocketapp from."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rocketapp.cli.failure import CommandError
from rocketapp.cli.main import run_command
from rocketapp.cli.source import Source, companion, installed, running

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a command that ends with 2."""
    assert run_command(["new", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line


def test_without_copier_the_line_names_the_extra_and_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "copier", None)
    line = refused(capsys, "shop", "--defaults")
    assert line == ("rocketapp: rocketapp new needs copier: pip install 'rocketapp[new]'")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["shop"], "give --defaults"),
        (["full", "--defaults"], "full is not empty, it has mine.txt"),
        (["full/mine.txt", "--defaults"], "is a file"),
        (["full", "--update"], "--update is for what `rocketapp new` has made"),
        (["full", "--update", "--template", "app"], "leave --template out"),
    ],
)
def test_what_cannot_be_made_is_refused(
    words: list[str], text: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "full").mkdir()
    (here / "full/mine.txt").write_text("mine")
    assert text in refused(capsys, *words)
    assert sorted(path.name for path in here.rglob("*")) == ["full", "mine.txt"]


@pytest.mark.parametrize(
    ("folder", "package"),
    [
        ("My Shop", "my_shop"),
        ("queue", "queue_app"),
        ("msgspec", "msgspec_app"),
        ("2-day", "day"),
        ("rocketapp-x", "rocketapp_x"),
    ],
)
def test_the_package_has_a_name_that_hides_no_other_module(folder: str, package: str, here: Path) -> None:
    assert run_command(["new", folder, "--defaults"]) == 0
    assert (here / folder / package / "app.py").is_file()


def test_a_folder_may_hold_a_repository_and_a_virtual_environment(here: Path) -> None:
    for name in (".git", ".venv"):
        (here / name).mkdir()
    assert run_command(["new", ".", "--defaults"]) == 0
    assert (here / "Makefile").is_file()


def test_where_git_is_missing_a_project_is_made_that_has_no_history(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(here))
    assert run_command(["new", "shop", "--defaults"]) == 0
    assert not (here / "shop/.copier-template.bundle").exists()
    capsys.readouterr()
    assert "--update is for what `rocketapp new` has made" in refused(capsys, "shop", "--update")


@pytest.mark.parametrize(
    ("noted", "line"),
    [
        (None, "told-apart==1.2"),
        (
            {"url": "file:///a%20b/told_apart-1.2-py3-none-any.whl", "archive_info": {}},
            "told-apart @ file:///a%20b/told_apart-1.2-py3-none-any.whl",
        ),
        ({"url": "file:///code", "dir_info": {}}, "told-apart @ file:///code"),
        ({"url": "file:///code", "dir_info": {"editable": True}}, "-e file:///code"),
        (
            {"url": "https://example.org/code", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "told-apart @ git+https://example.org/code@abc",
        ),
    ],
    ids=["index", "wheel", "folder", "editable", "repository"],
)
def test_what_the_installer_noted_down_is_what_a_project_installs(
    noted: dict[str, object] | None, line: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = here / "told_apart-1.2.dist-info"
    note.mkdir()
    (note / "METADATA").write_text("Metadata-Version: 2.1\nName: told-apart\nVersion: 1.2\n")
    if noted is not None:
        (note / "direct_url.json").write_text(json.dumps(noted))
    monkeypatch.syspath_prepend(str(here))
    assert installed("told-apart").line() == line


def test_a_checkout_that_runs_is_where_rocketapp_comes_from() -> None:
    assert running() == Source("rocketapp", ROOT.as_uri(), editable=True)


def test_a_companion_lies_beside_its_rocketapp(here: Path) -> None:
    wheel, beside = here / "rocketapp-1.2-py3-none-any.whl", here / "rocketapp_pyspark-1.2-py3-none-any.whl"
    wheel.touch()
    ours = Source("rocketapp", wheel.as_uri())
    with pytest.raises(CommandError, match=r"rocketapp-strange is not installed, and .* has no wheel of it"):
        companion("rocketapp-strange", ours)
    beside.touch()
    assert companion("rocketapp-pyspark", ours).line() == f"rocketapp-pyspark @ {beside.as_uri()}"
    assert companion("rocketapp-pyspark", Source("rocketapp", "1.2")).line() == "rocketapp-pyspark"
    assert companion("rocketapp-pyspark", running()).line() == f"-e {(ROOT / 'contrib/rocketapp-pyspark').as_uri()}"
