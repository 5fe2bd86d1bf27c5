"""The template of a pipeline: what it makes passes its checks and tests, and runs from the orders to the picture."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import copier
import pytest

from tests.peers.waiting import wait_until
from tests.typing.checkers import SHARED

ROOT = Path(__file__).parents[4]
TEMPLATE = ROOT / "templates/pipeline"
PACKAGE = "bakery"
"""Not the name that the template proposes: no file may hold on to that one."""
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "contrib/rocketapp-pyspark/src")]),
    "MYPYPATH": os.pathsep.join([str(ROOT), str(ROOT / "contrib/rocketapp-pyspark/src")]),
}


def generate(folder: Path) -> Path:
    copier.run_copy(str(TEMPLATE), folder, data={"package": PACKAGE}, defaults=True, quiet=True)
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated project; checks and runs leave their files in it."""
    return generate(tmp_path_factory.mktemp("generated") / PACKAGE)


class Program:
    """A Python program in the folder of the project; what it leaves behind ends with the test."""

    def __init__(self, project: Path, *module: str, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *module],
            cwd=project,
            env={**os.environ, **ENVIRONMENT, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ends(self, code: int) -> str:
        """Wait for its end with this exit code; what it said on stdout, and on stderr behind that."""
        out, problems = self.process.communicate(timeout=600)
        assert self.process.returncode == code, out + problems
        return out + problems

    def discard(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def left_in(folder: Path) -> list[str]:
    """The command lines of processes that run in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(folder):
                found.append((entry / "cmdline").read_text().replace("\0", " ")[:100])
        except OSError:
            continue
    return found


def test_the_generated_files_hold_the_name_that_was_given_and_no_mark_of_the_template(tmp_path: Path) -> None:
    files = [file for file in sorted(generate(tmp_path / PACKAGE).rglob("*")) if file.is_file()]
    assert {file.name for file in files} >= {"README.md", "Makefile", "pyproject.toml", "settings.toml", "app.py"}
    assert [file for file in files if re.search(r"\bshop[./]|\{\{", file.read_text())] == []


def test_the_generated_code_passes_strict_mypy_and_pyright_and_the_style(project: Path) -> None:
    assert "Success" in Program(project, "mypy", *SHARED, PACKAGE, "tests").ends(0)
    assert "0 errors" in Program(project, "pyright", "--pythonpath", sys.executable).ends(0)
    style = ("--isolated", "--line-length", "120")
    assert "All checks passed" in Program(project, "ruff", "check", "--select", "E,F,W,B,UP", *style).ends(0)
    Program(project, "ruff", "format", "--check", *style).ends(0)


def test_the_generated_tests_pass(project: Path, java: None) -> None:
    told = Program(project, "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider").ends(0)
    assert re.search(r"^12 passed", told, re.MULTILINE), told


@pytest.mark.parametrize("surroundings", [{"PATH": "/nonexistent"}, {"JAVA_HOME": "/nonexistent"}])
def test_without_java_one_line_says_what_to_install(project: Path, surroundings: dict[str, str]) -> None:
    environment = {"JAVA_HOME": "", **surroundings}
    (line,) = Program(project, PACKAGE, environment=environment).ends(2).splitlines()
    assert line.startswith("java is missing")
    assert "install a JDK 17 or newer" in line


@pytest.mark.parametrize(("number", "begun"), [(signal.SIGINT, "the broker serves"), (signal.SIGTERM, "orders sent")])
def test_a_signal_ends_all_of_it(project: Path, number: signal.Signals, begun: str, java: None) -> None:
    program = Program(project, PACKAGE, "--orders", "4000")
    assert program.process.stdout is not None
    told: Iterator[str] = iter(program.process.stdout)
    assert any(begun in line for line in told)
    program.process.send_signal(number)
    assert "stopped: broker, app and job have ended" in program.ends(130).splitlines()
    wait_until(lambda: left_in(project) == [], within=100, what="nothing of it runs any more")


@pytest.mark.slow
def test_the_pipeline_runs_from_the_orders_to_the_picture(project: Path, java: None) -> None:
    told = Program(project, PACKAGE, "--orders", "600", "--seconds", "4", "--limit", "580").ends(0)
    assert "600 rows of 600 orders, 18 windows: table and stream agree in each" in told
    assert re.search(r"the broker serves on 127\.0\.0\.1:\d+", told)
    assert re.search(r"sink shop/shop-orders: commit 1 of \d+ rows", told)
    assert (project / "run/revenue.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((project / "run/checkpoint/metadata").read_text())["id"]
    wait_until(lambda: left_in(project) == [], within=100, what="nothing of it runs any more")
