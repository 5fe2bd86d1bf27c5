"""What `rocketapp new` makes checks, passes its own tests and runs, with this interpreter and without a network."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from tests.templates.projects import ROOT, TEMPLATES, installed_as, new, rocketapp, run
from tests.typing.checkers import SHARED
from tests.unit.asyncapi.official import problems
from tests.unit.cli.processes import Command

NAME = "bakery"
"""Not the name that a template proposes: no file may hold on to that one."""
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "MYPYPATH": str(ROOT)}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new(tmp_path_factory.mktemp("app"), NAME)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new(tmp_path_factory.mktemp("plugin"), f"rocketapp-{NAME}", "--template", "plugin")


@pytest.fixture
def with_plugin(plugin: Path, tmp_path: Path) -> dict[str, str]:
    """Where the plugin is installed."""
    return installed_as(tmp_path / "site", plugin, f"rocketapp-{NAME}", f"{NAME} = rocketapp_{NAME}.plugin:Plugin")


@pytest.mark.parametrize("template", TEMPLATES)
def test_files_hold_the_folders_name_where_rocketapp_came_from_and_no_mark_of_the_template(
    template: str, tmp_path: Path
) -> None:
    project = new(tmp_path, NAME, "--template", template)
    texts = {file: file.read_text() for file in project.rglob("*") if file.is_file() and file.suffix != ".bundle"}
    assert {file.name for file in texts} >= {
        "README.md",
        "Makefile",
        "pyproject.toml",
        "requirements.txt",
        ".gitignore",
    }
    assert [file for file, text in texts.items() if re.search(r"\{\{|\{%|\baudit\b", text)] == []
    assert {".rocketapp/", ".rocketapp.replay-*"} <= set(texts[project / ".gitignore"].splitlines())
    named = tomllib.loads((project / "pyproject.toml").read_text())["project"]["name"]
    assert named == (f"rocketapp-{NAME}" if template == "plugin" else NAME)
    names = ("lake", "pyspark") if template == "pipeline" else ()
    beside = [f"-e {(ROOT / 'contrib' / f'rocketapp-{name}').as_uri()}" for name in names]
    assert texts[project / "requirements.txt"].splitlines()[1:] == [f"-e {ROOT.as_uri()}", *beside]


def check(project: Path, environment: dict[str, str], *code: str) -> None:
    """What `make test` does there, and pyright."""
    words = [sys.executable, "-m", "mypy", *SHARED]
    assert "Success" in run(project, *words, environment=environment)
    assert "0 errors" in run(
        project, sys.executable, "-m", "pyright", "--pythonpath", sys.executable, environment=environment
    )


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_style_of_a_project_is_the_one_that_it_names(template: str, tmp_path: Path) -> None:
    project = new(tmp_path, NAME, "--template", template)
    ruff = sys.executable, "-m", "ruff"
    assert "All checks passed" in run(project, *ruff, "check", "--no-cache", "--extend-select", "E,F,W,B,UP,I")
    assert "already formatted" in run(project, *ruff, "format", "--no-cache", "--check")


def test_an_app_checks(app: Path) -> None:
    check(app, ENVIRONMENT)


def test_a_plugin_checks(plugin: Path, with_plugin: dict[str, str]) -> None:
    check(plugin, with_plugin)


def test_the_tests_of_an_app_pass(app: Path) -> None:
    said = run(app, sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", environment=ENVIRONMENT)
    assert re.search(r"^5 passed", said, re.MULTILINE), said


def test_the_tests_of_a_plugin_pass_where_it_is_installed(plugin: Path, with_plugin: dict[str, str]) -> None:
    said = run(plugin, sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", environment=with_plugin)
    assert re.search(r"^2 passed", said, re.MULTILINE), said


def test_an_app_does_what_its_readme_says(app: Path) -> None:
    shown = [
        line.partition("rocketapp ")[2] for line in (app / "README.md").read_text().splitlines() if "$ .venv" in line
    ]
    order = next(line for line in shown if line.startswith("send "))
    command = Command(app, "run", f"{NAME}.app:app", environment=ENVIRONMENT)
    try:
        command.says(f"{NAME} started")
        rocketapp(app, *shlex.split(order), environment={**ENVIRONMENT, "ROCKETAPP_BROKER__LISTEN": "127.0.0.1:0"})
        command.says(r"order 1: 2 tea for 7\.00")
        command.says(r"bill of order 1: 7\.00")
        command.stops()
        assert command.summary == (2, 0, 0, 0)
    finally:
        command.discard()


def test_a_plugin_is_found_by_an_app_behind_rocketapps_own(app: Path, with_plugin: dict[str, str]) -> None:
    paths = {"PYTHONPATH": with_plugin["PYTHONPATH"]}
    shown = json.loads(rocketapp(app, "plugins", f"{NAME}.app:app", "--json", environment=paths))["plugins"]
    found = next(one for one in shown if one["name"] == NAME)
    ours = [one for one in shown if one["distribution"] == "rocketapp"]
    assert found["distribution"] == f"rocketapp-{NAME}"
    assert found["hooks"] == ["app_setup", "handler_wrapper", "options"]
    assert found["order"] > max(one["order"] for one in ours)


def test_what_the_apps_of_all_templates_receive_and_send_is_a_valid_document(
    app: Path, plugin: Path, with_plugin: dict[str, str], tmp_path: Path
) -> None:
    pipeline = tmp_path / "pipeline"
    shutil.copytree(ROOT / "templates/pipeline/project/{{ package }}", pipeline / NAME)
    targets = [(app, f"{NAME}.app:app", ENVIRONMENT), (pipeline, f"{NAME}.app:app", ENVIRONMENT)]
    targets.append((plugin, "example:app", with_plugin))
    for folder, target, environment in targets:
        document = json.loads(rocketapp(folder, "docs", target, environment=environment))
        assert problems(document) == []
        assert document["operations"]
