"""The tests of the data source on several versions of Spark, classic and Connect, and of what a sink asks of Spark.

Each version has an environment of its own below `.cache/spark`, made by pip when it is asked for first.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tests.peers.toolchain import CACHE, ROOT

VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
MODES = ("classic", "connect")
LAKE, CONTRIB = (ROOT / "contrib" / name for name in ("rocketapp-lake", "rocketapp-pyspark"))
SOURCE = ("source",)
SINK = ("sink/test_start.py", "sink/test_written_by_spark.py", "sink/test_readers.py")
"""With a session in the process of the app: these run in classic mode alone."""
DELTA, DELTA_FOR = "sink/test_delta_by_spark.py", "4.1."
"""And with the versions whose jar of Delta is tested."""
_FREE = ("pyspark", "py4j", "protobuf", "googleapis-common-protos", "opentelemetry-proto")
"""What each version of Spark chooses itself, against the project's constraints."""
_BESIDE = (
    *("pyiceberg[sql-sqlite]", "duckdb", "lz4", "zstandard", "psutil", "uvloop"),
    *("pytest", "pytest-asyncio", "pytest-rerunfailures", "pytest-timeout", "pytest-xdist", "hypothesis"),
)


def run(versions: Sequence[str], modes: Sequence[str], more: Sequence[str]) -> bool:
    """Run the tests on each; print a line for each, and return whether all passed."""
    right = True
    for version in versions:
        python = environment(version)
        for mode in modes:
            began = time.monotonic()
            log = CACHE / "spark" / f"{version}-{mode}.log"
            right = tests(python, mode, more or suites(version, mode), log) == 0 and right
            # A JVM that ends may have the last word.
            told = re.findall(r"^=* ?(\d+ (?:passed|failed|error).*)", log.read_text(errors="replace"), re.MULTILINE)
            summary = told[-1].strip("= ") if told else "nothing"
            print(f"Spark {version:6} {mode:8} {summary}  ({time.monotonic() - began:.0f} s, {log})", flush=True)
    return right


def environment(version: str) -> Path:
    """The interpreter of the environment of that version."""
    home = CACHE / "spark" / version
    python, stamp = home / "bin" / "python", home / "installed.txt"
    wanted = [f"pyspark[connect]=={version}", *requirements(), *_BESIDE]
    if stamp.exists() and stamp.read_text() == "\n".join(wanted):
        return python
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=300)
    constraints = home / "constraints.txt"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints.write_text("\n".join(line for line in lines if line.partition("==")[0] not in _FREE))
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", str(constraints)]
    subprocess.run([*command, *wanted], check=True, timeout=1800)
    # For their entry points: plugins of apps and of pytest.
    ours = [argument for folder in (ROOT, LAKE, CONTRIB) for argument in ("-e", str(folder))]
    subprocess.run([*command, "--no-deps", *ours], check=True, timeout=1800)
    stamp.write_text("\n".join(wanted))
    return python


def requirements() -> list[str]:
    """What the project and its distributions need, without Spark and without each other."""
    found = []
    for folder in (ROOT, LAKE, CONTRIB):
        found += tomllib.loads((folder / "pyproject.toml").read_text())["project"]["dependencies"]
    return [one for one in found if re.split(r"[><=\[~! ]", one)[0] not in ("pyspark", "rocketapp", "rocketapp-lake")]


def suites(version: str, mode: str) -> list[str]:
    """Where the tests for it are."""
    names = SOURCE if mode == "connect" else (*SOURCE, *SINK, *([DELTA] if version.startswith(DELTA_FOR) else []))
    return [str(CONTRIB / "tests" / name) for name in names]


def tests(python: Path, mode: str, which: Sequence[str], log: Path) -> int:
    """Run them, with what they say in `log`; the exit code of pytest."""
    paths = os.pathsep.join(map(str, (ROOT, LAKE / "src", CONTRIB / "src")))
    where = ("-c", "pyproject.toml", "--rootdir", ".")
    how = ("-q", *where, "-W", "default", "-o", "timeout=600", "-p", "no:cacheprovider")
    with log.open("wb") as out:
        return subprocess.run(
            [str(python), "-m", "pytest", *how, *which],
            env={**os.environ, "PYTHONPATH": paths, "ROCKETAPP_TESTS_SPARK": mode},
            cwd=ROOT,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=3600,
        ).returncode
