"""A network inside one process: the embedded broker of a test, and the faults of a simulation.

Bytes arrive in order and not before the loop's next turn, as over TCP. `cut` ends connections. `hold` makes them
half-open: nothing arrives and neither end is told, until `release`. Each end runs in the contextvars context of
its dialler or listener, so that a simulation can tell the processes apart that share its loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context

from rocketapp.errors import ConnectError
from rocketapp.transport.stream import WRITE_HIGH_BYTES, Dial, MakeReceiver, Receiver, join_address
from rocketapp.transport.tls import Tls

_FIRST_PORT = 40_000
"""The first port of those that this network assigns."""


class MemoryStream:
    """One end of a stream; `other` is the end that receives what is written here."""

    def __init__(self, network: MemoryNetwork, local: str, peer: str, names: frozenset[str], context: Context) -> None:
        """`names`: the server's address and the client's link, by which it can be cut or held."""
        self._network = network
        self.local: str = local
        self.peer: str = peer
        self.names: frozenset[str] = names
        self._context = context
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

    def disown(self) -> None:
        """What is in memory is a copy already."""

    def abort(self) -> None:
        # Like a TCP reset: bytes that the other end has not received yet are dropped.
        if not (self._ended or self._is_held):
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
        asyncio.get_running_loop().call_soon(self._lost, reason, context=self._context)

    def _lost(self, reason: str) -> None:
        self.receiver.lost(reason)

    def schedule(self) -> None:
        """Deliver later, if there is something to deliver and the stream is not held."""
        something = self._inbox or self._end_of_inbox is not None
        if something and not (self._scheduled or self._ended or self._is_held):
            self._scheduled = True
            self._network.later(self._deliver, self._context)

    @property
    def _is_held(self) -> bool:
        return self._network.is_held(*self.names)

    def _deliver(self) -> None:
        self._scheduled = False
        if self._ended or self._is_held:
            return
        if self._inbox and self._reading:
            data = self._network.portion(self._inbox)
            self._inbox_bytes -= len(data)
            self._tell_writer()
            self.receiver.received(data)
        if self._inbox and self._reading:
            self.schedule()
        elif self._end_of_inbox is not None and (self._reading or self._paused):
            # Whoever does not read hears of no end, but of bytes that find nobody any more.
            self.break_off(self._end_of_inbox)

    def _tell_writer(self) -> None:
        writer = self.other
        if writer._paused and not writer._ended and self._inbox_bytes < WRITE_HIGH_BYTES // 4:
            writer._paused = False
            asyncio.get_running_loop().call_soon(writer._resume, context=writer._context)

    def _resume(self) -> None:
        if not self._ended and not self._paused:
            self.receiver.resume()


class MemoryListening:
    """An address of a memory network that accepts streams."""

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        self._network = network
        self.address: str = address

    async def close(self) -> None:
        self._network.unlisten(self.address)


class MemoryNetwork:
    """Addresses, their listeners, and the addresses and links that are held."""

    def __init__(self) -> None:
        self.slowness: float = 0.0
        """Seconds that everything takes."""
        self._refusing: set[str] = set()
        self._listeners: dict[str, tuple[MakeReceiver, Context]] = {}
        self._streams: dict[MemoryStream, None] = {}
        self._held: set[str] = set()
        self._released = asyncio.Event()
        self._port = _FIRST_PORT

    async def listen(self, host: str, port: int, make_receiver: MakeReceiver) -> MemoryListening:
        """Accept streams; port 0 takes a free one. OSError when the address is taken."""
        address = join_address(host, port or self._free_port())
        if address in self._listeners:
            raise OSError(f"{address} is in use")
        self._listeners[address] = make_receiver, copy_context()
        return MemoryListening(self, address)

    async def dial(
        self, address: str, receiver: Receiver, timeout: float, tls: Tls | None = None, *, link: str = ""
    ) -> MemoryStream:
        """Connect, as transport.stream.Dial says. `link` names the client, to cut or hold its connections alone.

        `tls` changes nothing: what is sent never leaves the process.
        """
        names = frozenset((address, link)) if link else frozenset((address,))
        try:
            async with asyncio.timeout(timeout):
                while self.is_held(*names):
                    await self._released.wait()
                await asyncio.sleep(self.delay())
        except TimeoutError:
            raise ConnectError(address, f"no connection within {timeout:g} s") from None
        make_receiver, context = (
            (None, None) if address in self._refusing else self._listeners.get(address, (None, None))
        )
        if make_receiver is None or context is None:
            raise ConnectError(address, "Connection refused")
        local = join_address("127.0.0.1", self._free_port())
        near = MemoryStream(self, local, address, names, copy_context())
        far = MemoryStream(self, address, local, names, context)
        near.other, far.other = far, near
        near.receiver = receiver
        self._streams[near] = self._streams[far] = None
        far.receiver = context.run(make_receiver, far)
        return near

    def dialer(self, link: str) -> Dial:
        """`dial` for the client of this name."""

        async def dial(address: str, receiver: Receiver, timeout: float, tls: Tls | None = None, /) -> MemoryStream:
            return await self.dial(address, receiver, timeout, tls, link=link)

        return dial

    def cut(self, name: str | None = None) -> int:
        """Break every connection of that address or link (None: all) at both ends; return the number of ends."""
        ends = [stream for stream in self._streams if name is None or name in stream.names]
        for stream in ends:
            stream.break_off("connection reset")
        return len(ends)

    def hold(self, name: str) -> None:
        """Stop all bytes to and from that address or link without telling either end: half-open connections."""
        self._held.add(name)

    def release(self, name: str) -> None:
        """Undo `hold`: the bytes that were held back arrive."""
        self._held.discard(name)
        self._released.set()
        self._released = asyncio.Event()
        for stream in list(self._streams):
            if name in stream.names:
                stream.schedule()

    def refuse(self, address: str) -> None:
        """Break the connections of this address, and refuse new ones until `accept`: its process is gone."""
        self._refusing.add(address)
        self.cut(address)

    def accept(self, address: str) -> None:
        """Connections to this address are taken again: undoes `refuse`."""
        self._refusing.discard(address)

    def is_held(self, *names: str) -> bool:
        return not self._held.isdisjoint(names)

    def later(self, deliver: Callable[[], None], context: Context) -> None:
        """Call `deliver` when bytes that leave now arrive: at the loop's next turn or later."""
        delay = self.delay()
        loop = asyncio.get_running_loop()
        if delay:
            loop.call_later(delay, deliver, context=context)
        else:
            loop.call_soon(deliver, context=context)

    def unlisten(self, address: str) -> None:
        self._listeners.pop(address, None)

    def forget(self, stream: MemoryStream) -> None:
        self._streams.pop(stream, None)

    def portion(self, inbox: deque[bytes]) -> bytes:
        """Take the bytes from the inbox that arrive in one piece."""
        return inbox.popleft()

    def delay(self) -> float:
        """Seconds that the bytes of one delivery take."""
        return self.slowness

    def _free_port(self) -> int:
        self._port += 1
        return self._port
