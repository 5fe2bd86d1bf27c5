"""A tap between the members of a group and their broker: it sees every pull and every commit, in one order.

Each member gets a door of its own: listeners that stand for the name server and the broker. What it asks is noted with
its name and passed on; in what comes back, the real addresses are replaced by those of the door, so that the member
stays behind it. Works for ours and for the Java client alike, which know nothing of it.
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections import Counter
from typing import NamedTuple

from rocketapp.errors import ProtocolError
from rocketapp.wire.command import Command
from rocketapp.wire.frame import decode
from tests.peers.clusters import free_port

PULL, COMMIT, LOCK, UNLOCK = 11, 15, 41, 42
_COMMITS_WITH_THE_PULL = 1


class Seen(NamedTuple):
    """One request of a member, on its way to the broker."""

    at: float
    """Monotonic seconds."""
    member: str
    kind: str
    """`pull`, or `commit`: a request of its own, or one that travelled with a pull."""
    topic: str
    queue: int
    offset: int


class Tap:
    """Doors to one cluster; `seen` grows while members talk."""

    def __init__(self, name_server: str, broker_address: str) -> None:
        self._upstream = list(dict.fromkeys((name_server, broker_address)))
        self.seen: list[Seen] = []
        self.asked: Counter[tuple[str, int, str]] = Counter()
        """How often a member has sent a request with this code about this topic."""
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tap", daemon=True)
        self._thread.start()

    def door(self, member: str) -> str:
        """Listen for one member; returns the name server's address as that member must be told it."""
        local = {address: f"127.0.0.1:{free_port()}" for address in self._upstream}
        asyncio.run_coroutine_threadsafe(self._listen(member, local), self._loop).result(60)
        return local[self._upstream[0]]

    async def _listen(self, member: str, local: dict[str, str]) -> None:
        swaps = [(real.encode(), own.encode()) for real, own in local.items()]
        assert all(len(real) == len(own) for real, own in swaps), f"ports of five digits are needed: {local}"
        for real, own in local.items():

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str = real) -> None:
                await self._serve(member, address, swaps, reader, writer)

            self._servers.append(await asyncio.start_server(serve, "127.0.0.1", int(own.rpartition(":")[2])))

    async def _serve(
        self,
        member: str,
        address: str,
        swaps: list[tuple[bytes, bytes]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        host, _, port = address.rpartition(":")
        try:
            up_reader, up_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        self._writers |= {writer, up_writer}
        await asyncio.gather(self._pass_on(reader, up_writer, member, []), self._pass_on(up_reader, writer, "", swaps))
        self._writers -= {writer, up_writer}

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, member: str, swaps: list[tuple[bytes, bytes]]
    ) -> None:
        """Whole frames, one after the other, until one side closes: then the other side is closed too."""
        try:
            while True:
                head = await reader.readexactly(4)
                frame = await reader.readexactly(struct.unpack(">i", head)[0])
                if member:
                    self._note(member, frame)
                for real, own in swaps:
                    frame = frame.replace(real, own)
                writer.write(head + frame)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _note(self, member: str, frame: bytes) -> None:
        size = int.from_bytes(frame[1:4], "big")
        try:
            self._note_command(member, decode(frame[0], frame[4 : 4 + size], b""))
        except ProtocolError:
            return

    def _note_command(self, member: str, command: Command) -> None:
        fields = command.fields
        if not command.is_response:
            self.asked[member, int(command.code), (fields or {}).get("topic", "")] += 1
        if command.is_response or command.code not in (PULL, COMMIT) or fields is None:
            return
        now, topic, queue = time.monotonic(), fields["topic"], int(fields["queueId"])
        if command.code == COMMIT:
            self.seen.append(Seen(now, member, "commit", topic, queue, int(fields["commitOffset"])))
            return
        self.seen.append(Seen(now, member, "pull", topic, queue, int(fields["queueOffset"])))
        if int(fields["sysFlag"]) & _COMMITS_WITH_THE_PULL:
            self.seen.append(Seen(now, member, "commit", topic, queue, int(fields["commitOffset"])))

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.sleep(0.1)
