"""Where a name is defined, and what is written below an attribute: what only the source can tell."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, is_typeddict


class Definition(NamedTuple):
    """A class, a function, or a value with the text below it."""

    module: str
    node: ast.stmt
    doc: str

    @property
    def source(self) -> str:
        return ast.get_source_segment(_text_of(self.module), self.node) or ""


def definition_of(module: str, name: str) -> Definition:
    """The definition behind a name of a module, through the modules that import it from each other."""
    for node, doc in _statements(_tree_of(module).body):
        if name in _defined_by(node):
            return Definition(module, node, doc)
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return definition_of(node.module, alias.name)
    raise LookupError(f"{module} has no {name}")


def attribute_docs(kind: type) -> dict[str, str]:
    """The texts below the attributes of a class, by attribute.

    Those of a TypedDict that it extends are among them: at run time that is not one of its bases.
    """
    return _attribute_docs(definition_of(kind.__module__, kind.__qualname__), above=is_typeddict(kind))


def _attribute_docs(definition: Definition, *, above: bool) -> dict[str, str]:
    node = definition.node
    assert isinstance(node, ast.ClassDef)
    docs = {name: doc for one, doc in _statements(node.body) for name in _defined_by(one) if doc}
    for base in node.bases if above else ():
        if isinstance(base, ast.Name) and base.id != "TypedDict":
            docs |= _attribute_docs(definition_of(definition.module, base.id), above=True)
    return docs


def _statements(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement, those under `if` among them, with the text that stands below it."""
    for number, node in enumerate(body):
        if isinstance(node, ast.If):
            yield from _statements(node.body)
        below = body[number + 1] if number + 1 < len(body) else None
        yield node, _text_in(below) if isinstance(node, ast.Assign | ast.AnnAssign) else ""


def _text_in(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return inspect.cleandoc(node.value.value)
    return ""


def _defined_by(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


@cache
def _text_of(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


@cache
def _tree_of(module: str) -> ast.Module:
    return ast.parse(_text_of(module))
