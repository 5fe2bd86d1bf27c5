"""`rocketapp sink show` reads the table alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from sink_shop import by_arrow
from store_suite import OTHER, put

from rocketapp_lake.commands import command
from rocketapp_lake.parquet import LOG, ParquetStore
from rocketapp_lake.staging import STAGING


@pytest.fixture
def table(tmp_path: Path) -> Path:
    store = ParquetStore(tmp_path, "shop/orders", write=by_arrow)
    put(store, "a", 0, 1, sink="shop/orders")
    put(store, "b", 7, queue=OTHER, sink="shop/orders")
    (tmp_path / STAGING / "c").mkdir(parents=True)
    return tmp_path


def shown(*arguments: str) -> str:
    return CliRunner().invoke(command, ["show", *arguments]).output


def test_it_shows_where_each_queue_stands_and_what_is_left_over(table: Path) -> None:
    assert shown(str(table)).splitlines() == [
        "shop/orders: commit 2 at 1970-01-01T00:00:01+00:00, 3 rows",
        "  orders@broker-a:0  next #2",
        "  orders@broker-a:1  next #8",
        "staged and not published: 1 batches",
    ]


def test_it_shows_the_newest_commits(table: Path) -> None:
    assert "  commit 2 at 1970-01-01T00:00:01+00:00: 1 rows of orders@broker-a:1 #7-#7" in shown(
        str(table), "--commits", "1"
    )


def test_an_unknown_sink_is_refused_with_those_that_are_there(table: Path) -> None:
    done = CliRunner().invoke(command, ["show", str(table), "--name", "other"])
    assert done.exit_code == 2
    assert "is not the table of a sink named other: it has shop/orders" in done.output


def test_a_directory_without_a_sink_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["show", str(tmp_path)])
    assert (done.exit_code, "is not the table of a sink, or has no commit yet" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("table", "problem"),
    [("shop.orders", "if it is a table of a database, a database sees to its files itself, as PostgreSQL by VACUUM")],
)
def test_a_table_that_has_no_compaction_says_what_does_it_instead(table: str, problem: str) -> None:
    done = CliRunner().invoke(command, ["compact", table])
    assert (done.exit_code, problem in " ".join(done.output.split())) == (2, True)


@pytest.mark.parametrize("call", ["show", "compact"])
def test_a_damaged_log_is_told_in_one_line(table: Path, call: str) -> None:
    for file in (table / LOG).rglob("*.json"):
        file.write_bytes(b"{}")
    done = CliRunner().invoke(command, [call, str(table)])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert "json is damaged: restore it from a copy of the table" in done.output


def test_less_than_no_commits_are_refused(table: Path) -> None:
    done = CliRunner().invoke(command, ["show", str(table), "--commits", "-1"])
    assert (done.exit_code, "'--commits': -1 is not in the range" in done.output) == (2, True)
