"""A test run whose processes are forks of one that has read its tests, as one whose processes start by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import signal
from tests.workers import fork_workers

def pytest_configure():
    signal.signal(signal.SIGINT, signal.default_int_handler)

def pytest_xdist_setupnodes(config):
    fork_workers(config.invocation_params.args)
"""
GOOD = "def test_good():\n    assert True\n"
INTERRUPTED = """
import os, signal

def test_waits():
    os.killpg(0, signal.SIGINT)
    signal.pause()
"""


def _run(directory: Path, **files: str) -> subprocess.CompletedProcess[str]:
    for name, source in {"conftest": CONFTEST, **files}.items():
        (directory / f"{name}.py").write_text(source)
    options = ("-n1", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir=.", "-rs", ".")
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=60, check=False, start_new_session=True
    )


def test_a_file_of_tests_that_cannot_be_read_to_its_end_is_told_and_runs_none_of_them(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        test_good=GOOD,
        test_lacks=GOOD + "import nonsense\n",
        test_needs=GOOD + "import pytest\npytest.importorskip('nonsense')\n",
        test_typed=GOOD + "assert 1 +\n",
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run
    assert "1 passed, 1 skipped, 2 errors" in run.stdout
    assert "No module named 'nonsense'" in run.stdout and "SyntaxError" in run.stdout


def test_ctrl_c_ends_the_run_and_its_forks(tmp_path: Path) -> None:
    run = _run(tmp_path, test_waits=INTERRUPTED)
    assert run.returncode == pytest.ExitCode.INTERRUPTED, run
    assert "Traceback" not in run.stdout + run.stderr
