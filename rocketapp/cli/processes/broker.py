"""An embedded broker in this process: of `rocketapp broker`, and of the broker's child process of `rocketapp run`."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rocketapp.cli.failure import CommandError

if TYPE_CHECKING:
    from rocketapp.app.settings.settings import Settings
    from rocketapp.cli.processes.stop import ProcessStop
    from rocketapp.config.broker import BrokerConfig
    from rocketapp.embedded.embedded import EmbeddedBroker
    from rocketapp.model.event import Event
    from rocketapp.plugins.log_lines import Line

_log = logging.getLogger("rocketapp.broker")

Address = tuple[str, int]
Names = Mapping[str, str]
"""Option of [broker] -> what the user knows it by."""
DRAIN_TIMEOUT = 10.0
"""Seconds to write tables and close files after a signal."""
TELL_AGAIN = 60.0
"""Seconds after which a failure that goes on is told again."""


def names_of(settings: Settings, **options: str) -> dict[str, str]:
    """How the user gave each option of [broker]: by the command's own option, or somewhere in the settings."""
    from rocketapp.app.settings.settings import DEFAULT

    sources = {key: settings.source_of("broker", key) for key in options}
    own = ("command line", DEFAULT)
    return {key: option if sources[key] in own else f"{sources[key]}: broker.{key}" for key, option in options.items()}


async def serve_broker(
    config: BrokerConfig,
    *,
    memory: bool,
    or_free_port: bool,
    names: Names,
    stop: ProcessStop,
    on_serving: Callable[[str], None],
) -> None:
    """Serve until `stop` is requested. Raises CommandError, in the words of `names`, when that cannot begin."""
    from rocketapp.embedded.running import remove_running, write_running

    directory = Path(config.dir)
    broker, address = await _start(config, memory=memory, or_free_port=or_free_port, names=names)
    try:
        if not memory:
            write_running(directory, address)
        stop.tell()
        on_serving(address)
        await stop.requested.wait()
    finally:
        if not memory:
            remove_running(directory)
        await broker.stop()


async def _start(config: BrokerConfig, *, memory: bool, or_free_port: bool, names: Names) -> tuple[EmbeddedBroker, str]:
    from rocketapp.clock import SystemClock
    from rocketapp.embedded.embedded import EmbeddedBroker
    from rocketapp.errors import ConfigError, RocketAppError

    host, port = parse_listen(config.listen, names["listen"])
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
            config=config, memory=memory, observe=log.tell, clock=SystemClock(), random=random.Random()
        )
        return broker, await broker.start((host, port))

    try:
        try:
            return await start_on(port)
        except ConfigError:
            # Taken since it was probed: two first runs may begin at the same moment.
            if not or_free_port or port == 0 or bind_problem(host, port) is None:
                raise
            return await start_on(0)
    except RocketAppError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise CommandError(f"{config.dir}: {problem}: choose another directory ({names['dir']})") from error


class BrokerLog:
    """The events of the broker as lines. What fails again and again is told once a minute."""

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
    """Why this address cannot be listened on, or None."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the listener will: ports of connections that have ended are free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


def parse_listen(listen: str, name: str) -> Address:
    """Host and port. Raises CommandError, with the option's `name`, for no address and for one that others reach."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise CommandError(f"{name} {listen}: write host:port, for example 127.0.0.1:9876")
    if not is_loopback(host):
        raise CommandError(
            f"{name} {listen}: only loopback addresses are served, because it knows no access keys yet: "
            "every process that reaches the port may read and write every message; use 127.0.0.1"
        )
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
