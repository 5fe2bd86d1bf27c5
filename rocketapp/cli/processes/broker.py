"""An embedded broker in this process, and one that is kept there for as long as an app needs it.

`serve_broker` is what `rocketapp broker` does, and the broker's child process of `rocketapp run`. `BrokerKeeper` joins
the one that serves the directory, or starts one as a child. When that one is gone before the app has ended - it died,
or the command it belonged to has ended - a new one is started at the same address, so that its clients notice an outage
and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rocketapp.app.settings import DEFAULT, Settings, with_name_server
from rocketapp.cli.failure import FAILED, CommandError, problem_of
from rocketapp.cli.logs import log_failure
from rocketapp.cli.processes.child import Child, exit_text
from rocketapp.cli.processes.reports import Report
from rocketapp.cli.processes.stop import STOP_TIMEOUT, ProcessStop
from rocketapp.cli.runtime import settle
from rocketapp.clock import SystemClock
from rocketapp.embedded.running import ServingBroker, find_serving, is_alive, remove_running, write_running
from rocketapp.errors import ConfigError, RocketAppError
from rocketapp.state.backoff import Backoff
from rocketapp.tasks import Tasks, scope
from rocketapp.transport.access import ONLY_WITH_TLS, tls_of
from rocketapp.transport.stream import is_loopback

if TYPE_CHECKING:
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.embedded.embedded import EmbeddedBroker
    from rocketapp.model.event import Event
    from rocketapp.plugins.log_lines import Line

_log = logging.getLogger("rocketapp.broker")
_run_log = logging.getLogger("rocketapp.run")

Address = tuple[str, int]
T = TypeVar("T")
Names = Mapping[str, str]
"""Option of [broker] -> what the user knows it by."""
DRAIN_TIMEOUT = 10.0
"""Seconds to write tables and close files after a signal."""
TELL_AGAIN = 60.0
"""Seconds after which a failure that goes on is told again."""
WATCH_INTERVAL = 0.5
"""Seconds between looks at a broker that is not our child."""
LOOK_INTERVAL, LEAST_WORK = 1.0, 0.01
"""Seconds between looks at a broker that starts, and of computing in between that are progress."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
"""Seconds between attempts to start a broker that was lost, doubled each time."""
STEADY = 5.0
"""Seconds after which a broker counts as running: it is then started again at once."""


def names_of(settings: Settings, **options: str) -> dict[str, str]:
    """How the user set each option of [broker]: by an option of the command, or in the settings."""
    sources = {key: settings.source_of("broker", key) for key in options}
    own = ("command line", DEFAULT)
    return {key: option if sources[key] in own else f"{sources[key]}: broker.{key}" for key, option in options.items()}


async def serve_broker(
    settings: Settings,
    *,
    memory: bool,
    or_free_port: bool,
    names: Names,
    stop: ProcessStop,
    on_serving: Callable[[str], None],
) -> None:
    """Serve until `stop` is requested. Raises CommandError, in the words of `names`, when that cannot begin."""
    config = settings.broker
    directory = Path(config.dir)
    if config.http:
        _refuse_http(config.http, names["http"])
    broker, address = await _start(settings, memory=memory, or_free_port=or_free_port, names=names)
    try:
        if not memory:
            write_running(directory, address)
        with watched(settings, broker, address, memory=memory) if config.http else contextlib.nullcontext():
            settle()
            stop.tell()
            on_serving(address)
            await stop.requested.wait()
    finally:
        if not memory:
            remove_running(directory)
        await broker.stop()


def _refuse_http(http: str, name: str) -> None:
    """Raises CommandError for what cannot be served on: before the store is opened, which may take long."""
    problem = bind_problem(*parse_listen(http, name))
    if problem is not None:
        raise CommandError(f"{name} {http}: {problem}: choose another address or port")


@contextlib.contextmanager
def watched(settings: Settings, broker: EmbeddedBroker, address: str, *, memory: bool) -> Iterator[None]:
    """Context manager that serves the broker's pages at `broker.http`. Without that option nothing is imported."""
    from tempfile import TemporaryDirectory

    from rocketapp.cli.cluster import run_on
    from rocketapp.cli.replays import GroupReplay
    from rocketapp.operate.broker_console import BrokerConsole
    from rocketapp.operate.broker_requests import answering
    from rocketapp.operate.server import OperatorServer

    def own() -> Settings:
        return _as_operator(settings, address, broker.operator_keys())

    def look(work: Callable[[AdminCluster], Coroutine[Any, Any, T]]) -> T:
        return run_on(own(), work, {settings.broker.name: address})

    # What was replayed is noted beside the store; of one in memory nothing stays.
    with TemporaryDirectory() if memory else contextlib.nullcontext() as folder:

        def replay(group: str, identity: str) -> str:
            file = f"{folder}/replay-{group}.json" if folder else None
            text = GroupReplay(own(), group, file).one(identity)
            _log.warning("%s, by an operator", text)
            return text

        directory = None if memory else Path(settings.broker.dir)
        console = BrokerConsole(broker.running.facts, directory=directory, look=look, replay=replay)
        server = OperatorServer(settings.broker.http, answering(console))
        try:
            served = server.start()
        except OSError as error:
            raise CommandError(f"broker.http {settings.broker.http}: {problem_of(error)}") from error
        try:
            _log.info("http://%s tells how the broker does", served)
            yield
        finally:
            server.stop()


