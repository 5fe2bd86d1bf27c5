"""Puts what is made from the code into the pages of the reference.

What a page says by hand stays. A command, table or hook that a page has a heading for gets its facts below that
heading; one that it has no heading for gets a section at the end, so that none is ever missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib import import_module

from rocketapp_site import commands, hooks, names, settings

PREFIX = "docs/reference/"


def completed(page: str, text: str) -> str:
    """The text of a page with what the code knows. Other pages stay as they are."""
    complete = _PAGES.get(page.removeprefix(PREFIX)) if page.startswith(PREFIX) else None
    return text if complete is None else complete(text)


def _with_commands(text: str) -> str:
    leaves = commands.leaves()
    made = {f"rocketapp {name}": commands.usage_of(context) for name, context in leaves.items()}
    text, missing = _below_first_paragraph(text, r"^## (rocketapp [a-z -]+)\b", made)
    found = [f"## {name}\n\n{commands.help_of(leaves[name.partition(' ')[2]])}\n\n{made[name]}" for name in missing]
    return _joined(text, *found)


def _with_settings(text: str) -> str:
    made = {f"[{table}]": settings.options_of(table) for table in settings.TABLES}
    text, missing = _below_first_paragraph(text, r"^### (\[\w+\])$", made)
    return _joined(text, *(f"### {name}\n\n{made[name]}" for name in missing))


def _with_hooks(text: str) -> str:
    text = text.replace("## The hooks\n", f"## The hooks\n\n{hooks.overview()}\n", 1)
    missing = []
    for name in hooks.HOOKS:
        heading = hooks.heading_of(name)
        if heading in text:
            text = text.replace(heading, f"{heading}\n\n{hooks.signature(name)}", 1)
        else:
            missing.append(f"{heading}\n\n{hooks.signature(name)}\n\n{hooks.described(name)}")
    return text.replace("\n## Commands\n", _joined("", *missing) + "\n## Commands\n", 1)


def _with_names(package: str, text: str) -> str:
    return _joined(_linked(text, import_module(package).__all__), names.sections(package))


def _linked(text: str, known: Collection[str]) -> str:
    """The text with the names in the first column of its tables led to their sections."""

    def link(name: re.Match[str]) -> str:
        return f"[{name[0]}](#{name[1].lower()})" if name[1] in known else name[0]

    return re.sub(r"(?m)^\| [^|]*\|", lambda row: re.sub(r"`(\w+)`", link, row[0]), text)


def _with_events(text: str) -> str:
    return _joined(text, names.events())


def _below_first_paragraph(text: str, heading: str, made: Mapping[str, str]) -> tuple[str, list[str]]:
    """The text with each piece below the first paragraph of its section, and the names that have no section."""
    sections = re.split(r"(?m)^(?=#{2,4} )", text)
    missing = list(made)
    for number, section in enumerate(sections):
        found = re.match(heading, section, re.MULTILINE)
        name = next((one for one in sorted(made, key=len, reverse=True) if found and _begins(found[1], one)), None)
        if name is not None:
            parts = section.split("\n\n", 2)
            parts.insert(2, made[name])
            sections[number] = "\n\n".join(part.rstrip("\n") for part in parts) + "\n\n"
            missing.remove(name)
    return re.sub(r"\n{3,}(?=#|\Z)", "\n\n", "".join(sections)), missing


def _begins(heading: str, name: str) -> bool:
    return f"{heading} ".startswith(f"{name} ")


def _joined(*parts: str) -> str:
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


_PAGES: Mapping[str, Callable[[str], str]] = {
    "commands": _with_commands,
    "settings": _with_settings,
    "hooks": _with_hooks,
    "events": _with_events,
    **{page: partial(_with_names, package) for page, package in names.PACKAGES.items()},
}
