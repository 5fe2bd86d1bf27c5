"""A whole RocketMQ in one object: name server and broker on one port, or on memory streams.

Start order: store, tables, then serving; no request is answered before everything is recovered. Stopping
is the reverse: stop serving, save the tables, close the store. After a kill (`kill -9`) a marker file remains,
and the store is checked at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

from rocketapp.broker.broker import USUAL_PACE, Broker, Pace
from rocketapp.broker.permissions import ACCESS_FILE, Permissions
from rocketapp.broker.processors.access import AccessProcessor
from rocketapp.broker.replication.master import Master
from rocketapp.broker.request_dispatch import RequestDispatch
from rocketapp.broker.store.config_files import ConfigFile
from rocketapp.broker.store.files import DirectoryFiles, Files, MemoryFiles
from rocketapp.clock import Clock
from rocketapp.config.broker import BrokerConfig
from rocketapp.embedded.registration import Registrar, access_of
from rocketapp.errors import ConfigError
from rocketapp.model.event import Observe
from rocketapp.namesrv.kv_config import KvConfig
from rocketapp.namesrv.name_server import BrokerTable, NameServer
from rocketapp.transport.connection import Connection, Listener
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.transport.pool import Pool
from rocketapp.transport.stream import Listening, is_loopback, join_address, split_address
from rocketapp.transport.tcp import dial_tcp, listen_tcp
from rocketapp.transport.tls import Tls
from rocketapp.transport.tls_server import server_tls_of
from rocketapp.wire import frame
from rocketapp.wire.requests import send

_EVERY_ADDRESS = frozenset({"0.0.0.0", "::", ""})
MAX_FRAME_BYTES = 16_777_216
"""Java's limit. A longer frame ends its connection."""
MOST_DESCRIPTORS = 65_536
MOST_MEMORY_BYTES = 1 << 30
"""What a broker in memory holds. Like a disk of this size, it loses the oldest messages before it is full."""
DIAL_TIMEOUT = 3.0
"""Seconds that connecting to a master or a name server may take."""
RESERVED_DESCRIPTORS = 256
"""Descriptors that connections leave to the store and to the program around it."""


