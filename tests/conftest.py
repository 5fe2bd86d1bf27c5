"""Real parts as fixtures: both brokers, the Java client, apps as processes. Each is started once, when first asked for.

A suite whose parts cannot run here (no JDK, no Maven) is skipped, and the run says so plainly at its end. With CI=true
or ROCKETAPP_REQUIRE_APACHE=1 that is a failure.
"""

from __future__ import annotations

import functools
import gc
import itertools
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.own_thread import check_threads
from tests.parts import ByPart, length, shares
from tests.peers import toolchain
from tests.peers.clusters import LOCK_EXPIRY, SHARE, Apache, Cluster, Embedded
from tests.peers.java_client import JavaClient, Peer
from tests.peers.prepare import prepare
from tests.peers.running_app import RunningApp
from tests.turns_of_tests import Turns

SUITE = "tests against Apache RocketMQ and its Java client"
_not_run: dict[str, str] = {}
"""Suite -> why it could not run: told at the end of the run."""
_unprepared: list[str] = []
"""Why the jars or our Java programs could not be had, although a JDK and Maven are there."""

# By the clock, an example is slow whenever the machine is busy: that finds nothing.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts background jobs with SIGINT ignored, and `nohup` ignores SIGHUP: the processes that tests start
    would inherit that.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.pluginmanager.register(_Marks())
    check_threads()
    if hasattr(config, "workerinput"):
        toolchain.CACHE.mkdir(exist_ok=True)
        turns = Turns(toolchain.CACHE)
        config.pluginmanager.register(turns)
        config.add_cleanup(turns.close)


def _required() -> bool:
    return os.environ.get("CI", "") not in ("", "false", "0") or os.environ.get("ROCKETAPP_REQUIRE_APACHE") == "1"


