"""One slave's connection: what it reports is read, and it is sent the log, from the file to the socket.

The loop decides what is sent; a thread sends it, because the old part of a log may have to come from the disk. A slave
that does not keep up finds its socket full: nothing is kept for it here, and it goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor
from socket import socket

from rocketapp.broker.store.commit_log import Segment
from rocketapp.broker.store.store import MessageStore
from rocketapp.model.event import Observe, SlaveJoined, SlaveLeft
from rocketapp.state.replica import Replica
from rocketapp.tasks import scope
from rocketapp.wire.replication import block_head, last_report

HEARTBEAT = 5.0
"""Seconds without a block after which an empty one is sent (Java: haSendHeartbeatInterval)."""
IDLE = 20.0
"""Seconds without a report after which the slave is given up (Java: haHousekeepingInterval)."""
_MOST_AT_ONCE = 1 << 20
"""Bytes that one call of the thread sends, at most: the slaves share it."""


class Slave:
    """Serves one slave from its first report to its end."""

    def __init__(self, sock: socket, host: str, store: MessageStore, thread: Executor, observe: Observe) -> None:
        self._socket, self._store, self._thread, self._observe = sock, store, thread, observe
        self._loop = asyncio.get_running_loop()
        self.host: str = host
        self.replica: Replica = Replica()
        self.progress: Callable[[], object] = bool
        """Called when the slave has confirmed more; the owner replaces it."""
        self._segment: Segment | None = None
        self._head, self._left = b"", 0
        """What is unsent of the block that was begun: of its head, and of its bytes."""
        self._woken = asyncio.Event()
        self._heard = self._sent = self._loop.time()

    def __repr__(self) -> str:
        return f"<Slave {self.host}: {self.replica}>"

    def wake(self) -> None:
        """There may be more to send."""
        self._woken.set()

    async def serve(self) -> None:
        """Serve until the connection ends, and say why; until cancelled."""
        try:
            async with scope(self._receive(), self._send()) as halves:
                done, _ = await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
                self._observe(SlaveLeft(self.host, max(self.replica.confirmed, 0), done.pop().result()))
        finally:
            self._thread.submit(self._close)  # after what the thread may be sending on this socket

    async def _receive(self) -> str:
        rest = b""
        while True:
            try:
                data = await self._loop.sock_recv(self._socket, 4096)
            except OSError as error:
                return str(error)
            if not data:
                return "closed by the slave"
            end, rest = last_report(rest + data)
            if end is not None:
                self._heard = self._loop.time()
                problem = self._reported(end)
                if problem is not None:
                    return problem

    def _reported(self, end: int) -> str | None:
        store, replica = self._store, self.replica
        is_first = replica.position < 0
        problem = replica.reported(end, begin=store.begin_position, durable=store.durable_position)
        if problem is None:
            if is_first:
                self._observe(SlaveJoined(self.host, replica.position))
                self.wake()
            self.progress()
        return problem

    async def _send(self) -> str:
        while self._loop.time() - self._heard < IDLE:
            self._woken.clear()
            try:
                if self._has_work() and not await self._loop.run_in_executor(self._thread, self._send_some):
                    await self._until_writable()
                    continue
            except OSError as error:
                return f"position {self.replica.position}: {error}"
            if not self._has_more():
                await self._rest(self._woken)
        return f"it has said nothing for {IDLE:g} s"

    def _has_more(self) -> bool:
        replica = self.replica
        return bool(self._head or self._left) or 0 <= replica.position < self._store.durable_position

    def _has_work(self) -> bool:
        """Whether there is something to send, with the file that it is in. Raises OSError when that is deleted."""
        replica, segment = self.replica, self._segment
        if replica.position < 0:
            return False
        if not self._has_more():
            if self._loop.time() - self._sent < HEARTBEAT:
                return False
            self._head = block_head(replica.position, 0)
        elif segment is None or not segment.start <= replica.position < segment.end:
            self._segment = self._store.open_segment(replica.position)
            if segment is not None:
                segment.file.close()
        self._sent = self._loop.time()
        return True

    def _send_some(self) -> bool:
        """In the thread: send blocks until there is nothing more of this file, or enough; False: the socket is full."""
        replica, segment, durable = self.replica, self._segment, self._store.durable_position
        stop = replica.position + _MOST_AT_ONCE
        try:
            while True:
                if self._head:
                    self._head = self._head[self._socket.send(self._head) :]
                elif self._left:
                    assert segment is not None
                    count = segment.file.send(self._socket, self._left, replica.position - segment.start)
                    if not count:
                        raise OSError("the file of the log is too short")
                    replica.position += count
                    self._left -= count
                else:
                    size = (
                        0 if segment is None or replica.position >= stop else replica.begin_block(durable, segment.end)
                    )
                    if not size:
                        return True
                    self._head, self._left = block_head(replica.position, size), size
        except BlockingIOError:
            return False

    async def _until_writable(self) -> None:
        writable = asyncio.Event()
        self._loop.add_writer(self._socket, writable.set)
        try:
            await self._rest(writable)
        finally:
            self._loop.remove_writer(self._socket)

    async def _rest(self, event: asyncio.Event) -> None:
        """Wait for this event, or until it is time to look at the clock."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT):
                await event.wait()

    def _close(self) -> None:
        self._socket.close()
        if self._segment is not None:
            self._segment.file.close()
