"""What one sink of a running app consists of, put together from what was declared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rocketapp import SetupError
from rocketapp.plugin import Surface
from rocketapp_pyspark.aside import Aside, BadTable, BadTopic, Guard, Outlet
from rocketapp_pyspark.declared import Sink
from rocketapp_pyspark.formats import known
from rocketapp_pyspark.session import Spark
from rocketapp_pyspark.store import Growing, Store
from rocketapp_pyspark.worker import Worker


def wall_clock() -> float:
    """Seconds since 1970."""
    return datetime.now(UTC).timestamp()


class Parts:
    """Of one sink."""

    def __init__(self, sink: Sink, surface: Surface, spark: Spark) -> None:
        """Raises SetupError for a type that no codec of the app reads, and a store that cannot do what is asked."""
        self._sink, self._surface = sink, surface
        format = known()[sink.format]
        about, new_store = sink.about(format), format.new_store
        self.store: Store = new_store(about, spark)
        self._bad_name = f"{sink.name}/bad"
        bad = replace(about, table=f"{os.fspath(sink.table)}_bad", sink=self._bad_name, partition_by=None, sort_by=())
        self._bad_store = new_store(bad, spark) if sink.bad_rows == "table" else None
        if sink.evolution == "add" and not isinstance(self.store, Growing):
            raise SetupError(sink.place, f'evolution="add": format={sink.format!r} has no add_columns')
        try:
            self.rows = sink.rows(surface.reader, refuses_nul=format.refuses_nul(about))
        except (TypeError, ValueError) as error:
            raise SetupError(sink.place, str(error)) from None

    @property
    def stores(self) -> Sequence[Store]:
        """Of its tables."""
        return [self.store] if self._bad_store is None else [self.store, self._bad_store]

    def aside(self, worker: Worker) -> Aside:
        """Where bad rows go."""
        sink = self._sink
        outlet: Outlet
        if self._bad_store is None:
            outlet = BadTopic(self._surface.publish, sink.bad_topic, sink.cluster, sink.name)
        else:
            outlet = BadTable(self._bad_store, self._bad_name, worker, wall_clock)
        return Aside(self.rows, worker, Guard(sink.most_bad), outlet)
