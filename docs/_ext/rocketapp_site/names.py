"""Every public name of a package as Markdown: its signature, its docstring and its members."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import typing
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from typing import Any

from rocketapp.app import settings
from rocketapp.model import event
from rocketapp_site.definitions import attribute_docs, definition_of
from rocketapp_site.prose import markdown, plain
from rocketapp_site.signatures import names_in, shown, signature_of, signatures_of, value_of

PACKAGES = {"names": "rocketapp", "plugin-names": "rocketapp.plugin", "testing-names": "rocketapp.testing"}
"""Page of the reference -> package whose names it lists."""


def sections(package: str) -> str:
    """A section for each public name."""
    module = import_module(package)
    return "\n\n".join("\n\n".join(_section(package, name, getattr(module, name))) for name in module.__all__)


def events() -> str:
    """A section for each event."""
    found = [name for name, value in vars(event).items() if _is_event(value) and not name.startswith("_")]
    return "\n\n".join("\n\n".join(_section(event.__name__, name, getattr(event, name))) for name in found)


def members_of(kind: type) -> dict[str, Any]:
    """The public methods and properties of a class, those that it inherits from classes of ours among them."""
    found: dict[str, Any] = {}
    for base in _ours(kind):
        for name, value in vars(base).items():
            if _is_told(name, value) and name not in found and (_is_method(value) or _is_property(value)):
                found[name] = value
    return found


def _is_told(name: str, value: Any) -> bool:
    """Names of Python's own protocols are told where there is something to say of them."""
    return not name.startswith("_") or (name in ("__call__", "__aenter__", "__aexit__") and bool(value.__doc__))


def _is_event(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, event.Event)


def _section(package: str, name: str, value: Any) -> Iterator[str]:
    if inspect.ismodule(value):
        yield from (f"## `{name}`", markdown(inspect.getdoc(value) or ""))
        return
    definition = definition_of(package, name)
    yield f"## `{name}`"
    if isinstance(definition.node, ast.ClassDef):
        yield from _class(name, value)
    elif isinstance(definition.node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _function(name, value, bound=False)
    else:
        yield _code(definition.source)
        if definition.doc:
            yield markdown(definition.doc)


def _class(name: str, kind: type) -> Iterator[str]:
    if _has_constructor(kind):
        yield _code(signature_of(name, kind, bound=False))
        names = names_in(kind)
    else:
        names = set()
    fields = {} if _is_table(kind) else _fields(kind)
    if kind.__doc__ and not kind.__doc__.startswith(f"{name}("):  # the one that a dataclass makes for itself
        yield markdown(inspect.getdoc(kind) or "", names | set(fields))
    if inherited := _errors_above(kind):
        yield f"Inherits from {', '.join(f'`{base}`' for base in inherited)}."
    if _is_table(kind):
        table = next(table for table, one in settings.TABLES.items() if one is kind)
        yield f"Its options are in [Settings](settings.md#{table})."
    items = [_item(one, *about) for one, about in fields.items() if one not in names]
    items += [_item(one, "", "", about[2]) for one, about in fields.items() if one in names and about[2]]
    for one, member in members_of(kind).items():
        if _is_property(member):
            getter: Any = member.fget if isinstance(member, property) else member.func
            items.append(
                _item(one, shown(inspect.signature(getter).return_annotation), "", inspect.getdoc(member) or "")
            )
    if items:
        yield "\n".join(items)
    for one, member in members_of(kind).items():
        if _is_method(member):
            yield f"### `{name}.{one}`"
            yield from _function(one, inspect.unwrap(getattr(kind, one)), bound=not isinstance(member, classmethod))


def _function(name: str, function: Any, *, bound: bool) -> Iterator[str]:
    bound = bound and next(iter(inspect.signature(function).parameters), "") == "self"
    yield _code("\n".join(signatures_of(name, function, bound=bound)))
    if doc := inspect.getdoc(function):
        yield markdown(doc, names_in(function))


def _fields(kind: type) -> dict[str, tuple[str, str, str]]:
    """Type, default and text of each public attribute that is declared in the class, or of each member of an Enum."""
    if issubclass(kind, enum.Enum):
        docs = attribute_docs(kind)
        return {one.name: ("", "", docs.get(one.name, "")) for one in kind}
    defaults = {}
    if dataclasses.is_dataclass(kind):
        defaults = {one.name: value_of(one.default) for one in dataclasses.fields(kind)}
    found: dict[str, tuple[str, str, str]] = {}
    for base in reversed(_ours(kind)):
        docs = attribute_docs(base)
        for name, annotation in inspect.get_annotations(base).items():
            if not name.startswith("_"):
                default = defaults.get(name, "...")
                found[name] = (shown(annotation), "" if default == "..." else default, docs.get(name, ""))
    return found


def _item(name: str, kind: str, default: str, doc: str) -> str:
    text = f"- `{name}: {kind}`" if kind else f"- `{name}`"
    if default:
        text += f", `{default}` without it"
    return f"{text}: {plain(' '.join(doc.split()))}" if doc else text


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _ours(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if base.__module__.startswith("rocketapp")]


def _is_method(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)


def _is_property(value: object) -> bool:
    return isinstance(value, property | cached_property)


def _is_table(kind: type) -> bool:
    return kind in settings.TABLES.values()


def _errors_above(kind: type) -> list[str]:
    """The named exceptions from which a class inherits directly, or through those that are not public."""
    found: list[str] = []
    for base in kind.__bases__:
        if issubclass(base, BaseException):
            found += _errors_above(base) if base.__name__.startswith("_") else [base.__name__]
    return found


def _has_constructor(kind: type) -> bool:
    """False where a user makes none: protocols, TypedDicts, Enums, exceptions without arguments of their own."""
    if typing.is_typeddict(kind) or issubclass(kind, enum.Enum) or getattr(kind, "_is_protocol", False):
        return False
    if _is_table(kind):
        return False
    return any("__init__" in vars(base) or "__new__" in vars(base) for base in _ours(kind))
