"""The slave's side of replication: it copies the log of its master, and takes over its tables.

The log comes as a stream of bytes (Java: DefaultHAClient). Whole records are appended at their positions, by the store
and with the dispatch that a master has; a begun one waits in memory. What follows from them is the same here as there.

Rule: the tables are those of the log that is copied. They are taken over while that is copied, from the same master.

Rule: nothing of a log is cut to fit another one. The master sends our last record first. A master whose log ends before
ours, or has other bytes there, is left with a line, and asked again later.
"""

from __future__ import annotations

import asyncio
import contextlib

from rocketapp.broker.replication.master_tables import MasterTables
from rocketapp.broker.store.store import MessageStore
from rocketapp.errors import ProtocolError, RocketAppError
from rocketapp.model.event import FollowsMaster, LeftMaster, Observe
from rocketapp.tasks import scope
from rocketapp.transport.stream import split_address
from rocketapp.wire.replication import HEAD_BYTES, encode_report, read_head

AGAIN = 5.0
"""Seconds until a master that was left is connected again (Java: HAClient)."""
REPORT = 5.0
"""Seconds after which the end of the log is reported once more (Java: haSendHeartbeatInterval)."""
_IDLE = 20.0
"""Seconds of silence after which the master is given up (Java: haHousekeepingInterval)."""
_DIAL_TIMEOUT = 3.0


class MasterLog:
    """Follows one master, again and again, until cancelled."""

    def __init__(self, store: MessageStore, tables: MasterTables, observe: Observe, master: str) -> None:
        self._store, self._tables, self._observe = store, tables, observe
        self.master: str = master
        """Where the master is, host:port; empty while that is not known. Another one ends what is copied from this."""

    def __repr__(self) -> str:
        return f"<MasterLog of {self.master or 'nobody'} to {self._store.end_position}>"

    async def run(self) -> None:
        while True:
            try:
                reason = await self._follow()
            except (OSError, RocketAppError) as error:
                reason = str(error) or type(error).__name__
            self._observe(LeftMaster(self._tables.master, self._store.end_position, reason))
            await asyncio.sleep(AGAIN)

    async def _follow(self) -> str:
        """Copy the log until the connection ends, and say why."""
        self._tables.master = self.master
        store, end = self._store, await self._tables.log_end()
        if store.end_position > end:
            return f"our log ends at {store.end_position}, its log at {end}: it is of another history"
        position = await self._first_wanted(end)
        address = await self._tables.log_address()
        host, port = split_address(address)
        async with asyncio.timeout(_DIAL_TIMEOUT):
            reader, writer = await asyncio.open_connection(host, port)
        is_ours = asyncio.Event()
        try:
            copying = self._copy(reader, writer, position, is_ours)
            async with scope(copying, self._report(writer, is_ours), self._take_over(address, is_ours)) as parts:
                done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                return str(done.pop().result())
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _first_wanted(self, end: int) -> int:
        """The position that the master is to begin at: that of our last record, 0 for an empty log.

        `end`: of its log. To 0 a master of Apache's answers with its last file: of several ones it is asked for the
        first record, and goes on behind that.
        """
        store, last = self._store, self._store.last_position
        begin = await self._tables.log_begin()
        if last > 0 or end < store.log.segment_end(begin):
            return max(last, 0)
        first = await self._tables.record_at(begin)
        if first is None:  # its topic is deleted
            return store.end_position
        if last < 0:
            store.append_copied(begin, first)
        elif last == begin and first != store.log.read(begin, len(first)):
            raise ProtocolError("it has another record at 0: it is of another history")
        return store.end_position

    async def _take_over(self, address: str, is_ours: asyncio.Event) -> None:
        """Take over the tables as soon as the log is known to be ours."""
        await is_ours.wait()
        self._observe(FollowsMaster(self._tables.master, self._store.end_position))
        await self._tables.run(address)

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, start: int, is_ours: asyncio.Event
    ) -> str:
        """`start`: where the master begins; between there and our end its bytes have to be those that are here."""
        store = self._store
        known = store.end_position - start
        position, begun = start, b""
        while True:
            if not known:
                is_ours.set()
            writer.write(encode_report(min(position, store.end_position)))
            try:
                async with asyncio.timeout(_IDLE):
                    at, size = read_head(await reader.readexactly(HEAD_BYTES))
                    block = await reader.readexactly(size)
            except TimeoutError:
                return f"it has said nothing for {_IDLE:g} s"
            except asyncio.IncompleteReadError:
                return "closed by the master"
            if at != position and (position > 0 or known):
                return f"it sends position {at}, and not {position}"
            begun, position = begun + block, at + size
            if known and len(begun) >= known:
                if begun[:known] != store.log.read(start, known):
                    return f"it has another record at {start}: it is of another history"
                begun, known = begun[known:], 0
            if not known:
                begun = begun[store.append_copied(position - len(begun), begun) :]

    async def _report(self, writer: asyncio.StreamWriter, is_ours: asyncio.Event) -> str:
        """Say once more where the log ends, as long as the master is the same."""
        while self.master == self._tables.master:
            await asyncio.sleep(REPORT)
            if is_ours.is_set():
                writer.write(encode_report(self._store.end_position))
        return f"the master is {self.master} now"
