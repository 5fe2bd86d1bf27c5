"""Processes that are killed with SIGKILL lose nothing and write nothing twice. `kills.py` has longer runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

KILLS = Path(__file__).with_name("kills.py")


def run(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(KILLS), *arguments], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_a_death_at_any_point_of_a_commit_of_a_directory_loses_and_doubles_nothing() -> None:
    found = run("--points", "--format", "parquet")
    assert (found["lost"], found["duplicates"], found["foreign"]) == (0, 0, 0)
    assert found["points"] == 6


@pytest.mark.slow
def test_deaths_at_random_moments_lose_and_double_nothing() -> None:
    found = run("--kills", "2", "--compact")
    assert (found["lost"], found["duplicates"], found["foreign"]) == (0, 0, 0)
    assert found["commits"] > 4


@pytest.mark.slow
def test_two_live_owners_of_the_same_queues_lose_and_double_nothing() -> None:
    found = run("--freezes", "2")
    assert (found["lost"], found["duplicates"], found["foreign"]) == (0, 0, 0)
    assert found["races"] > 0


@pytest.mark.slow
def test_the_same_deaths_double_rows_where_a_handler_appends_its_batch() -> None:
    # Of eight, one at least falls between the rows and the offset: of three, all missed it once.
    assert run("--kills", "8", "--naive")["duplicates"] > 0


@pytest.mark.slow
def test_deaths_in_and_behind_a_transaction_and_between_them_lose_and_double_nothing() -> None:
    found = run("--points", "--kills", "2", "--format", "sql")
    assert (found["lost"], found["duplicates"], found["foreign"]) == (0, 0, 0)
    assert (found["points"], found["messages"] > 0) == (3, True)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_death_around_the_commit_of_a_lake_loses_and_doubles_nothing(format: str) -> None:
    found = run("--points", "--format", format)
    assert (found["lost"], found["duplicates"], found["foreign"]) == (0, 0, 0)
    assert (found["points"], found["messages"] > 0) == (2, True)
