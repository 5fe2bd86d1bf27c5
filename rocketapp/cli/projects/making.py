"""Make a project of a template, and let it follow the template later: copier does both."""

from __future__ import annotations

import contextlib
import keyword
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import copier
import copier.errors

import rocketapp
from rocketapp.cli.failure import CommandError, one_line
from rocketapp.cli.projects import history
from rocketapp.cli.projects.source import Source, check, checkout, companion

ANSWERS = ".copier-answers.yml"
MAY_BE_THERE = frozenset({".git", ".venv", "venv"})
"""What a folder may hold in which a project is made."""


def folder_of(template: str) -> Path:
    """Where a template lies: in the package, or beside it in a checkout."""
    root = checkout()
    return Path(rocketapp.__file__).parent / "_templates" / template if root is None else root / "templates" / template


def make(folder: Path, template: str, source: Source, *, defaults: bool) -> None:
    """Make a project in a folder that is empty or does not exist. Raises CommandError, which says what to do instead.

    `defaults`: without questions. Where git is installed, the project can follow its template later.
    """
    _check_folder(folder)
    check(source)
    data: dict[str, Any] = {**_sources(template, source), "taken": _taken()}
    with TemporaryDirectory() as temporary, _explained(folder):
        versions = history.History(Path(temporary) / template)
        if history.has_git():
            versions.begin(folder_of(template))
            data["history"] = history.FILE
        else:
            shutil.copytree(folder_of(template), versions.folder)
        copier.run_copy(
            str(versions.folder), folder, data=data, user_defaults=_names(folder), defaults=defaults, quiet=True
        )
        if "history" in data:
            versions.write(folder / history.FILE)


def update(folder: Path, source: Source | None) -> list[str] | None:
    """Bring a project to this rocketapp's version of its template; the files with conflicts. None: nothing is new.

    `source` replaces the one of the project. Raises CommandError.
    """
    bundle = folder / history.FILE
    if not (folder / ANSWERS).is_file() or not bundle.is_file():
        raise CommandError(f"{folder}: no {ANSWERS} and {history.FILE}: --update is for what `rocketapp new` has made")
    with TemporaryDirectory() as temporary, _explained(folder):
        versions = history.History(Path(temporary) / "template")
        versions.read(bundle.resolve())
        template = versions.template
        if not folder_of(template).is_dir():
            raise CommandError(
                f"{folder} was made of the template {template!r}, which this rocketapp does not have: "
                "run the rocketapp that made it, or a newer one"
            )
        data = {} if source is None else _sources(template, source)
        if not versions.add(folder_of(template)) and not data:
            return None
        with _replaced(bundle, versions):
            _run_update(folder, data, versions.newest)
    return list(history.conflicts(folder))


def _run_update(folder: Path, data: Mapping[str, Any], version: str) -> None:
    history.hide(folder, True)
    try:
        with contextlib.chdir(folder):  # where the answers file names the bundle from
            copier.run_update(".", dict(data), defaults=True, overwrite=True, quiet=True, vcs_ref=version)
    finally:
        history.hide(folder, False)


@contextlib.contextmanager
def _replaced(bundle: Path, versions: history.History) -> Iterator[None]:
    """The bundle has the new version; the old one again when the update fails."""
    before = bundle.read_bytes()
    versions.write(bundle)
    try:
        yield
    except BaseException:
        bundle.write_bytes(before)
        raise


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """What copier refuses is one line."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except (copier.errors.CopierError, ValueError) as error:
        raise CommandError(f"{folder}: {one_line(str(error))}") from error
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise CommandError(f"{error.filename or folder}: {problem}: choose another folder") from error


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{folder} is a file: name a folder")
    there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if found := [name for name in there if name not in MAY_BE_THERE]:
        raise CommandError(
            f"{folder} is not empty, it has {found[0]}: name a folder that is, or one that does not exist"
        )


def _sources(template: str, source: Source) -> dict[str, str]:
    """What the template asks about distributions."""
    lines = {"rocketapp": source.line()}
    if template == "pipeline":
        lines["rocketapp_pyspark"] = companion("rocketapp-pyspark", source).line()
    return lines


def _names(folder: Path) -> dict[str, str]:
    """The names that the folder's own suggests; none when no letter is in it."""
    name = re.sub(r"[^a-z0-9]+", "_", folder.resolve().name.lower()).strip("_").lstrip("0123456789_")
    if not name:
        return {}
    return {"package": f"{name}_app" if name in _taken() else name, "plugin": name.removeprefix("rocketapp_")}


def _taken() -> list[str]:
    """Names that a package cannot have: it would hide the other module, or could not be imported."""
    return sorted({"rocketapp", "tests", *keyword.kwlist, *sys.stdlib_module_names, *packages_distributions()})
