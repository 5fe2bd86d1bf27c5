"""The promises about the whole package: its layers, and its habits that no other tool holds."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "rocketapp"
FILES = sorted(PACKAGE.rglob("*.py"))
ROOMS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_room_uses_only_what_lies_below_it() -> None:
    """The contracts are in pyproject.toml; what is in no layer is an error as well."""
    linter = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "0 broken" in found.stdout


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("room", ROOMS, ids=shown)
def test_the_door_of_a_room_holds_nothing(room: Path) -> None:
    body = ast.parse((room / "__init__.py").read_text()).body
    assert all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body)


@pytest.mark.parametrize("file", FILES, ids=shown)
def test_a_file_is_short_and_opens_with_its_job(file: Path) -> None:
    text = file.read_text()
    assert text.count("\n") < 400
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), "say what this file is for"


@pytest.mark.parametrize("file", FILES, ids=shown)
def test_functions_are_short(file: Path) -> None:
    functions = [
        node
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = {node.name: size for node in functions if (size := size_of(node)) >= 50}
    assert long == {}


def size_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement after the docstring: signatures and their meaning are no complexity."""
    body = function.body[1:] if ast.get_docstring(function) and len(function.body) > 1 else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1


@pytest.mark.parametrize("file", FILES, ids=shown)
def test_nothing_is_left_for_later(file: Path) -> None:
    found = re.findall(
        r"\b(?:TODO|FIXME|XXX|HACK)\b|NotImplementedError", file.read_text().replace("SCHEDULE_TOPIC_XXXX", "")
    )
    assert found == []


CHANGES = {"append", "add", "update", "setdefault", "pop", "clear", "extend", "insert", "remove"}


@pytest.mark.parametrize("file", FILES, ids=shown)
def test_nothing_at_module_level_remembers_anything(file: Path) -> None:
    """Two apps in one process do not meet: what stands at module level is constant."""
    tree = ast.parse(file.read_text())
    held = {target.id for node in tree.body for target in targets_of(node) if isinstance(target, ast.Name)}
    calls = [
        node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    changed = [
        f"{shown(file)}:{call.lineno}: {call.value.id}.{call.attr}"
        for call in calls
        if isinstance(call.value, ast.Name) and call.value.id in held and call.attr in CHANGES
    ]
    assert changed == []
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Global)]


def targets_of(node: ast.stmt) -> list[ast.expr]:
    """What a statement at module level gives a changeable value to."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return []
    if not isinstance(node.value, ast.List | ast.Dict | ast.Set | ast.Call):
        return []
    return node.targets if isinstance(node, ast.Assign) else [node.target]