def _as_operator(settings: Settings, address: str, keys: tuple[str, str] | None) -> Settings:
    """The settings with which the page asks its own broker: with the keys of a user that may do everything."""
    own = with_name_server(settings, address)
    others: dict[str, Any] = dict.fromkeys(ONLY_WITH_TLS, "")
    # It needs no proof of who it is.
    client = replace(own.client, tls=settings.broker.tls == "enforcing", tls_verify=False, **others)
    if keys is not None and not client.access_key:
        client = replace(client, access_key=keys[0], secret_key=keys[1])
    return replace(own, client=client)


async def _start(settings: Settings, *, memory: bool, or_free_port: bool, names: Names) -> tuple[EmbeddedBroker, str]:
    from rocketapp.embedded.embedded import EmbeddedBroker

    config = settings.broker
    tls = tls_of(settings.client) if config.name_server or config.role == "slave" else None
    host, port = parse_listen(config.listen, names["listen"], has_keys=config.authentication)
    # Before the store is opened: its recovery may take longer than a user wants to wait for such an answer.
    problem = bind_problem(host, port)
    if problem is not None:
        if not or_free_port:
            mend = f"stop what serves there, or choose another address ({names['listen']}; port 0 takes a free one)"
            raise CommandError(f"{config.listen}: {problem}: {mend}")
        port = 0

    log = BrokerLog(asyncio.get_running_loop().time)

    async def start_on(port: int) -> tuple[EmbeddedBroker, str]:
        broker = EmbeddedBroker(
            config=config, memory=memory, observe=log.tell, clock=SystemClock(), random=random.Random(), tls=tls
        )
        return broker, await broker.start((host, port))

    try:
        try:
            return await start_on(port)
        except ConfigError:
            # Taken since it was probed: two first starts may come at the same moment.
            if not or_free_port or port == 0 or bind_problem(host, port) is None:
                raise
            return await start_on(0)
    except OSError as error:
        mend = f"choose another directory ({names['dir']})"
        raise CommandError(f"{config.dir}: {problem_of(error)}: {mend}") from error


class BrokerLog:
    """Logs the events of the broker. An error that repeats is logged once a minute."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: dict[Line, float] = {}

    def tell(self, event: Event) -> None:
        from rocketapp.plugins.log_lines import line_of

        line, now = line_of(event), self._now()
        if line.repeats:
            self._told = {known: at for known, at in self._told.items() if now - at < TELL_AGAIN}
            if line in self._told:
                return
            self._told[line] = now
        _log.log(line.level, "%s", line.text)


def bind_problem(host: str, port: int) -> str | None:
    """Why it is not possible to listen on this address, or None."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the listener will: ports of connections that have ended are free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        return problem_of(error)
    return None


def parse_listen(listen: str, name: str, *, has_keys: bool = False) -> Address:
    """Host and port. Raises CommandError, with the option's `name`, for no address.

    So it does for an address that others reach, unless what serves there asks for keys.
    """
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise CommandError(f"{name} {listen}: write host:port, for example 127.0.0.1:9876")
    if not (has_keys or is_loopback(host)):
        raise CommandError(
            f"{name} {listen}: only loopback addresses are served, because it asks for no access keys: every process "
            "that reaches the port may read and write every message; use 127.0.0.1"
        )
    return host, int(port)