def need_java() -> None:
    """Skip the test, or fail where skipping is not allowed, when there is no JDK or Maven."""
    problem = toolchain.missing() or next(iter(_unprepared), None)
    if problem is None:
        return
    _not_run[SUITE] = problem
    if _required():
        pytest.fail(f"{SUITE} cannot run: {problem}")
    pytest.skip(f"{SUITE}: {problem}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In one process cheap tests go first: a plain mistake shows itself within seconds.

    In several processes long parts go first, so that all processes end at about the same time.
    """
    items.sort(key=length if hasattr(config, "workerinput") else _needs_real_parts)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByPart:
    return ByPart(config, log)


_PROCESSES = {
    *("apache", "cluster", "embedded", "java_classes", "own_server", "peer", "reader", "shared_server"),
    *("spark", "start"),
}
"""Fixtures that start processes."""
_FAULTS = (
    "contrib/rocketapp-lake/tests/sink/test_kills",
    "tests/faults/test_embedded_faults",
    "tests/faults/test_faults",
    "tests/unit/broker/store/test_kill",
)
"""Tests that kill processes and count what was lost."""
_COMMANDS = ("crashes", "every_command", "forks", "replay_ends", "same_words", "send_tail", "service_manager", "stop")
_WITH_PROCESSES = (
    "contrib/rocketapp-lake/tests/sink/test_imports",
    "contrib/rocketapp-lake/tests/sink/test_restarts",
    "contrib/rocketapp-pyspark/tests/",
    "contrib/rocketapp-redis/tests/test_plugin",
    "tests/conformance/",
    "tests/docs/test_production_pages",
    "tests/templates/",
    "tests/unit/app/test_start_cost",
    "tests/unit/asyncapi/test_in_chromium",
    *(f"tests/unit/cli/test_{name}.py" for name in _COMMANDS),
    "tests/unit/operate/test_in_chromium",
    "tests/unit/plugins/telemetry/test_own_provider",
    "tests/unit/testing/test_pytest_plugin",
)
"""Other tests that start processes without such a fixture."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: the garbage collector, which took a third of the time of tests in this
    process, need not walk through it, not even once. It comes less often: a test leaves little behind.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch the jars and compile before the first test: on a fresh machine that takes longer than a test may."""
    wanted = any(item.get_closest_marker("java") or item.get_closest_marker("apache") for item in session.items)
    if not wanted or session.config.option.collectonly or toolchain.missing() is not None:
        return
    try:
        prepare(old=any("old" in getattr(item, "fixturenames", ()) for item in session.items))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        _unprepared.append(f"the jars or our Java programs could not be prepared: {error}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the process that reports what it could not run."""
    SHARE.give_back()
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told[SUITE] = _not_run


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _not_run.update(getattr(node, "workeroutput", {}).get(SUITE, {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for suite, problem in sorted(_not_run.items()):
        terminalreporter.write_line(f"NOT RUN: {suite}: {problem}", red=True, bold=True)


class _Marks:
    # As a plugin, not as a hook of this file: that would not see the tests of contrib.

    @staticmethod
    def pytest_itemcollected(item: pytest.Item) -> None:
        _mark(item)

    @staticmethod
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(item: pytest.Item) -> None:
        # What runs together in one of several processes does so without a pause; in one process it does not.
        if hasattr(item.config, "workerinput") and shares(item.nodeid) not in _with_apache(item.session):
            SHARE.give_back()


@functools.cache
def _with_apache(session: pytest.Session) -> frozenset[str]:
    """What runs together (see `shares`) and has a test for Apache RocketMQ."""
    return frozenset(shares(item.nodeid) for item in session.items if item.get_closest_marker("apache"))


def _mark(item: pytest.Item) -> None:
    """Mark what needs Apache RocketMQ or the Java client, by the fixtures it takes: `-m "not java"` leaves it out.

    What drives real processes runs a second time, alone, when it fails, because a busy machine may have kept one of
    them from running; the end of the run shows how it failed at first. Everywhere else a failure is a fact, and so is a
    number that a fault run has counted.
    """
    needs = set(getattr(item, "fixturenames", ()))
    callspec = getattr(item, "callspec", None)
    if "apache" in needs or (callspec is not None and callspec.params.get("cluster") == "apache"):
        item.add_marker("apache")
    if not needs.isdisjoint({"peer", "apache", "java_classes"}):
        item.add_marker("java")
    if item.nodeid.startswith(_FAULTS):
        item.add_marker(pytest.mark.flaky(reruns=1, rerun_except="^AssertionError: assert "))
    elif not needs.isdisjoint(_PROCESSES) or "postgresql" in item.nodeid or item.nodeid.startswith(_WITH_PROCESSES):
        item.add_marker(pytest.mark.flaky(reruns=1))


def _needs_real_parts(item: pytest.Item) -> bool:
    names = getattr(item, "fixturenames", ())
    return not {"apache", "embedded", "cluster", "peer"}.isdisjoint(names)


@pytest.fixture(scope="session")
def java_classes() -> Path:
    """Our compiled Java programs, for tests that need no broker."""
    need_java()
    return toolchain.classes()


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Apache:
    """Apache RocketMQ 5.5.0, one for all processes of the run that have tests for it."""
    need_java()
    return SHARE.take(common(tmp_path_factory))


def common(directories: pytest.TempPathFactory) -> Path:
    """A directory of all processes of this run."""
    own = directories.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """The JVM with the Java client, one for the whole session."""
    need_java()
    client = Peer(tmp_path_factory.mktemp("java"))
    yield client
    client.stop()


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """`rocketapp broker`, one for the whole session."""
    asks = {"transaction_timeout": 1, "transaction_check_interval": 3}  # as in peers/cluster.sh
    broker = Embedded(tmp_path_factory.mktemp("embedded"), options={"lock_expiry": LOCK_EXPIRY, **asks})
    yield broker
    broker.stop()


@pytest.fixture(params=["apache", "embedded"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each test that takes this runs twice: against Apache RocketMQ and against the embedded broker."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


on_apache = pytest.mark.parametrize("cluster", ["apache"], indirect=True)
"""For what our own side does with a broker: with the embedded one that is shown without the Java client, by
tests/unit/app, tests/unit/cli and tests/simulation."""
on_embedded = pytest.mark.parametrize("cluster", ["embedded"], indirect=True)
"""For what only that broker does, and for what would test Apache against Apache."""


@pytest.fixture
def java(cluster: Cluster, peer: Peer) -> Iterator[JavaClient]:
    """The Java client of that cluster; loads and consumers that the test left are stopped."""
    client = JavaClient(peer, cluster.name_server)
    yield client
    client.stop()


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Commands that run in this process set logging up: their handlers write to a stream that ends with the test."""
    root, loop, make = logging.getLogger(), logging.getLogger("asyncio"), logging.getLogRecordFactory()
    handlers, levels = root.handlers[:], (root.level, loop.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    loop.setLevel(levels[1])
    logging.setLogRecordFactory(make)


_numbers = itertools.count(1)


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"topic-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def group() -> str:
    """A group that no other test uses."""
    return f"group-{os.getpid()}-{next(_numbers)}"


RunApp = Callable[..., RunningApp]
"""`run_app(source, *arguments, environment=..., log=...)`: an app on the test's cluster."""


@pytest.fixture
def run_app(cluster: Cluster, tmp_path: Path) -> Iterator[RunApp]:
    """Start apps with `rocketapp run`; those that the test left are ended."""
    apps: list[RunningApp] = []

    def run(source: str, *arguments: str, **options: Any) -> RunningApp:
        app = RunningApp(tmp_path / f"app{len(apps)}", source, cluster.name_server, *arguments, **options)
        apps.append(app)
        return app

    yield run
    for app in apps:
        app.discard()
