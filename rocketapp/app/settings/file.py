"""Which line of a settings file says something; asked for an error alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rocketapp.app.settings.values import nearest

SWITCHER: Final = "ENV_FOR_DYNACONF"
"""The variable that chooses the file's environment; `development` without it, as dynaconf has it."""
DEVELOPMENT: Final = "development"
_FOR_ALL = ("default", "global")
"""Environments that hold whichever one was chosen."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one file, by the way in which they hold."""

    plain: frozenset[str]
    chosen: frozenset[str]
    """Tables of the chosen environment, and of those that always hold."""
    environments: frozenset[str]
    """Names of the environments that have tables, without those that always hold."""


def environment_of(environ: Mapping[str, str]) -> str:
    """The chosen environment, in small letters as dynaconf compares them."""
    return (environ.get(SWITCHER) or DEVELOPMENT).lower()


def tables_of(raw: Mapping[str, Any], chosen: str, known: Mapping[str, Any]) -> Tables:
    """What the tables at the top of a file are; `known`: the tables of options."""
    plain, of_chosen, environments = set[str](), set[str](), set[str]()
    for name, content in _tables(raw):
        if name in (*_FOR_ALL, chosen):
            of_chosen.update(table.lower() for table in content)
        elif name in known or not _is_environment(content, known):
            plain.add(name)
        if name not in (*known, *_FOR_ALL) and _is_environment(content, known):
            environments.add(name)
    return Tables(frozenset(plain), frozenset(of_chosen), frozenset(environments))


def environment_problem(chosen: str, environments: frozenset[str]) -> str | None:
    """Why the chosen environment cannot be meant, if it cannot be.

    `development` needs no table: without the variable it is the environment of every file.
    """
    if not environments or chosen in (DEVELOPMENT, *_FOR_ALL, *environments):
        return None
    return f"has no table of the environment {chosen!r} that {SWITCHER} names; {nearest(chosen, environments)}"


def clusters_in(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Every table that names a cluster, whatever environment it belongs to: `[client]`, `[production.client]`."""
    found = []
    for name, content in _tables(raw):
        if name == "client" and _names_cluster(content):
            found.append("[client]")
        found += [
            f"[{name}.client]" for table, options in _tables(content) if table == "client" and _names_cluster(options)
        ]
    return tuple(found)


def _names_cluster(options: Mapping[str, Any]) -> bool:
    return any(key.lower() == "name_server" and value for key, value in options.items())


def _tables(content: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((name.lower(), table) for name, table in content.items() if isinstance(table, dict))


def _is_environment(content: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """A table of tables, one of which we know."""
    if not all(isinstance(table, dict) for table in content.values()):
        return False
    return not content or any(name.lower() in known for name in content)


def line_of(text: str, paths: list[tuple[str, ...]]) -> int | None:
    """The line on which the statement of the first of these paths begins that is in the file, or None.

    TOML's readers give no positions. But what stands before a statement is a file as well, without the path, and with
    the statement it has the path. Only lines with the path's last name are tried.
    """
    lines = text.split("\n")
    for path in paths:
        for number, line in enumerate(lines):
            if path[-1].lower() in line.lower() and _begins(lines, number, path):
                return number + 1
    return None


def _begins(lines: list[str], number: int, path: tuple[str, ...]) -> bool:
    before = _read(lines[:number])
    if before is None or _has(before, path):
        return False
    for end in range(number + 1, len(lines) + 1):  # a statement may go over several lines
        raw = _read(lines[:end])
        if raw is not None:
            return _has(raw, path)
    return False


def _read(lines: list[str]) -> dict[str, Any] | None:
    import tomllib

    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return None


def _has(raw: Any, path: tuple[str, ...]) -> bool:
    """Names of tables may be in capitals, as dynaconf has it."""
    for name in path:
        if not isinstance(raw, Mapping):
            return False
        folded = {key.lower(): value for key, value in raw.items()}
        if name.lower() not in folded:
            return False
        raw = folded[name.lower()]
    return True
