"""The versions of a template that a project has followed, as a git bundle in that project.

copier updates a project by the difference between two versions of its template, so it needs both. An installed
rocketapp has one; the other, which the project was made of, is in the bundle.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocketapp.cli.failure import CommandError, one_line

FILE = ".copier-template.bundle"
"""In the project; its answers file names it."""
_BRANCH = "main"
_IDENTITY = ("-c", "user.name=rocketapp", "-c", "user.email=rocketapp@localhost", "-c", "core.autocrlf=false")


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


def hide(project: Path, hidden: bool) -> None:
    """Let git overlook that the bundle of a project has changed: copier updates only what is committed.

    Raises CommandError when it is not committed itself.
    """
    words = ("update-index", "--assume-unchanged" if hidden else "--no-assume-unchanged", FILE)
    if _run(words, project, os.environ).returncode != 0:
        raise CommandError(f"{project}: git does not have its {FILE}: commit the project first")


def conflicts(project: Path) -> Sequence[str]:
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
