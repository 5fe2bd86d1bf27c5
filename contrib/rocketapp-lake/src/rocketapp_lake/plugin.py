"""The plugin: `app.sink(...)`, and one writer per sink."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from rocketapp_lake.settings import LakeConfig
from rocketapp_lake.worker import Worker

if TYPE_CHECKING:
    # Arrow takes a while to import: an app without a sink does without it.
    from types import FrameType

    from rocketapp_lake.declared import Sink
    from rocketapp_lake.options import Declared, Transform
    from rocketapp_lake.writer import Writer
    from rocketapp_lake.writing import BatchWriter


class LakePlugin:
    """One per app."""

    def __init__(self) -> None:
        self._sinks: dict[tuple[str, str, str], Sink] = {}
        """By cluster, topic and group."""
        self._writers: list[Writer] = []
        """All of this run, those that are closed too."""
        self._surface: Surface | None = None
        self._batch_writers: dict[str, BatchWriter] = {}
        """By name, without Arrow."""
        self._tasks = Tasks()

    @hookimpl
    def options(self) -> tuple[str, type[LakeConfig]]:
        return "lake", LakeConfig

    @hookimpl
    def app_methods(self, app: RocketApp) -> Mapping[str, Callable[..., Any]]:
        return {"sink": partial(self._declare, app)}

    @hookimpl
    def app_setup(self, app: Surface) -> None:
        """The start of a run: what the hooks after it need."""
        self._surface, self._writers, self._tasks = app, [], Tasks(app.observe)

    @hookimpl
    def metrics(self) -> ReadMetrics | None:
        """Figures of all sinks. They stay when these are closed: the last export comes after that."""
        return self._metrics if self._sinks else None

    def _metrics(self, now: AppSnapshot) -> Sequence[Metric]:
        from rocketapp_lake.counts import metrics_of

        return metrics_of(self._writers, now)

    @hookimpl
    def sink(self, subscription: Subscription) -> SinkMode | None:
        declared = self._sinks.get((subscription.cluster, subscription.topic, subscription.group))
        if declared is None or self._surface is None:
            return None
        from rocketapp_lake.assembly import assembled
        from rocketapp_lake.writing import batch_writer

        surface = self._surface
        name = declared.writer_name(surface.options(LakeConfig).writer)
        if name != "arrow" and name not in self._batch_writers:
            self._batch_writers[name] = batch_writer(name, surface)
        writer, mode = assembled(declared, surface, self._batch_writers.get(name), self._tasks)
        self._writers.append(writer)
        return mode

    @hookimpl
    def app_startup(self) -> None:
        for one in self._batch_writers.values():
            one.start()

    @hookimpl
    async def app_shutdown(self) -> None:
        batch_writers, self._batch_writers = self._batch_writers, {}
        for writer in self._writers:
            writer.close()
        await self._tasks.close()
        for name, one in batch_writers.items():
            worker = Worker(f"{name} stop")
            await worker.run(one.stop)
            worker.stop()

    def _declare(self, app: RocketApp, topic: str | Sequence[str], **options: Any) -> Declared:
        """`app.sink(...)`: see `rocketapp_lake.sink`."""
        from rocketapp_lake.declared import Sink, caller_of

        caller = caller_of(sys._getframe(1))
        place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        topics = [topic] if isinstance(topic, str) else list(topic)
        if not topics:
            raise SetupError(place, "no topic is named")
        sinks = [Sink.of(app.name, one, options, place) for one in topics]
        for sink in sinks:
            self._add(app, sink, caller)

        def decorate(function: Transform) -> Transform:
            for sink in sinks:
                sink.decorate(function)
            return function

        return decorate

    def _add(self, app: RocketApp, sink: Sink, caller: FrameType) -> None:
        from rocketapp_lake.declared import handler_of, held

        for problem in self._problems(app, sink):
            raise SetupError(sink.place, problem)
        try:
            subscribe = app.subscribe(
                held(sink.topic, sink.schema),
                group=sink.group,
                tags=sink.tags,
                start=sink.start,
                cluster=sink.cluster,
            )
            subscribe(handler_of(sink.name, caller))
        except SetupError as error:
            raise SetupError(sink.place, error.problem) from None
        self._sinks[sink.key] = sink

    def _problems(self, app: RocketApp, sink: Sink) -> Iterator[str]:
        from rocketapp_lake.declared import problems_of
        from rocketapp_lake.formats import format_problems

        yield from problems_of(sink)
        yield from format_problems(sink)
        if sink.bad_rows == "topic":
            try:
                app.publisher(sink.bad_topic, bytes)
            except SetupError as error:
                yield f"bad_rows_topic={sink.bad_topic!r}: {error.problem}"
        for other in self._sinks.values():
            if (other.name, other.directory) == (sink.name, sink.directory):
                yield f"the sink at {other.place} has the same name and table: give one of them another name="
            if other.key == sink.key:
                yield f"the sink at {other.place} has the same topic and group: give one of them another group="
