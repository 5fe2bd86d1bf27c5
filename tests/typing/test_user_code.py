"""Types are part of the interface: `good.py` checks, and each marked line of `bad.py` fails as marked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def strict(file: str) -> dict[int, str]:
    """Line -> error code, as mypy --strict sees a user's file."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--no-error-summary",
        "--follow-imports=silent",
    ]
    run = subprocess.run([*command, str(HERE / file)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stderr + run.stdout
    found = re.findall(rf"{re.escape(file)}:(\d+): error: .*\[([a-z-]+)\]$", run.stdout, re.MULTILINE)
    return {int(line): code for line, code in found}


def test_what_users_write_checks() -> None:
    assert strict("good.py") == {}


def test_what_users_get_wrong_is_found() -> None:
    lines = (HERE / "bad.py").read_text().splitlines()
    marked = {number: line.rpartition("# E: ")[2] for number, line in enumerate(lines, 1) if "# E: " in line}
    assert strict("bad.py") == marked