class EmbeddedBroker:
    """One broker with its name server, in this process."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        random: Random,
        observe: Observe,
        memory: bool = False,
        files: Files | None = None,
        pace: Pace = USUAL_PACE,
        tls: Tls | None = None,
    ) -> None:
        """`memory`: keep the store in memory. `files`: use these instead of the directory (tests with faults).

        `tls`: how its master and name servers are asked.
        """
        if memory:  # segments so small that old ones can leave, which is looked at each second; and it has no holes
            segment_bytes = min(config.segment_bytes, MOST_MEMORY_BYTES // 16)
            config = replace(
                config, segment_bytes=segment_bytes, clean_interval=1.0, index_slots=1009, index_items=8192
            )
        self._config, self._clock, self._random, self._observe = config, clock, random, observe
        self._memory, self._files, self._pace, self._tls = memory, files, pace, tls
        self._broker: Broker | None = None
        self._undo = contextlib.AsyncExitStack()
        """What ends what was started, the last first."""
        self._permissions: Permissions | None = None
        self.address: str = ""

    def __repr__(self) -> str:
        return f"<EmbeddedBroker {self._config.name} on {self.address or 'no address yet'}>"

    async def start(self, listen: tuple[str, int] | MemoryNetwork | None = None) -> str:
        """Recover, then serve; return the real `host:port`.

        Without an argument, or with a MemoryNetwork, the address is `broker.listen`.
        Raises ConfigError when the address is taken or the directory is in use.
        """
        if self._broker is not None:
            raise RuntimeError("this broker is started already: make a new one")
        _check_role(self._config)
        files = self._files or (MemoryFiles(MOST_MEMORY_BYTES) if self._memory else DirectoryFiles(self._config.dir))
        async with contextlib.AsyncExitStack() as undo:
            undo.callback(files.close)
            broker = Broker(
                files=files,
                config=self._config,
                clock=self._clock,
                random=self._random,
                observe=self._observe,
                # Disks can be slow, so flushes wait for them in a thread.
                in_thread=isinstance(files, DirectoryFiles),
                pace=self._pace,
            )
            undo.push_async_callback(broker.stop)
            file = ConfigFile(files, "config/kvConfig.json", self._observe)
            texts = KvConfig(file.load() or {}, lambda table: broker.run(partial(file.save, table)))
            permissions = Permissions.load(ConfigFile(files, ACCESS_FILE, self._observe), self._config)
            brokers = BrokerTable(
                broker.shown,
                asyncio.get_running_loop().time,
                ha_address=lambda: broker.ha_address,
                takes_others=self._config.registrations,
            )
            listener = self._new_listener(broker, texts, permissions, brokers)
            undo.push_async_callback(listener.close)
            undo.callback(broker.drop_held_pulls)
            listening = await self._listen(listen, listener)
            undo.push_async_callback(listening.close)
            if broker.master is not None:
                for_slaves = await self._listen_for_slaves(broker.master, listening.address, listener, brokers)
                undo.push_async_callback(for_slaves.close)
            self.address = self._announced(listening.address)
            await broker.start(self.address)
            new_pool = partial(
                Pool,
                dial=listen.dial if isinstance(listen, MemoryNetwork) else dial_tcp,
                dial_timeout=DIAL_TIMEOUT,
                max_frame_bytes=MAX_FRAME_BYTES,
                random=self._random,
                access=access_of(self._config, self._tls),
            )
            if self._config.role == "slave":
                broker.follow(new_pool())
            if self._config.name_server:
                registrar = Registrar(broker, self._config, new_pool=new_pool, observe=self._observe)
                registrar.start(self.address)
                undo.push_async_callback(registrar.stop)
            self._broker, self._permissions, self._undo = broker, permissions, undo.pop_all()
        return self.address

    async def stop(self) -> None:
        """Stop serving, save everything, release the directory. A second call does nothing."""
        self._broker = None
        await self._undo.aclose()

    @property
    def running(self) -> Broker:
        """The broker that runs; to be asked on its loop."""
        if self._broker is None:
            raise RuntimeError("this broker does not run")
        return self._broker

    def operator_keys(self) -> tuple[str, str] | None:
        """The present keys of a user that may do everything; None when there is none, or no keys are asked for."""
        return None if self._permissions is None else self._permissions.operator_keys()

    def _new_listener(
        self, broker: Broker, texts: KvConfig, permissions: Permissions | None, brokers: BrokerTable
    ) -> Listener:
        check = None if permissions is None else permissions.check
        others: list[object] = [NameServer(brokers.shown), texts]
        if permissions is not None:
            others.append(AccessProcessor(permissions, broker.run))
        if broker.master is not None or self._config.registrations:
            others.append(brokers)
        tables = broker.table(), broker.table_of(*others)

        def lost(connection: Connection, _: str) -> None:
            broker.connection_lost(connection)
            brokers.connection_lost(connection)

        return Listener(
            serve=RequestDispatch(*tables, check=check, store_sends=broker.store_sends).serve,
            max_frame_bytes=MAX_FRAME_BYTES,
            most_connections=_most_connections(),
            on_lost=lost,
            on_served=broker.store_sends,
            decode=send.decode if permissions is None else frame.decode,  # a signature is over all fields
        )

    async def _listen_for_slaves(
        self, master: Master, address: str, listener: Listener, brokers: BrokerTable
    ) -> Listening:
        """A slave copies the log on one port, and asks some things on the port that is two below the broker's."""
        host, port = split_address(address)
        if port < 3:
            raise ConfigError("broker.listen", f"slaves need the port two below {port}: choose one from 3 on")
        mend = f"slaves need it and port {port - 2}; stop what serves there, or choose other ports"
        with _serving("broker.ha_port", host, self._config.ha_port, mend):
            await master.listen(host, self._config.ha_port, brokers.is_known)
        with _serving("broker.ha_port", host, port - 2, mend):
            return await listen_tcp(host, port - 2, listener.accept, server_tls_of(self._config))

    async def _listen(self, listen: tuple[str, int] | MemoryNetwork | None, listener: Listener) -> Listening:
        host, port = listen if isinstance(listen, tuple) else _address("broker.listen", self._config.listen)
        if not isinstance(listen, MemoryNetwork) and not is_loopback(host):
            self._check_open(host)
        mend = "stop what serves there, or choose another address (port 0 takes a free one)"
        with _serving("broker.listen", host, port, mend):
            if isinstance(listen, MemoryNetwork):
                return await listen.listen(host, port, listener.accept)
            return await listen_tcp(host, port, listener.accept, server_tls_of(self._config))

    def _check_open(self, host: str) -> None:
        """Raises ConfigError unless what other machines reach asks for keys and can be named to clients."""
        if not self._config.authentication:
            raise ConfigError(
                "broker.listen",
                f"other machines reach {host}, and whoever reaches the port may read and write every message: "
                "set broker.authentication, or listen on 127.0.0.1",
            )
        if host in _EVERY_ADDRESS and not self._config.host:
            problem = f"is empty, and {host} is no address that clients can reach: name this machine as they know it"
            raise ConfigError("broker.host", problem)

    def _announced(self, address: str) -> str:
        """What clients are told."""
        host, port = split_address(address)
        return join_address(self._config.host, port) if self._config.host and not is_loopback(host) else address


@contextlib.contextmanager
def _serving(option: str, host: str, port: int, mend: str) -> Iterator[None]:
    """Within, an address that cannot be had is a ConfigError."""
    try:
        yield
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(option, f"cannot serve on {join_address(host, port)} ({problem}): {mend}") from None


def _check_role(config: BrokerConfig) -> None:
    """Raises ConfigError where the role lacks an option."""
    if config.role == "sync_master" and not config.ha_port:
        raise ConfigError("broker.role", "a sync_master waits for a slave: set broker.ha_port, where one connects")
    if config.role == "slave" and (config.id <= 0 or not (config.master or config.name_server)):
        mend = "give it a number above 0 (broker.id), and its master (broker.master) or broker.name_server"
        raise ConfigError("broker.role", f"a slave has both: {mend}")
    if config.master:
        _address("broker.master", config.master)


def _address(option: str, text: str) -> tuple[str, int]:
    """Host and port. Raises ConfigError, with the option's name, for what is no address."""
    try:
        return split_address(text)
    except ValueError as error:
        raise ConfigError(option, str(error)) from None


def _most_connections() -> int:
    """How many connections the process's limit of descriptors leaves room for. Raises that limit if it may."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    descriptors = MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, MOST_DESCRIPTORS)
    return max(descriptors - RESERVED_DESCRIPTORS, descriptors // 2)
