"""The habits of the whole package that no other tool holds; its layers are checked by `make check` and `make test`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.source import FILES, PACKAGE, shown

ROOMS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)


Trees = dict[Path, ast.Module]


@pytest.fixture(scope="module")
def trees() -> Trees:
    """All files, read once. They go with the last test of this file: each collection of garbage would walk them."""
    return {file: ast.parse(file.read_text()) for file in FILES}


@pytest.fixture(scope="module")
def nodes(trees: Trees) -> dict[Path, list[ast.AST]]:
    """All of a file, walked through once."""
    return {file: list(ast.walk(tree)) for file, tree in trees.items()}


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_an_init_file_of_a_room_holds_no_code() -> None:
    found = [
        f"{shown(room)}/__init__.py:{node.lineno}"
        for room in ROOMS
        if room != PACKAGE / "testing"  # a front door, as the package itself: see test_public_names
        for node in ast.parse((room / "__init__.py").read_text()).body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    assert found == []


def test_a_file_opens_with_its_job(trees: Trees) -> None:
    assert [shown(file) for file, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


def test_functions_are_short(nodes: dict[Path, list[ast.AST]]) -> None:
    long = {
        f"{shown(file)}:{node.lineno}": size
        for file, parts in nodes.items()
        for node in parts
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (size := size_of(node)) >= 70
    }
    assert long == {}


def size_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement after the docstring: signatures and their meaning do not count as complexity."""
    body = function.body[1:] if ast.get_docstring(function) and len(function.body) > 1 else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1


def test_nothing_is_left_for_later() -> None:
    later = re.compile(r"\b(?:TO[D]O|FIX[M]E|X{3}|HA[C]K)\b|NotImplemented[E]rror")
    found = {
        shown(file): marks
        for file in FILES
        if (marks := later.findall(file.read_text().replace("SCHEDULE_TOPIC_XXXX", "")))
    }
    assert found == {}


CHANGES = {"append", "add", "update", "setdefault", "pop", "clear", "extend", "insert", "remove"}


def test_nothing_at_module_level_remembers_anything(trees: Trees, nodes: dict[Path, list[ast.AST]]) -> None:
    """Two apps in one process share no state: everything at module level is constant."""
    assert [place for file, tree in trees.items() for place in changes_of_globals(file, tree, nodes[file])] == []


def changes_of_globals(file: Path, tree: ast.Module, nodes: list[ast.AST]) -> list[str]:
    """Places that change a value at module level, or declare `global`."""
    held = {target.id for node in tree.body for target in targets_of(node) if isinstance(target, ast.Name)}
    calls = [node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    changed = [
        f"{shown(file)}:{call.lineno}: {call.value.id}.{call.attr}"
        for call in calls
        if isinstance(call.value, ast.Name) and call.value.id in held and call.attr in CHANGES
    ]
    declared = [f"{shown(file)}:{node.lineno}: global" for node in nodes if isinstance(node, ast.Global)]
    return changed + declared


def targets_of(node: ast.stmt) -> list[ast.expr]:
    """The names to which a statement assigns a mutable value."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return []
    if not isinstance(node.value, ast.List | ast.Dict | ast.Set | ast.Call):
        return []
    return node.targets if isinstance(node, ast.Assign) else [node.target]
