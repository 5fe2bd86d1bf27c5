"""The one Spark session of a process: started in the background, and anew when its JVM has died."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rocketapp import RocketAppError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("rocketapp.spark")

QUIET: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A batch is little work for a JVM: with its own defaults, half of the CPU goes into compiling and collecting.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
"""What a local session gets unless the settings say otherwise."""


DELTA: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The state of a table is small: with fifty tasks for it, as Delta has them, each commit takes seconds.
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""What a session gets beside that whose settings name a jar of Delta."""
_JARS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")


class StartError(RocketAppError):
    """The session cannot be started. The text is one line."""


class Spark:
    """Gives the session to worker threads."""

    def __init__(self, master: str, conf: Mapping[str, str]) -> None:
        self._master = master
        self.knows_delta = any("delta" in conf.get(name, "") for name in _JARS)
        """Whether its settings name a jar of Delta."""
        quiet = QUIET if master.startswith("local") else {}
        self._conf = {**quiet, **(DELTA if self.knows_delta else {}), **conf}
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._is_ours = self._is_stopped = False

    def __repr__(self) -> str:
        return f"<Spark {self._master}: {'not started' if self._session is None else 'started'}>"

    def start_soon(self) -> None:
        """Start it in a thread of its own. What goes wrong is raised by the next `session`."""
        threading.Thread(target=self._try_start, name="spark start", daemon=True).start()

    def session(self) -> SparkSession:
        """The session; waits until it is there. Raises what keeps it from starting."""
        with self._lock:
            if self._session is not None and not _is_alive():
                log.warning("the JVM of Spark has died: a new one is started")
                _forget()
                self._session = None
            if self._session is None:
                self._session = self._start()
            return self._session

    def stop(self) -> None:
        """End it, if it was started here. One that is still starting is not waited for: it ends when it is there."""
        self._is_stopped = True
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._end()
        finally:
            self._lock.release()

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None and self._is_ours and _is_alive():
            session.stop()

    def _try_start(self) -> None:
        try:
            self.session()
        except Exception as error:
            log.error("%s", error)
        if self._is_stopped:
            with self._lock:
                self._end()

    def _start(self) -> SparkSession:
        from pyspark.sql import SparkSession

        if self._master.startswith("local"):
            # Workers of Spark run `python3` of the path otherwise, which need not be this one.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self._is_ours = not is_there()
        builder = SparkSession.builder.master(self._master).appName("rocketapp")
        for name, value in self._conf.items():
            builder = builder.config(name, value)
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise StartError(f"Spark cannot start at {self._master}: {cause_of(error)}") from error
        if self._is_ours:
            session.sparkContext.setLogLevel("ERROR")
        log.info("Spark %s is there, at %s", session.version, self._master)
        return session


def cause_of(error: Any) -> str:
    """The first line of what lies behind an error of Java: its text has the whole stack otherwise."""
    java = getattr(error, "java_exception", getattr(error, "_origin", None))
    if java is None:
        return str(error).partition("\n")[0]
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.getMessage() or java.getClass().getName()).partition("\n")[0]


def is_there() -> bool:
    """Whether the process has a session already. `getActiveSession` knows only that of the calling thread."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def _is_alive() -> bool:
    """Whether the JVM that this process has started runs."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is None or process.poll() is None


def _forget() -> None:
    """pyspark keeps what belonged to a JVM for ever: without this a new one is never started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context: Any = SparkContext
    session: Any = SparkSession
    try:
        context._gateway.shutdown()
    except Exception as error:
        log.debug("the gateway of a dead JVM: %s", error)
    context._gateway = context._jvm = context._active_spark_context = None
    session._instantiatedSession = None