class BrokerKeeper:
    """Keeps a broker running for one directory; `address` is set once `start` has returned."""

    def __init__(self, settings: Settings, spec: Mapping[str, Any], *, presence: int | None = None) -> None:
        """`spec` is what every child is told.

        `presence`: the reading end of the pipe that the workers hold, where the broker serves several. Nothing is
        started yet. Raises CommandError for an address that cannot be used.
        """
        self.address: str = ""
        self._directory = Path(settings.broker.dir)
        self._listen = settings.broker.listen
        # An address that the user chose is meant; the usual one is a suggestion.
        self._or_free_port = settings.source_of("broker", "listen") == "default"
        names = names_of(settings, dir="--embedded", listen="broker.listen", http="broker.http")
        parse_listen(self._listen, names["listen"], has_keys=settings.broker.authentication)
        self._spec = {**spec, "role": "broker", "names": names, "presence": presence}
        self._timeout = settings.app.connect_timeout
        self._child: Child | None = None
        self._joined: ServingBroker | None = None
        self._tasks = Tasks(log_failure)

    def __repr__(self) -> str:
        how = f"child {self._child.pid}" if self._child else f"joined {self._joined.pid}" if self._joined else "none"
        return f"<BrokerKeeper {self._directory} at {self.address or '?'}: {how}>"

    async def start(self) -> str:
        """Join a running broker or start one. Returns its address; raises CommandError when neither is possible."""
        await self._join_or_launch()
        self._tasks.start(self._keep(), "embedded broker")
        return self.address

    async def stop(self) -> None:
        """Stop the broker if this process started it; one that was joined goes on."""
        await self._tasks.close()
        if self._child is not None:
            await self._child.stop(timeout=STOP_TIMEOUT)
            self._child = None

    async def _join_or_launch(self) -> None:
        if await self._join():
            return
        try:
            await self._launch()
        except RocketAppError:
            # Two commands may have started at once: one of them has the directory, the other joins it.
            if not await self._join():
                raise

    async def _join(self) -> bool:
        running = await find_serving(self._directory)
        if running is None or (self.address and running.address != self.address):
            return False
        self.address, self._joined = running.address, running
        _run_log.info("joined the embedded broker at %s, process %d", running.address, running.pid)
        return True

    async def _launch(self) -> None:
        reports: asyncio.Queue[Report | None] = asyncio.Queue()
        own = {"dir": str(self._directory), "listen": self.address or self._listen}
        overrides = {**self._spec["overrides"], "broker": own}
        spec = {**self._spec, "overrides": overrides, "or_free_port": self._or_free_port and not self.address}
        descriptors = () if spec["presence"] is None else (spec["presence"],)

        try:
            child = Child("broker", spec, reports.put_nowait, descriptors=descriptors)
        except OSError as error:
            text = f"{self._directory}: the embedded broker cannot be started: {problem_of(error)}"
            raise CommandError(text) from error
        # Ours from this moment on, so that stop() ends it even when the start is broken off.
        self._child = child

        async def end() -> None:
            await child.ended()
            reports.put_nowait(None)

        async with scope(end()) as (ending,):
            report = await self._started(reports)
            has_ended = ending.done()
        if report is not None and report.kind == "serving":
            self.address, self._joined = report.address, None
            _run_log.info("embedded broker serves on %s, its messages are in %s", report.address, self._directory)
            return
        code = await child.stop(timeout=STOP_TIMEOUT)
        self._child = None
        if report is not None:
            raise CommandError(report.error)
        late = f"did not serve within {self._timeout:g} s"
        what = f"ended before it served: {exit_text(code)}" if has_ended else late
        raise CommandError(f"{self._directory}: the embedded broker {what}", FAILED)

    async def _started(self, reports: asyncio.Queue[Report | None]) -> Report | None:
        """Wait for its report that it serves, or why not; None when it has ended or was silent for too long."""
        worked, now = 0.0, asyncio.get_running_loop().time
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout) as limit:
                while (report := await reports.get()) is not None and report.kind == "starting":
                    if not worked:
                        _run_log.info("the embedded broker opens its store in %s, and reads its log", self._directory)
                    if report.worked >= worked + LEAST_WORK:
                        worked = report.worked
                        limit.reschedule(now() + self._timeout)
                return report
        return None

    async def _keep(self) -> None:
        now, backoff, pause = asyncio.get_running_loop().time, Backoff(FIRST_PAUSE, LONGEST_PAUSE), 0.0
        while True:
            began = now()
            await self._await_loss()
            served = now() - began
            if served >= STEADY:
                backoff.reset()
            elif pause:
                _run_log.error("embedded broker: it served for %.1f s; starting it in %g s", served, pause)
                await asyncio.sleep(pause)
            pause = backoff.next(0.0)
            while True:
                try:
                    await self._join_or_launch()
                    break
                except RocketAppError as error:
                    _run_log.error("embedded broker: %s; trying again in %g s", error, pause)
                await asyncio.sleep(pause)
                pause = backoff.next(0.0)

    async def _await_loss(self) -> None:
        if self._child is not None:
            code = await self._child.ended()
            self._child = None
            _run_log.error("the embedded broker died (%s); starting it again", exit_text(code))
            return
        while self._joined is not None:
            await asyncio.sleep(WATCH_INTERVAL)
            if not is_alive(self._joined.pid):
                self._joined = None
                _run_log.warning("the embedded broker that was joined is gone; starting one")
