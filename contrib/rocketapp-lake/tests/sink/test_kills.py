"""Processes that are killed with SIGKILL lose nothing and write nothing twice. `kills.py` has longer runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """What a run of `kills.py` in this process has counted."""
    import kills

    def counted(*arguments: str) -> dict[str, Any]:
        kills.main(arguments)
        found: dict[str, Any] = json.loads(capfd.readouterr().out.splitlines()[-1])
        return found

    with patch.dict(os.environ):
        yield counted


@pytest.mark.slow
def test_a_death_at_any_point_of_a_commit_of_a_directory_loses_and_doubles_nothing(run: Run) -> None:
    found = run("--points", "--format", "parquet")
    assert (found["lost"], found["duplicates"], found["foreign"]) == (0, 0, 0)
    assert found["points"] == 6


@pytest.mark.slow
def test_deaths_at_random_moments_lose_and_double_nothing(run: Run) -> None:
    found = run("--kills", "2", "--compact")
    assert (found["lost"], found["duplicates"], found["foreign"]) == (0, 0, 0)
    assert found["commits"] > 4


@pytest.mark.slow
def test_two_live_owners_of_the_same_queues_lose_and_double_nothing(run: Run) -> None:
    found = run("--freezes", "2")
    assert (found["lost"], found["duplicates"], found["foreign"]) == (0, 0, 0)
    assert found["races"] > 0


@pytest.mark.slow
def test_the_same_deaths_double_rows_where_a_handler_appends_its_batch(run: Run) -> None:
    # Of eight, one at least falls between the rows and the offset: of three, all missed it once.
    assert run("--kills", "8", "--naive")["duplicates"] > 0


@pytest.mark.slow
def test_deaths_in_and_behind_a_transaction_and_between_them_lose_and_double_nothing(run: Run) -> None:
    found = run("--points", "--kills", "2", "--format", "sql")
    assert (found["lost"], found["duplicates"], found["foreign"]) == (0, 0, 0)
    assert (found["points"], found["messages"] > 0) == (3, True)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_death_around_the_commit_of_a_lake_loses_and_doubles_nothing(run: Run, format: str) -> None:
    found = run("--points", "--format", format)
    assert (found["lost"], found["duplicates"], found["foreign"]) == (0, 0, 0)
    assert (found["points"], found["messages"] > 0) == (2, True)
