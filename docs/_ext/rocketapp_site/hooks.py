"""Every hook as Markdown, from its specification."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rocketapp.hooks import specs
from rocketapp_site.prose import cell, first_sentence, markdown
from rocketapp_site.signatures import names_in, signature_of

HOOKS: dict[str, Callable[..., Any]] = {
    name: value for name, value in vars(specs).items() if hasattr(value, "rocketapp_spec")
}


def overview() -> str:
    """A table of all hooks."""
    rows = [f"| [`{name}`](#{slug_of(name)}) | {cell(first_sentence(doc_of(name)))} |" for name in HOOKS]
    return "\n".join(["| Hook | In short |", "| --- | --- |", *rows])


def slug_of(name: str) -> str:
    """The anchor of the heading of a hook, as GitHub makes it."""
    return f"{name}{'-'.join(inspect.signature(HOOKS[name]).parameters)}"


def heading_of(name: str) -> str:
    return f"### `{name}({', '.join(inspect.signature(HOOKS[name]).parameters)})`"


def signature(name: str) -> str:
    return f"```python\n@hookimpl\n{signature_of(name, HOOKS[name], bound=False)}: ...\n```"


def doc_of(name: str) -> str:
    return inspect.getdoc(HOOKS[name]) or ""


def described(name: str) -> str:
    """What the specification says: for a hook that the page says nothing of."""
    return markdown(doc_of(name), names_in(HOOKS[name]))
