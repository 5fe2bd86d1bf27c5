"""The master's side of replication: it listens for slaves, knows what they have, and sends them the log.

It is one more reader of the log, which hears of each flush. The protocol knows no keys, so the port is for this machine
and for the hosts of slaves that the name server knows, which may ask for keys (Java: DefaultHAService).

A slave says where its log ends. From there on it gets all that is durable here, and no byte more: what a loss of power
may take from the master must be nowhere else. An end that its master cannot have sent is the end of another log. It is
refused, because neither of the two logs may be cut to fit the other. A thread reads what is sent, because the old part
of a log may have to come from the disk. Nothing is kept for a slave that does not keep up: it goes on where it stopped.

A synchronous master holds its replies back until a slave has what they acknowledge. A reply waits for a position of the
log, as in `flushing`, where it waited until that was durable here. One slave is enough. A message that no slave has in
time is stored all the same: its sender is told so by the code, and decides.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import NamedTuple, NoReturn

from rocketapp.broker.store.commit_log import Segment
from rocketapp.broker.store.store import MessageStore
from rocketapp.model.event import Observe, SlaveJoined, SlaveLeft
from rocketapp.tasks import Tasks, is_set_by, scope, until
from rocketapp.transport.connection import Connection
from rocketapp.transport.stream import is_loopback
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.replication import block_head, last_report
from rocketapp.wire.requests.replication import SlaveStatus
from rocketapp.wire.requests.send import SENDS

MOST_SLAVES = 16
"""Connections at a time. More are closed at once."""
MOST_BEHIND = 268_435_456
"""Bytes that a slave may lack and still count as one that keeps up (Java: haMaxGapNotInSync)."""
LAST_PATIENCE = 3.0
"""Seconds that slaves have at a stop to confirm the rest of the log."""
HEARTBEAT = 5.0
"""Seconds without a block after which an empty one is sent (Java: haSendHeartbeatInterval)."""
IDLE = 20.0
"""Seconds without a report after which the slave is given up (Java: haHousekeepingInterval)."""
MOST_BLOCK_BYTES = 32_768
"""Java: haTransferBatchSize. A slave has room for 4 MiB."""
_READ_BYTES = 262_144
"""Bytes that one call of the thread reads, at most: the slaves share it."""
_TOLD = SENDS | {RequestCode.CONSUMER_SEND_MSG_BACK}
"""Requests that are answered with a code when no slave has what they stored. The others just take longer."""


class Slave:
    """One slave, from its first report to its end."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        store: MessageStore,
        thread: Executor,
        observe: Observe,
    ) -> None:
        self._reader, self._writer, self._store, self._thread = reader, writer, store, thread
        self._observe, self._loop = observe, asyncio.get_running_loop()
        self.host: str = str((writer.get_extra_info("peername") or ("",))[0])
        self.confirmed: int = -1
        """Where its log ends, as it said last; -1 before it has said anything."""
        self.position: int = -1
        """The next byte to send."""
        self.woken: asyncio.Event = asyncio.Event()
        """There may be more to send."""
        self._segment: Segment | None = None

    def __repr__(self) -> str:
        return f"<Slave {self.host} has {self.confirmed}, gets {self.position}>"

    async def serve(self, progress: Callable[[], object]) -> str:
        """Serve until the connection ends, and say why; until cancelled. `progress`: called when it has more."""
        try:
            async with scope(self._receive(progress), self._send()) as halves:
                done, _ = await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
                return str(done.pop().result())
        except OSError as error:
            return f"position {self.position}: {error}"
        finally:
            self._writer.transport.abort()
            self._close()

    async def _receive(self, progress: Callable[[], object]) -> str:
        rest, heard = b"", self._loop.time()
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout_at(heard + IDLE):
                    data = await self._reader.read(4096)
                if not data:
                    return "closed by the slave"
                end, rest = last_report(rest + data)
                if end is None:
                    continue
                heard = self._loop.time()
                problem = self._reported(end)
                if problem is not None:
                    return problem
                progress()
        return f"it has said nothing for {IDLE:g} s"

    def _reported(self, end: int) -> str | None:
        """Take its report of where its log ends. Returns why it gets nothing more, or None."""
        begin, durable = self._store.begin_position, self._store.durable_position
        if self.position < 0:
            if not 0 <= end <= durable:
                return f"its log ends at {end}, ours at {durable}: it is of another history"
            if 0 < end < begin:
                return f"its log ends at {end}, ours begins at {begin}: what lies between is deleted"
            self.position = end or begin  # an empty slave gets all of it; Java's master sends the last file only
            self._observe(SlaveJoined(self.host, self.position))
            self.woken.set()
        elif end > self.position:
            return f"its log ends at {end}, it has got bytes up to {self.position} only: somebody else writes there"
        self.confirmed = max(self.confirmed, end)
        return None

    async def _send(self) -> NoReturn:
        store, writer = self._store, self._writer
        while True:
            if not await is_set_by(self.woken, self._loop.time() + HEARTBEAT) and self.position >= 0:
                writer.write(block_head(self.position, 0))
            self.woken.clear()
            while 0 <= self.position < store.durable_position:
                position, data = self.position, await self._read()
                for at in range(0, len(data), MOST_BLOCK_BYTES):
                    block = data[at : at + MOST_BLOCK_BYTES]
                    writer.write(block_head(position + at, len(block)) + block)
                await writer.drain()

    async def _read(self) -> bytes:
        """The next bytes to send, which lie in one file. Raises OSError, also when that is deleted."""
        segment, position = self._segment, self.position
        if segment is None or not segment.start <= position < segment.end:
            self._close()
            segment = self._segment = self._store.log.open_segment(position)
        size = min(_READ_BYTES, self._store.durable_position - position, segment.end - position)
        data = await self._loop.run_in_executor(self._thread, segment.file.read, size, position - segment.start)
        if not data:
            raise OSError("the file of the log is too short")
        self.position += len(data)
        return data

    def _close(self) -> None:
        if self._segment is not None:
            self._thread.submit(self._segment.file.close)  # after what the thread may be reading of it
            self._segment = None


