"""One Spark session for all tests of this folder. Without a JDK they are skipped, and the run says so at its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUITE = "tests with Spark"
_OLDEST = 17
JARS = Path(__file__).parents[3] / ".cache" / "spark-jars"
"""What `make test` has fetched of jars/pom.xml."""
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""It lives for minutes: compiling for speed, or checking the classes of Spark's jars, would cost more than it wins."""
_not_run: list[str] = []
collect_ignore = [] if version("pyspark").startswith("4.1.") else ["sink/test_delta_by_spark.py"]
"""Spark writes Delta tables where a jar for its version is tested."""


def _java_problem() -> str | None:
    """Why Spark cannot run here; None when it can."""
    if shutil.which("java") is None:
        return f"java is missing: install a JDK {_OLDEST} or newer"
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False, timeout=300).stderr
    version = shown.partition('"')[2].partition(".")[0]
    if version.isdigit() and int(version) >= _OLDEST:
        return None
    return f"java is {version or 'unknown'}: install a JDK {_OLDEST} or newer"


def pytest_itemcollected(item: pytest.Item) -> None:
    """`-m "not spark"` leaves out what needs Spark."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker("spark")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of several tells the process that reports what it could not run."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told[SUITE] = _not_run


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _not_run.extend(getattr(node, "workeroutput", {}).get(SUITE, ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for problem in _not_run:
        terminalreporter.write_line(f"NOT RUN: {SUITE}: {problem}", red=True, bold=True)


@pytest.fixture(scope="session")
def java() -> None:
    """Skips the test, or fails where skipping is not allowed, when Spark cannot run."""
    problem = _java_problem()
    if problem is None:
        return
    _not_run.append(problem)
    if os.environ.get("CI", "") not in ("", "false", "0"):
        pytest.fail(f"{SUITE} cannot run: {problem}")
    pytest.skip(f"{SUITE}: {problem}")


def _take_a_share_of_its_own() -> None:
    """Spark gives a Python worker ten seconds to connect back, and no setting changes that.

    Linux shares the processor out by session (autogroup), and all processes of a test run are one session, beside those
    of each app and broker that tests start. So this process and Spark become a session of their own, a heavier one
    where that is allowed.
    """
    with contextlib.suppress(OSError):  # it leads a group already: the tests run in one process
        os.setsid()
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("-5")


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session, through Connect with `ROCKETAPP_TESTS_SPARK=connect`; workers run the tests' interpreter."""
    from pyspark import __version__
    from pyspark.sql import SparkSession

    from rocketapp_pyspark.session import DELTA

    _take_a_share_of_its_own()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    remote = os.environ.get("ROCKETAPP_TESTS_SPARK") == "connect"
    builder = SparkSession.builder.remote("local[2]") if remote else SparkSession.builder.master("local[2]")
    # In the path of Spark 4.0 the jar of Delta for 4.1 breaks every look-up of a data source.
    if __version__.startswith("4.1.") and any(JARS.glob("delta-spark_4.1*")):
        jars = ",".join(map(str, sorted(JARS.glob("*.jar"))))
        for name, value in {**DELTA, "spark.jars": jars}.items():
            builder = builder.config(name, value)
    builder, log = builder.appName("tests"), tmp_path_factory.mktemp("derby") / "derby.log"
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": f"{JVM} -Dderby.stream.error.file={log}",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if not remote:
        session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
