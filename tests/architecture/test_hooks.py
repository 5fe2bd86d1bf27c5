"""A hook has a plugin in rocketapp or in one of its distributions that uses it; a hook of nobody goes."""

from __future__ import annotations

import ast

from rocketapp.hooks import specs
from tests.architecture.source import PACKAGE
from tests.docs.pages import ROOT


def hooks_in_use() -> set[str]:
    """The names of all functions that are marked `@hookimpl`, with or without arguments."""
    found = set()
    files = [file for folder in (PACKAGE, *ROOT.glob("contrib/*/src")) for file in folder.rglob("*.py")]
    for text in (text for file in files if "hookimpl" in (text := file.read_text())):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                marks = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
                if any(isinstance(mark, ast.Name) and mark.id == "hookimpl" for mark in marks):
                    found.add(node.name)
    return found


def test_each_hook_has_a_plugin_that_uses_it() -> None:
    hooks = {name for name, value in vars(specs).items() if hasattr(value, "rocketapp_spec")}
    assert len(hooks) > 10
    assert hooks_in_use() == hooks
