"""Projects as a user makes them, and commands in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEMPLATES = ("app", "plugin", "pipeline")


def run(folder: Path, *words: str, code: int = 0, environment: Mapping[str, str] | None = None) -> str:
    """What a program says that ends with this code: stdout, and stderr behind it."""
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def rocketapp(folder: Path, *words: str, code: int = 0, environment: Mapping[str, str] | None = None) -> str:
    """The same of the command `rocketapp`."""
    return run(folder, sys.executable, "-m", "rocketapp", *words, code=code, environment=environment)


def new(folder: Path, name: str, *options: str) -> Path:
    """A project in a folder of this name."""
    rocketapp(folder, "new", name, "--defaults", *options)
    return folder / name


def copy_of_rocketapp(folder: Path) -> None:
    """Another checkout, whose templates may be changed."""
    from shutil import copytree, ignore_patterns

    # With what is compiled, for the commands that run in it, but not with what is being written.
    copytree(ROOT / "rocketapp", folder / "rocketapp", ignore=ignore_patterns("*.pyc.*"))
    copytree(ROOT / "templates", folder / "templates", ignore=ignore_patterns("__pycache__"))
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())


def installed_as(folder: Path, project: Path, name: str, entry_point: str) -> dict[str, str]:
    """The environment in which a plugin counts as installed: its code, and a note of its entry point."""
    note = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    note.mkdir(parents=True)
    (note / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    (note / "entry_points.txt").write_text(f"[rocketapp]\n{entry_point}\n")
    paths = [str(project / "src"), str(folder), str(ROOT)]
    return {"PYTHONPATH": os.pathsep.join(paths), "MYPYPATH": os.pathsep.join([str(project / "src"), str(ROOT)])}
