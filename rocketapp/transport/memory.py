"""A network inside one process: the embedded broker of a test, and the faults of a simulation.

Bytes arrive in order and never before the loop's next turn, as over TCP. With a `random` they also
arrive cut and joined at places that the seed chooses. `cut` ends connections, `hold` makes them
half-open: nothing arrives and nobody is told, until `release`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random

from rocketapp.errors import ConnectError
from rocketapp.transport.stream import WRITE_HIGH_BYTES, MakeReceiver, Receiver, join_address

_FIRST_PORT = 40_000
"""Where the ports begin that this network hands out."""


class MemoryStream:
    """One end; `other` is the one that hears what is written here."""

    def __init__(self, network: MemoryNetwork, local: str, peer: str, server: str) -> None:
        self._network, self.local, self.peer, self.server = network, local, peer, server
        self.receiver: Receiver
        self.other: MemoryStream
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        self._end_of_inbox: str | None = None
        self._reading = True
        self._scheduled = False
        self._ended = False
        self._paused = False

    def __repr__(self) -> str:
        return f"<MemoryStream {self.local} to {self.peer}>"

    @property
    def unsent(self) -> int:
        return self.other._inbox_bytes

    def write(self, data: bytes) -> None:
        if self._ended or not data:
            return
        other = self.other
        if not other._ended:
            other._inbox.append(bytes(data))
            other._inbox_bytes += len(data)
            other.schedule()
        if not self._paused and other._inbox_bytes > WRITE_HIGH_BYTES:
            self._paused = True
            self.receiver.pause()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.schedule()

    def close(self) -> None:
        self._finish("closed here")

    def abort(self) -> None:
        # Like a TCP reset: what the other end did not hear yet, it never hears.
        if not self._ended and not self._network.is_held(self.server):
            self.other._inbox.clear()
            self.other._inbox_bytes = 0
        self._finish("closed here")

    def _finish(self, reason: str) -> None:
        if self._ended:
            return
        self.break_off(reason)
        if not self.other._ended and self.other._end_of_inbox is None:
            self.other._end_of_inbox = "closed by the peer"
            self.other.schedule()

    def break_off(self, reason: str) -> None:
        """End this end only."""
        if self._ended:
            return
        self._ended = True
        self._inbox.clear()
        self._inbox_bytes = 0
        self._network.forget(self)
        asyncio.get_running_loop().call_soon(self._lost, reason)

    def _lost(self, reason: str) -> None:
        self.receiver.lost(reason)

    def schedule(self) -> None:
        """Deliver at the loop's next turn, if there is something and nothing is in the way."""
        something = self._inbox or self._end_of_inbox is not None
        if something and not (self._scheduled or self._ended or self._network.is_held(self.server)):
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        if self._ended or self._network.is_held(self.server):
            return
        if self._inbox and self._reading:
            data = self._network.portion(self._inbox)
            self._inbox_bytes -= len(data)
            self._tell_writer()
            self.receiver.received(data)
        if self._inbox and self._reading:
            self.schedule()
        elif not self._inbox and self._end_of_inbox is not None:
            self.break_off(self._end_of_inbox)

    def _tell_writer(self) -> None:
        writer = self.other
        if writer._paused and not writer._ended and self._inbox_bytes < WRITE_HIGH_BYTES // 4:
            writer._paused = False
            asyncio.get_running_loop().call_soon(writer._resume)

    def _resume(self) -> None:
        if not self._ended and not self._paused:
            self.receiver.resume()


class MemoryListening:
    """An address of a memory network that accepts streams."""

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        self._network, self.address = network, address

    async def close(self) -> None:
        self._network.unlisten(self.address)


class MemoryNetwork:
    """Addresses, who listens there, and which of them are in trouble."""

    def __init__(self, random: Random | None = None) -> None:
        self._random = random
        self._listeners: dict[str, MakeReceiver] = {}
        self._streams: dict[MemoryStream, None] = {}
        self._held: set[str] = set()
        self._released = asyncio.Event()
        self._port = _FIRST_PORT

    async def listen(self, host: str, port: int, make_receiver: MakeReceiver) -> MemoryListening:
        """Accept streams; port 0 takes a free one. OSError when the address is taken."""
        address = join_address(host, port or self._free_port())
        if address in self._listeners:
            raise OSError(f"{address} is in use")
        self._listeners[address] = make_receiver
        return MemoryListening(self, address)

    async def dial(self, address: str, receiver: Receiver, timeout: float) -> MemoryStream:
        """Connect, as transport.stream.Dial says."""
        try:
            async with asyncio.timeout(timeout):
                while self.is_held(address):
                    await self._released.wait()
                await asyncio.sleep(0)
        except TimeoutError:
            raise ConnectError(address, f"no connection within {timeout:g} s") from None
        make_receiver = self._listeners.get(address)
        if make_receiver is None:
            raise ConnectError(address, "Connection refused")
        local = join_address("127.0.0.1", self._free_port())
        near, far = MemoryStream(self, local, address, address), MemoryStream(self, address, local, address)
        near.other, far.other = far, near
        near.receiver = receiver
        self._streams[near] = self._streams[far] = None
        far.receiver = make_receiver(far)
        return near

    def cut(self, address: str | None = None) -> int:
        """Break every connection of that address (None: of all) at both ends; how many ends there were."""
        ends = [stream for stream in self._streams if address in (None, stream.server)]
        for stream in ends:
            stream.break_off("connection reset")
        return len(ends)

    def hold(self, address: str) -> None:
        """Let nothing through to and from that address, and tell nobody: connections are half-open."""
        self._held.add(address)

    def release(self, address: str) -> None:
        """What was held back arrives."""
        self._held.discard(address)
        self._released.set()
        self._released = asyncio.Event()
        for stream in list(self._streams):
            if stream.server == address:
                stream.schedule()

    def is_held(self, address: str) -> bool:
        return address in self._held

    def unlisten(self, address: str) -> None:
        self._listeners.pop(address, None)

    def forget(self, stream: MemoryStream) -> None:
        self._streams.pop(stream, None)

    def portion(self, inbox: deque[bytes]) -> bytes:
        """Take from the inbox what arrives at once."""
        if self._random is None:
            return inbox.popleft()
        joined = b"".join(inbox.popleft() for _ in range(self._random.randint(1, len(inbox))))
        if self._random.random() < 0.5:
            at = self._random.randint(1, len(joined))
            if joined[at:]:
                inbox.appendleft(joined[at:])
            joined = joined[:at]
        return joined

    def _free_port(self) -> int:
        self._port += 1
        return self._port
