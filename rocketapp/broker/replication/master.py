"""The master's side of replication: it listens for slaves, and knows what they have.

It is one more reader of the log, which hears of each flush. The protocol knows no keys, so the port is for this machine
and for the hosts of slaves that the name server knows, which may ask for keys (Java: DefaultHAService).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from socket import AF_INET, AF_INET6, IPPROTO_TCP, TCP_NODELAY, create_server, socket

from rocketapp.broker.replication.slave import Slave
from rocketapp.broker.store.store import MessageStore
from rocketapp.model.event import LoopFailed, Observe, SlaveLeft
from rocketapp.tasks import Tasks
from rocketapp.transport.stream import is_loopback, join_address
from rocketapp.wire.requests.replication import SlaveStatus

MOST_SLAVES = 16
"""Connections at a time. More are closed at once."""
MOST_BEHIND = 268_435_456
"""Bytes that a slave may lack and still count as one that keeps up (Java: haMaxGapNotInSync)."""
LAST_PATIENCE = 3.0
"""Seconds that slaves have at a stop to confirm the rest of the log."""


class Master:
    """The slaves of one broker."""

    def __init__(self, store: MessageStore, observe: Observe) -> None:
        self._store, self._observe = store, observe
        self._tasks = Tasks(observe)
        self._thread = ThreadPoolExecutor(1, "rocketapp-broker-slaves")
        self._listening: socket | None = None
        self._is_known: Callable[[str], bool] = lambda host: False
        self.slaves: list[Slave] = []
        """Those that are connected."""
        self._progress = asyncio.Event()
        self.on_confirmed: Callable[[], object] = bool
        """Called when a slave has confirmed more; the owner of who waits for that replaces it."""
        self.address: str = ""
        """Where slaves connect; empty while none can."""

    def __repr__(self) -> str:
        return f"<Master of {len(self.slaves)} slaves at {self.address or 'no address'}>"

    def listen(self, host: str, port: int, is_known: Callable[[str], bool]) -> None:
        """Accept slaves. Raises OSError when the address is taken.

        `is_known`: whether a slave may come from this host, which is not this machine.
        """
        sock = create_server((host, port), family=AF_INET6 if ":" in host else AF_INET)
        sock.setblocking(False)
        self._listening, self.address = sock, join_address(host, sock.getsockname()[1])
        self._is_known = is_known
        self._tasks.start(self._accept(sock), "broker slaves")

    async def finish(self) -> None:
        """Give the slaves the rest of the log, as far as they take it soon, and leave them. No file is read then."""
        self.flushed()
        await self.have(self._store.durable_position, LAST_PATIENCE)
        await self._tasks.close()
        if self._listening is not None:
            self._listening.close()
        self._thread.shutdown()

    def flushed(self) -> None:
        """More of the log is durable."""
        for slave in self.slaves:
            slave.wake()

    @property
    def replicated(self) -> int | None:
        """Up to where the foremost slave has the log; None while no slave keeps up."""
        foremost = max((slave.replica.confirmed for slave in self.slaves), default=-1)
        keeps_up = foremost >= 0 and self._store.durable_position - foremost < MOST_BEHIND
        return foremost if keeps_up else None

    def status(self) -> list[SlaveStatus]:
        """How far each slave is that has said where its log ends."""
        slaves = ((slave.host, slave.replica) for slave in self.slaves)
        return [SlaveStatus(host, one.confirmed, one.position) for host, one in slaves if one.position >= 0]

    async def have(self, position: int, timeout: float, host: str = "") -> bool:
        """Wait until every slave has the log up to this position; whether they do after so many seconds.

        `host`: only its slaves count. One that has registered from there and has no connection here lacks the log.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self._is_confirmed(position, host):
                    self._progress.clear()
                    await self._progress.wait()
        return self._is_confirmed(position, host)

    def _is_confirmed(self, position: int, host: str) -> bool:
        replicas = [slave.replica for slave in self.slaves if host in ("", slave.host)]
        ends = [replica.confirmed for replica in replicas if replica.position >= 0]
        return min(ends) >= position if ends else not self._is_known(host)

    async def _accept(self, listening: socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, peer = await loop.sock_accept(listening)
            except OSError as error:  # the descriptors are used up
                self._observe(LoopFailed("slaves", str(error)))
                await asyncio.sleep(1.0)
                continue
            host = peer[0]
            problem = None
            if not is_loopback(host) and not self._is_known(host):
                problem = "no slave of that host has registered with the name server"
            elif len(self.slaves) >= MOST_SLAVES:
                problem = f"there are {MOST_SLAVES} already"
            if problem is not None:
                sock.close()
                self._observe(SlaveLeft(host, 0, problem))
                continue
            sock.setblocking(False)
            sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
            slave = Slave(sock, host, self._store, self._thread, self._observe)
            slave.progress = self._confirmed
            self.slaves.append(slave)
            self._tasks.start(self._serve(slave), f"broker slave {host}")

    def _confirmed(self) -> None:
        self._progress.set()
        self.on_confirmed()

    async def _serve(self, slave: Slave) -> None:
        try:
            await slave.serve()
        finally:
            self.slaves.remove(slave)
            self._progress.set()
