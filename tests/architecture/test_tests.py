"""Every test shows what it asserts: it is not left to its helpers to fail."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import ROOT, shown

SAY_IT = {
    "raises",
    "warns",
    "fail",
    "says",
    "ends",
    "ends_before_the_drain_timeout",
    "stops",
    "has",
    "assert_type",
    "check",
    "check_gaps",
    "check_allocation",
    "check_codec",
    "check_idempotency_store",
    "check_offset_store",
    "check_schema",
}
"""Calls that name an expectation: of pytest, of a started command, of a table that is filled, of a file's own check."""


def functions_of(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The tests of a file and of its classes: no test is in a function, and a walk through those would take long."""
    left: list[ast.AST] = [ast.parse(file.read_text())]
    while left:
        node = left.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.If):
            left += [*node.body, *getattr(node, "orelse", ())]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def says_something(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and name_of(node.func) in SAY_IT)
        for node in ast.walk(test)
    )


def name_of(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def test_every_test_asserts_something_visible() -> None:
    files = [file for folder in ("tests", "contrib", "example_app") for file in (ROOT / folder).rglob("test_*.py")]
    silent = [
        f"{shown(file)}:{test.lineno}"
        for file in sorted(files)
        for test in functions_of(file)
        if not says_something(test)
    ]
    assert silent == []
