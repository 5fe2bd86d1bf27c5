"""Bytes are pushed in and written out: what a connection needs of a socket, and nothing more.

Neither side awaits. A stream pushes what it receives into its `Receiver`; a receiver writes whenever
it likes and is told by `pause` that the other end does not keep up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

WRITE_HIGH_BYTES = 1_048_576
"""A stream with more unsent bytes than this is paused, and resumed below a quarter of it."""


class Stream(Protocol):
    """One end of a two-way flow of bytes."""

    @property
    def peer(self) -> str:
        """The other end's `ip:port`."""
        ...

    @property
    def local(self) -> str:
        """This end's `ip:port`."""
        ...

    @property
    def unsent(self) -> int:
        """Bytes that were written and did not leave yet."""
        ...

    def write(self, data: bytes) -> None:
        """Never blocks, never raises: after the end it does nothing."""
        ...

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`: the other end feels it when its own buffers are full."""
        ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Send what was written, then end."""
        ...

    def abort(self) -> None:
        """End at once; unsent bytes are dropped."""
        ...


class Receiver(Protocol):
    """What a stream calls, always from the loop."""

    def received(self, data: bytes, /) -> None: ...

    def lost(self, reason: str, /) -> None:
        """The stream ended, whoever ended it. Called once, and nothing is called afterwards."""
        ...

    def pause(self) -> None:
        """More than WRITE_HIGH_BYTES are unsent."""
        ...

    def resume(self) -> None:
        """They left."""
        ...


class Listening(Protocol):
    """A place where streams are accepted."""

    @property
    def address(self) -> str:
        """`host:port` with the real port when 0 was asked for."""
        ...

    async def close(self) -> None:
        """Accept nobody any more. Streams that were accepted live on."""
        ...


MakeReceiver = Callable[[Stream], Receiver]

Dial = Callable[[str, Receiver, float], Awaitable[Stream]]
"""(address, receiver, timeout in seconds) -> stream; raises ConnectError."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[ipv6]:port`; ValueError says what is wrong."""
    host, colon, port = address.strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{address!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
