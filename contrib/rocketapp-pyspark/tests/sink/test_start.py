"""Spark starts beside the app, and does not keep it from stopping."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from rocketapp_pyspark.session import Spark

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
