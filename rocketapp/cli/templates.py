"""Make a project of a template, and let it follow the template later: copier does both.

copier updates a project by the difference between two versions of its template, so it needs both. An installed
rocketapp has one; the other, which the project was made of, is in a bundle of git in that project.
"""

from __future__ import annotations

import contextlib
import keyword
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import packages_distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import copier
import copier.errors

import rocketapp
from rocketapp.cli.failure import CommandError, one_line, problem_of
from rocketapp.cli.source import Source, check, checkout, companion

ANSWERS = ".copier-answers.yml"
BUNDLE = ".copier-template.bundle"
"""In the project; its answers file names it."""
_BRANCH = "main"
_IDENTITY = ("-c", "user.name=rocketapp", "-c", "user.email=rocketapp@localhost", "-c", "core.autocrlf=false")
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
        versions = History(Path(temporary) / template)
        if has_git():
            versions.begin(folder_of(template))
            data["history"] = BUNDLE
        else:
            shutil.copytree(folder_of(template), versions.folder)
        copier.run_copy(
            str(versions.folder), folder, data=data, user_defaults=_names(folder), defaults=defaults, quiet=True
        )
        if "history" in data:
            versions.write(folder / BUNDLE)


def update(folder: Path) -> list[str] | None:
    """Bring a project to this rocketapp's version of its template; the files with conflicts. None: nothing is new.

    Raises CommandError.
    """
    bundle = folder / BUNDLE
    if not (folder / ANSWERS).is_file() or not bundle.is_file():
        raise CommandError(f"{folder}: no {ANSWERS} and {BUNDLE}: --update is for what `rocketapp new` has made")
    with TemporaryDirectory() as temporary, _explained(folder):
        versions = History(Path(temporary) / "template")
        versions.read(bundle.resolve())
        template = versions.template
        if not folder_of(template).is_dir():
            raise CommandError(
                f"{folder} was made of the template {template!r}, which this rocketapp does not have: "
                "run the rocketapp that made it, or a newer one"
            )
        if not versions.add(folder_of(template)):
            return None
        with _replaced(bundle, versions):
            _run_update(folder, versions.newest)
    return list(_conflicts(folder))


def _run_update(folder: Path, version: str) -> None:
    _hide(folder, True)
    try:
        with contextlib.chdir(folder):  # where the answers file names the bundle from
            copier.run_update(".", defaults=True, overwrite=True, quiet=True, vcs_ref=version)
    finally:
        _hide(folder, False)


@contextlib.contextmanager
def _replaced(bundle: Path, versions: History) -> Iterator[None]:
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
        raise CommandError(f"{error.filename or folder}: {problem_of(error)}: choose another folder") from error


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
        for name in ("lake", "pyspark"):
            lines[f"rocketapp_{name}"] = companion(f"rocketapp-{name}", source).line()
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


def has_git() -> bool:
    """Whether versions can be kept at all."""
    return shutil.which("git") is not None


class History:
    """Of one template: a git repository in a folder, with a tag for each version: 1, 2, ..."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, template: Path) -> None:
        """With a first version, in a folder that does not exist yet."""
        self.folder.mkdir()
        _git(self.folder, "init", "--quiet")
        _git(self.folder, "symbolic-ref", "HEAD", f"refs/heads/{_BRANCH}")
        self.add(template)

    def read(self, bundle: Path) -> None:
        """From a project's bundle. Raises CommandError for a file of another kind."""
        _git(bundle.parent, "clone", "--quiet", f"--branch={_BRANCH}", bundle.name, str(self.folder))

    def add(self, template: Path) -> bool:
        """As the newest version; False when it is the same as the newest."""
        for old in self.folder.iterdir():
            if old.name != ".git":
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        shutil.copytree(template, self.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        _git(self.folder, "add", "--all", "--force")
        if not _git(self.folder, "status", "--porcelain"):
            return False
        _git(self.folder, "commit", "--quiet", "--no-verify", f"--message={template.name}")
        _git(self.folder, "tag", str(len(self._tags()) + 1))
        return True

    @property
    def template(self) -> str:
        """The name of the template."""
        return _git(self.folder, "log", "-1", "--format=%s").strip()

    @property
    def newest(self) -> str:
        """The tag of the newest version."""
        return max(self._tags(), key=int)

    def write(self, bundle: Path) -> None:
        """All versions into one file."""
        _git(self.folder, "bundle", "create", "--quiet", str(bundle.resolve()), "--all")

    def _tags(self) -> Sequence[str]:
        return _git(self.folder, "tag").split()


def _hide(project: Path, hidden: bool) -> None:
    """Let git overlook that the bundle of a project has changed: copier updates only what is committed.

    Raises CommandError when it is not committed itself.
    """
    words = ("update-index", "--assume-unchanged" if hidden else "--no-assume-unchanged", BUNDLE)
    if _run(words, project, os.environ).returncode != 0:
        raise CommandError(f"{project}: git does not have its {BUNDLE}: commit the project first")


def _conflicts(project: Path) -> Sequence[str]:
    """Files of a project in which an update and the project's own changes meet."""
    return _run(("diff", "--name-only", "--relative", "--diff-filter=U"), project, os.environ).stdout.splitlines()


def _git(folder: Path, *words: str) -> str:
    """What git prints about the versions of a template.

    Nothing of the user's own settings of git, nor of a git that runs us, plays a part.
    """
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    plain = {**surroundings, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    run = _run((*_IDENTITY, *words), folder, plain)
    if run.returncode != 0:
        raise CommandError(f"git {words[0]} in {folder}: {one_line(run.stderr or run.stdout)}")
    return run.stdout


def _run(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)
