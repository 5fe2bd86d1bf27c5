"""The slave's side of replication: it copies the log of its master, and takes over its tables.

The log comes as a stream of bytes (Java: DefaultHAClient). Whole records are appended at their positions, by the store
and with the dispatch that a master has; a begun one waits in memory. What follows from them is the same here as there.

Rule: the tables are those of the log that is copied. They are taken over while that is copied, from the same master.

Rule: nothing of a log is cut to fit another one. A master whose log ends before ours, or has other bytes where our last
record is, is left with a line, and asked again later.
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
from rocketapp.wire.replication import BlockReader, encode_report

AGAIN = 5.0
"""Seconds until a master that was left is connected again (Java: HAClient)."""
_REPORT = 5.0
"""Seconds after which the end of the log is reported once more (Java: haSendHeartbeatInterval)."""
_IDLE = 20.0
"""Seconds of silence after which the master is given up (Java: haHousekeepingInterval)."""
_DIAL_TIMEOUT = 3.0
_MOST_COMPARED = 16
"""Records of ours that are looked for in the log of the master."""
_READ_BYTES = 262_144
"""Bytes that are taken in one turn of the loop."""


class Following:
    """Follows one master, again and again, until cancelled."""

    def __init__(self, store: MessageStore, tables: MasterTables, observe: Observe, master: str) -> None:
        self._store, self._tables, self._observe = store, tables, observe
        self.master: str = master
        """Where the master is, host:port; empty while that is not known. Another one ends what is copied from this."""
        self.copies_from: str = ""
        """Where the master sends what it stores; empty while it does not."""

    def __repr__(self) -> str:
        return f"<Following {self.copies_from or 'nobody'} to {self._store.end_position}>"

    async def run(self) -> None:
        while True:
            try:
                reason = await self._follow()
            except (OSError, RocketAppError) as error:
                reason = str(error) or type(error).__name__
            finally:
                self.copies_from = ""
            self._observe(LeftMaster(self._tables.master, self._store.end_position, reason))
            await asyncio.sleep(AGAIN)

    async def _follow(self) -> str:
        """Copy the log until the connection ends, and say why."""
        self._tables.master = self.master
        problem = await self._other_history()
        if problem is not None:
            return problem
        if self._store.end_position == self._store.begin_position:
            await self._begin()
        address = await self._tables.log_address()
        host, port = split_address(address)
        async with asyncio.timeout(_DIAL_TIMEOUT):
            reader, writer = await asyncio.open_connection(host, port)
        try:
            self._observe(FollowsMaster(self._tables.master, self._store.end_position))
            self.copies_from = address
            async with scope(self._copy(reader, writer), self._tables.run()) as halves:
                done, _ = await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
                return str(done.pop().result())
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _begin(self) -> None:
        """Take the first record of a log of several files: a slave without one would get the last of Apache's only."""
        position = await self._tables.log_begin()
        if await self._tables.log_end() < self._store.segment_end(position):
            return  # and what is new may not be durable there yet
        first = await self._tables.record_at(position)
        if first is not None:
            self._store.append_copied(position, first)

    async def _other_history(self) -> str | None:
        """Why this log cannot be a part of the master's; None when it can."""
        store, end = self._store, await self._tables.log_end()
        if store.end_position > end:
            return f"our log ends at {store.end_position}, its log at {end}: it is of another history"
        compared = store.begin_position
        for position in store.last_records(_MOST_COMPARED):
            ours = store.record_at(position)
            theirs = None if ours is None else await self._tables.record_at(position)
            if theirs is not None:  # it does not find those of deleted topics
                return None if ours == theirs else f"it has another record at {position}: it is of another history"
            compared = max(compared, position)
        if compared == store.begin_position:
            return None
        return f"it has no record at {compared}, where we have one: it is of another history"

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        store, blocks, loop = self._store, BlockReader(), asyncio.get_running_loop()
        position, begun, heard = store.end_position, b"", loop.time()
        while loop.time() - heard < _IDLE:
            if self.master != self._tables.master:
                return f"the master is {self.master} now"
            writer.write(encode_report(store.end_position))
            try:
                async with asyncio.timeout(_REPORT):
                    data = await reader.read(_READ_BYTES)
            except TimeoutError:
                continue
            if not data:
                return "closed by the master"
            heard = loop.time()
            try:
                parts = list(blocks.feed(data))
            except ProtocolError as error:
                return f"position {position}: {error}"
            for at, part in parts:
                if at != position and position > 0:
                    return f"it sends position {at}, our log ends at {position}"
                begun, position = begun + part, at + len(part)
            begun = begun[store.append_copied(position - len(begun), begun) :]
        return f"it has said nothing for {_IDLE:g} s"
