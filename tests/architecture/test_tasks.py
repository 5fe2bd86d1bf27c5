"""Every task has one owner that awaits it: tasks are made in rocketapp/tasks.py alone."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.source import FILES, PACKAGE, shown

MAKERS = {"create_task", "ensure_future", "TaskGroup"}


def made_in(tree: ast.AST) -> list[int]:
    """The lines that make a task, or import what makes one."""
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt) and is_maker(node)]


def is_maker(node: ast.expr | ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "asyncio" and any(alias.name in {*MAKERS, "Task"} for alias in node.names)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "Task"
    return isinstance(node, ast.Attribute) and node.attr in MAKERS


def test_tasks_are_made_by_their_one_owner() -> None:
    texts = {file: text for file in FILES if any(name in (text := file.read_text()) for name in (*MAKERS, "Task"))}
    makers = {file: lines for file, text in texts.items() if (lines := made_in(ast.parse(text)))}
    assert makers.pop(PACKAGE / "tasks.py")
    assert {shown(file): lines for file, lines in makers.items()} == {}


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.create_task(work())",
        "asyncio.get_running_loop().create_task(work())",
        "asyncio.ensure_future(work())",
        "asyncio.Task(work(), loop=loop)",
        "from asyncio import create_task as go",
        "start = loop.create_task",
    ],
)
def test_no_way_round_the_owner_is_overlooked(line: str) -> None:
    assert made_in(ast.parse(line)) == [1]


def test_the_type_of_a_task_is_no_task() -> None:
    assert made_in(ast.parse("def end(task: asyncio.Task[None]) -> None: task.cancel()")) == []
