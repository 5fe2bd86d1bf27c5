"""Spark starts beside the app, and does not keep it from stopping."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from sink_shop import Shop

from rocketapp import ConfigError
from rocketapp_pyspark.session import Spark, StartError
from rocketapp_pyspark.settings import SparkConfig, check_java, spark_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Session:
    """Says when it was ended."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def stop(self) -> None:
        self.ended.set()


class SlowSpark(Spark):
    """Starts when it is told to."""

    def __init__(self) -> None:
        super().__init__("local[1]", {})
        self.is_starting, self.may_start, self.made = threading.Event(), threading.Event(), Session()

    def _start(self) -> SparkSession:
        self._is_ours = True
        self.is_starting.set()
        assert self.may_start.wait(30)
        return cast("SparkSession", self.made)


def test_a_session_that_is_still_starting_is_not_waited_for_and_ends_when_it_is_there() -> None:
    spark = SlowSpark()
    spark.start_soon()
    assert spark.is_starting.wait(30)
    spark.stop()
    assert not spark.made.ended.is_set()
    spark.may_start.set()
    assert spark.made.ended.wait(30)


def test_a_session_that_is_there_ends_at_once() -> None:
    spark = SlowSpark()
    spark.may_start.set()
    assert spark.session() is spark.made
    spark.stop()
    assert spark.made.ended.is_set()


def test_a_session_of_the_program_is_used_and_not_ended(spark: SparkSession) -> None:
    sink = Spark("local[2]", {})
    sink.start_soon()  # in a thread, where no session is the active one
    assert sink.session().sparkContext is spark.sparkContext
    sink.stop()
    assert spark.range(3).count() == 3


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"JAVA_HOME": "/opt/none", "PATH": "/usr/bin"}, "JAVA_HOME: /opt/none has no bin/java: install a JDK 17"),
        ({"PATH": "/opt/none"}, "spark: no java is in PATH: install a JDK 17 .* or give the sinks written_by='arrow'"),
    ],
)
def test_a_missing_jdk_is_named(environment: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_java(environment)


@pytest.mark.parametrize("name", ["JAVA_HOME", "PATH"])
def test_a_jdk_is_found_where_spark_looks_for_it(name: str, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    with pytest.raises(ConfigError):
        check_java({})
    check_java({name: str(tmp_path if name == "JAVA_HOME" else java.parent)})


async def test_an_app_whose_sink_needs_spark_does_not_start_without_a_jdk(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketapp_pyspark.writing.is_there", lambda: False)  # other tests leave a session
    monkeypatch.setenv("JAVA_HOME", "/opt/none")
    with pytest.raises(ConfigError, match="/opt/none has no bin/java"):
        async with shop.app(format="parquet", written_by="spark"):
            pass
    async with shop.app(format="parquet") as app:
        await shop.send(app, [1])
        await shop.has(1)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (SparkConfig(master="lokal[2]"), r"spark.master: 'lokal\[2\]' cannot be read: give local\[N\]"),
        (SparkConfig(conf=("spark.ui.enabled",)), r"spark.conf\[0\]: give name=value"),
    ],
)
def test_settings_that_cannot_work_are_refused(config: SparkConfig, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        spark_of(config)


def test_a_session_that_does_not_start_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", _refuse)
    with pytest.raises(StartError) as caught:
        Spark("local[1]", {}).session()
    assert str(caught.value) == "Spark cannot start at local[1]: one line"


def _refuse(builder: object) -> None:
    raise RuntimeError("one line\nand the stack")
