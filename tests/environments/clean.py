"""Wheels as a release builds them, environments that know nothing of this one, and commands in them."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
FOLDERS = {
    tomllib.loads(file.read_text())["project"]["name"]: file.parent
    for file in (ROOT / "pyproject.toml", *sorted(ROOT.glob("contrib/*/pyproject.toml")))
}
"""Name of a distribution -> where its pyproject.toml is."""
CODE = {
    "rocketapp": {"rocketapp": "rocketapp", "templates": "rocketapp/_templates"},
    "rocketapp-lake": {"src/rocketapp_lake": "rocketapp_lake"},
    "rocketapp-pyspark": {f"src/{name}": name for name in ("rocketapp_pyspark", "pyspark_rocketmq")},
    "rocketapp-redis": {"src/rocketapp_redis": "rocketapp_redis"},
    "rocketapp-sqlalchemy": {"src/rocketapp_sqlalchemy": "rocketapp_sqlalchemy"},
}
"""Name of a distribution -> folder of the checkout -> its folder in the wheel."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
_PAUSE = threading.Event()


class StepError(Exception):
    """A step has failed: the command, and the end of what it said."""


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StepError(
            f"{shlex.join(words)} in {folder}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}"
        )
    return done.stdout


def build(folder: Path, names: Iterable[str] = FOLDERS) -> dict[str, Path]:
    """Name of a distribution -> its wheel, built of its sdist, which lies beside it."""
    tools = environment(folder / "tools", sys.executable, "build")
    wheels = {}
    for name in names:
        run(folder, str(tools / "python"), "-m", "build", "--outdir", str(folder), str(FOLDERS[name]))
        (wheels[name],) = folder.glob(f"{name.replace('-', '_')}-*.whl")
    return wheels


def differs(name: str, wheel: Path) -> list[str]:
    """What the wheel and the sdist beside it have and should not have, or the other way round."""
    tracked = run(FOLDERS[name], "git", "ls-files").splitlines()
    code = {file: folder for file in tracked for folder in CODE[name] if file.startswith(f"{folder}/")}
    note = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    wanted = {CODE[name][folder] + file.removeprefix(folder) for file, folder in code.items()}
    wanted |= {f"{note}/{one}" for one in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE", "licenses/NOTICE")}
    if "entry-points" in (about := tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text())["project"]):
        wanted.add(f"{note}/entry_points.txt")
    with ZipFile(wheel) as archive:
        found = {one for one in archive.namelist() if not one.endswith("/")}
    source = wheel.with_name("-".join(wheel.name.split("-")[:2]) + ".tar.gz")
    also = {"pyproject.toml", "PKG-INFO", about["readme"], ".gitignore", "LICENSE", "NOTICE"}
    also |= {"CHANGELOG.md", "SECURITY.md"} if name == "rocketapp" else set()
    with tarfile.open(source) as packed:
        held = {member.name.partition("/")[2] for member in packed.getmembers() if member.isfile()}
    return [f"{wheel.name}: {one}" for one in sorted(found ^ wanted)] + [
        f"{source.name}: {one}" for one in sorted(held ^ (set(code) | also))
    ]


def environment(folder: Path, python: str, *requirements: str) -> Path:
    """A new environment with these, installed as a stranger's pip would; its folder of programs."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    run(folder.parent, python, "-m", "venv", str(folder))
    run(folder.parent, str(folder / "bin/pip"), "install", "--quiet", *requirements)
    return folder / "bin"


def run_and_send(folder: Path, command: Sequence[str], send: Sequence[str], says: str) -> str:
    """Start it, send a message from a second terminal, read the log, Ctrl-C. Returns what it said until it ended."""
    log = folder / "run.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=out, stderr=out, start_new_session=True)
    try:
        _await(log, "started, process", process)
        run(folder, *send)
        _await(log, says, process)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(40)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    said = log.read_text()
    if not re.search(r"^handled=[12] retried=0 dead_lettered=0 unmatched=0$", said, re.MULTILINE):
        raise StepError(f"{shlex.join(command)} in {folder} ended so:\n{said[-3000:]}")
    return said


def _await(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not re.search(pattern, log.read_text()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise StepError(f"{log} never had {pattern!r}:\n{log.read_text()[-3000:]}")
        _PAUSE.wait(0.05)
