"""Where rocketapp is installed from: a generated project installs the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import rocketapp
from rocketapp.cli.failure import CommandError

NAME = "rocketapp"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a distribution comes from: an index, a folder, a wheel or a repository."""

    name: str
    where: str
    """A URL of a wheel, a folder or a repository; otherwise a version of a package index, or empty for any version."""
    editable: bool = False

    @property
    def path(self) -> Path | None:
        """The wheel or folder, when it is on this machine."""
        url = urlsplit(self.where)
        return Path(unquote(url.path)) if url.scheme == "file" else None

    def line(self) -> str:
        """The line of a requirements file."""
        if self.editable:
            return f"-e {self.where}"
        if "://" in self.where:
            return f"{self.name} @ {self.where}"
        return f"{self.name}=={self.where}" if self.where else self.name


def running() -> Source:
    """Of the rocketapp that runs: its checkout, what it was installed from, or its version."""
    root = checkout()
    return Source(NAME, root.as_uri(), editable=True) if root is not None else installed(NAME)


def checkout() -> Path | None:
    """The folder with the source code of the rocketapp that runs; None when it is an installed copy."""
    root = Path(rocketapp.__file__).resolve().parents[1]
    return root if (root / "pyproject.toml").is_file() and (root / "templates").is_dir() else None


def check(source: Source) -> None:
    """Raises CommandError for a wheel or folder that has been removed since rocketapp was installed from it."""
    if source.path is not None and not source.path.exists():
        text = f"{source.name} was installed from {source.path}, which is gone: install it again"
        raise CommandError(text)


def companion(name: str, source: Source) -> Source:
    """A distribution that goes with this rocketapp. Raises CommandError when it is not found.

    In a checkout it lies in `contrib/`, and beside a wheel there is its wheel; otherwise it is taken from where it was
    installed from. With a version of rocketapp the package index has it.
    """
    path = source.path
    if path is None:
        return Source(name, "")
    if (path / "contrib" / name / "pyproject.toml").is_file():
        return Source(name, (path / "contrib" / name).as_uri(), source.editable)
    folder = path if path.is_dir() else path.parent
    if wheels := sorted(folder.glob(f"{name.replace('-', '_')}-*.whl")):
        return Source(name, wheels[-1].as_uri())
    try:
        found = installed(name)
    except PackageNotFoundError:
        text = f"{name} is not installed, and {folder} has no wheel of it: put one there, beside the one of rocketapp"
        raise CommandError(text) from None
    check(found)
    return found


def installed(name: str) -> Source:
    """What the installer noted down. Raises PackageNotFoundError for a distribution that is not installed."""
    found = distribution(name)
    noted = found.read_text("direct_url.json")
    return _noted(name, json.loads(noted)) if noted else Source(name, found.version)


def _noted(name: str, noted: dict[str, Any]) -> Source:
    """As the file `direct_url.json` has it."""
    url: str = noted["url"]
    if "vcs_info" in noted:
        return Source(name, f"{noted['vcs_info']['vcs']}+{url}@{noted['vcs_info']['commit_id']}")
    return Source(name, url, editable=noted.get("dir_info", {}).get("editable", False))


def require(what: str, library: str, extra: str) -> None:
    """Raises CommandError, which says what installs it, where `what` needs a library that is not there."""
    if find_spec(library) is None:
        raise CommandError(f"{what} needs {library}: pip install 'rocketapp[{extra}]'")