class _Reply(NamedTuple):
    position: int
    deadline: float
    connection: Connection
    code: int
    """The request's code; its body is kept no longer."""
    response: Command


class Master:
    """The slaves of one broker, and the replies that wait for them."""

    def __init__(self, store: MessageStore, observe: Observe, timeout: float) -> None:
        """`timeout`: seconds that a reply waits at most."""
        self._store, self._observe, self._timeout = store, observe, timeout
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks(observe)
        self._thread = ThreadPoolExecutor(1, "rocketapp-broker-slaves")
        self._server: asyncio.Server | None = None
        self._is_known: Callable[[str], bool] = lambda host: False
        self.slaves: list[Slave] = []
        """The connected slaves."""
        self._waiting: deque[_Reply] = deque()
        """In the order of positions."""
        self._timer: asyncio.TimerHandle | None = None
        self.port: int = 0
        """Where slaves connect; 0 while none can."""

    def __repr__(self) -> str:
        return f"<Master of {len(self.slaves)} slaves at port {self.port}>"

    async def listen(self, host: str, port: int, is_known: Callable[[str], bool]) -> None:
        """Accept slaves. Raises OSError when the address is taken.

        `is_known`: whether a slave may come from this host, which is not this machine.
        """
        self._server = await asyncio.start_server(self._accept, host, port)
        self.port, self._is_known = self._server.sockets[0].getsockname()[1], is_known

    async def finish(self) -> None:
        """Give the slaves the rest of the log, as far as they take it soon, and leave them. No file is read then."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        self.flushed()
        await self.have(self._store.durable_position, LAST_PATIENCE)
        self.port = 0
        await asyncio.sleep(0)  # what serves who came last has begun, so that it ends as all of them do
        await self._tasks.close()
        if self._server is not None:
            self._server.close()
        self._thread.shutdown()

    def flushed(self) -> None:
        """More of the log is durable."""
        for slave in self.slaves:
            slave.woken.set()

    @property
    def replicated(self) -> int | None:
        """Up to where the foremost slave has the log; None while no slave keeps up."""
        foremost = max((slave.confirmed for slave in self.slaves), default=-1)
        keeps_up = foremost >= 0 and self._store.durable_position - foremost < MOST_BEHIND
        return foremost if keeps_up else None

    def status(self) -> list[SlaveStatus]:
        """How far each slave is that has said where its log ends."""
        return [SlaveStatus(one.host, one.confirmed, one.position) for one in self.slaves if one.position >= 0]

    async def have(self, position: int, timeout: float, host: str = "") -> bool:
        """Wait until every slave has the log up to this position; whether they do after so many seconds.

        `host`: only its slaves count. One that has registered from there and has no connection here lacks the log.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await until(lambda: self._is_confirmed(position, host))
        return self._is_confirmed(position, host)

    def _is_confirmed(self, position: int, host: str) -> bool:
        ends = [slave.confirmed for slave in self.slaves if host in ("", slave.host) and slave.position >= 0]
        return min(ends) >= position if ends else not self._is_known(host)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        slave = Slave(reader, writer, self._store, self._thread, self._observe)
        problem = None if self.port else "the broker stops"
        if not is_loopback(slave.host) and not self._is_known(slave.host):
            problem = "no slave of that host has registered with the name server"
        elif len(self.slaves) >= MOST_SLAVES:
            problem = f"there are {MOST_SLAVES} already"
        if problem is not None:
            writer.close()
            self._observe(SlaveLeft(slave.host, 0, problem))
            return
        self.slaves.append(slave)
        self._tasks.start(self._serve(slave), f"broker slave {slave.host}")

    async def _serve(self, slave: Slave) -> None:
        try:
            reason = await slave.serve(self._confirmed)
            self._observe(SlaveLeft(slave.host, max(slave.confirmed, 0), reason))
        finally:
            self.slaves.remove(slave)

    # Replies that wait for a slave.

    def hold(self, position: int, connection: Connection, command: Command, response: Command) -> None:
        """Send this reply when a slave has the log up to the position, at once when there is no slave."""
        replicated = self.replicated
        if replicated is None:
            connection.reply(_told(command.code, response, ResponseCode.SLAVE_NOT_AVAILABLE))
        elif replicated >= position:
            connection.reply(response)
        else:
            deadline = self._loop.time() + self._timeout
            self._waiting.append(_Reply(position, deadline, connection, command.code, response))
            if self._timer is None:
                self._timer = self._loop.call_at(deadline, self._late)

    def _confirmed(self) -> None:
        replicated, waiting = self.replicated, self._waiting
        while waiting and replicated is not None and waiting[0].position <= replicated:
            reply = waiting.popleft()
            reply.connection.reply(reply.response)

    def _late(self) -> None:
        now, waiting = self._loop.time(), self._waiting
        while waiting and waiting[0].deadline <= now:
            _, _, connection, code, response = waiting.popleft()
            connection.reply(_told(code, response, ResponseCode.FLUSH_SLAVE_TIMEOUT))
        self._timer = self._loop.call_at(waiting[0].deadline, self._late) if waiting else None


def _told(request: int, response: Command, code: ResponseCode) -> Command:
    """The reply to what is stored here and perhaps nowhere else; a refusal stays what it is."""
    if request in _TOLD and response.code == ResponseCode.SUCCESS:
        response.code, response.remark = code, code.name
    return response
