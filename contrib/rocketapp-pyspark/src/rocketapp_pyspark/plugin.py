"""The plugin: `app.sink(...)`, one writer per sink, one Spark session per process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rocketapp import RocketApp, SetupError
from rocketapp.plugin import (
    AppSnapshot,
    Metric,
    ReadMetrics,
    Subscription,
    Surface,
    Tasks,
    hookimpl,
)
from rocketapp.plugin import Sink as SinkMode
from rocketapp_pyspark.session import Spark, is_there
from rocketapp_pyspark.settings import SparkConfig, check_java, spark_of
from rocketapp_pyspark.worker import Worker

if TYPE_CHECKING:
    # Arrow takes a while to import: an app without a sink does without it.
    from rocketapp_pyspark.declared import Sink
    from rocketapp_pyspark.rows import Transform
    from rocketapp_pyspark.writer import Writer


class SparkPlugin:
    """One per app."""

    def __init__(self) -> None:
        self._sinks: dict[tuple[str, str, str], Sink] = {}
        """By cluster, topic and group."""
        self._writers: list[Writer] = []
        self._watched: list[Writer] = []
        """All of this run, those that are closed too."""
        self._surface: Surface | None = None
        self._spark: Spark | None = None
        self._tasks: Tasks | None = None

    @hookimpl
    def options(self) -> tuple[str, type[SparkConfig]]:
        return "spark", SparkConfig

    @hookimpl
    def app_methods(self, app: RocketApp) -> Mapping[str, Callable[..., Any]]:
        return {"sink": partial(self._declare, app)}

    @hookimpl
    def app_setup(self, app: Surface) -> None:
        """The start of a run: what the hooks after it need."""
        self._surface, self._writers, self._watched = app, [], []

    @hookimpl
    def metrics(self) -> ReadMetrics | None:
        """Figures of all sinks. They stay when these are closed: the last export comes after that."""
        return self._metrics if self._sinks else None

    def _metrics(self, now: AppSnapshot) -> Sequence[Metric]:
        from rocketapp_pyspark.counts import metrics_of

        return metrics_of(self._watched, now)

    @hookimpl
    def sink(self, subscription: Subscription) -> SinkMode | None:
        declared = self._sinks.get((subscription.cluster, subscription.topic, subscription.group))
        if declared is None or self._surface is None:
            return None
        from rocketapp_pyspark.assembly import assembled

        surface = self._surface
        if self._tasks is None:
            self._tasks = Tasks(surface.observe)
            self._spark = spark_of(surface.options(SparkConfig))
        assert self._spark is not None
        writer, mode = assembled(declared, surface, self._spark, self._tasks)
        self._writers.append(writer)
        self._watched.append(writer)
        return mode

    @hookimpl
    def app_startup(self) -> None:
        if self._spark is None:
            return
        from rocketapp_pyspark.formats import known

        formats = known()
        if any(sink.needs_spark(formats[sink.format]) for sink in self._sinks.values()):
            if not is_there():
                check_java(os.environ)
            self._spark.start_soon()

    @hookimpl
    async def app_shutdown(self) -> None:
        tasks, spark, writers = self._tasks, self._spark, self._writers
        self._tasks, self._spark, self._writers = None, None, []
        for writer in writers:
            writer.close()
        if tasks is not None:
            await tasks.close()
        if spark is not None:
            worker = Worker("spark stop")
            await worker.run(spark.stop)
            worker.stop()

    def _declare(self, app: RocketApp, topic: str, **options: Any) -> Callable[[Transform], Transform]:
        """`app.sink(...)`: see `rocketapp_pyspark.sink`."""
        from rocketapp_pyspark.declared import Sink, caller_of, handler_of, held

        caller = caller_of(sys._getframe(1))
        place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        sink = Sink.of(app.name, topic, options, place)
        self._check(app, sink)
        try:
            about = held(topic, sink.schema)
            subscribe = app.subscribe(about, group=sink.group, tags=sink.tags, start=sink.start, cluster=sink.cluster)
            subscribe(handler_of(sink.name, caller))
        except SetupError as error:
            raise SetupError(place, error.problem) from None
        self._sinks[sink.key] = sink
        return sink.decorate

    def _check(self, app: RocketApp, sink: Sink) -> None:
        from rocketapp_pyspark.declared import problem_of
        from rocketapp_pyspark.formats import known

        problem = problem_of(sink, known())
        if problem is None:
            try:
                sink.columns()
            except TypeError as error:
                problem = f"schema={sink.schema!r}: {error}"
        if problem is None and sink.bad_rows == "topic":
            try:
                app.publisher(sink.bad_topic, bytes)
            except SetupError as error:
                problem = f"bad_rows_topic={sink.bad_topic!r}: {error.problem}"
        for other in self._sinks.values():
            if problem is not None:
                break
            if (other.name, other.full_table) == (sink.name, sink.full_table):
                problem = f"the sink at {other.place} has the same name and table: give one of them another name="
            elif other.key == sink.key:
                problem = f"the sink at {other.place} has the same topic and group: give one of them another group="
        if problem is not None:
            raise SetupError(sink.place, problem)
