"""The part of a socket that a connection needs: bytes are pushed in and written out.

Neither side awaits. A stream pushes what it receives into its `Receiver`. A receiver may write at any
time, and `pause` tells it that the other end does not keep up.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Protocol

from rocketapp.transport.tls import Tls

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
        """The address of this end: `ip:port`."""
        ...

    @property
    def unsent(self) -> int:
        """Bytes that were written and not sent yet."""
        ...

    def write(self, data: bytes) -> None:
        """Write. Never blocks and never raises; after the end of the stream it does nothing."""
        ...

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`. The other end notices it when its own buffers are full."""
        ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Send what was written, then end."""
        ...

    def disown(self) -> None:
        """In a forked child: leave the stream to the parent.

        Writes go nowhere from now on, and no descriptor is held open.
        """
        ...

    def abort(self) -> None:
        """End at once; unsent bytes are dropped."""
        ...


class Receiver(Protocol):
    """The callbacks of a stream. They are always called on the event loop."""

    def received(self, data: bytes, /) -> None: ...

    def lost(self, reason: str, /) -> None:
        """The stream ended, at either end. Called once; no other callback follows."""
        ...

    def pause(self) -> None:
        """More than WRITE_HIGH_BYTES are unsent."""
        ...

    def resume(self) -> None:
        """The unsent bytes have fallen below a quarter of WRITE_HIGH_BYTES."""
        ...


class Listening(Protocol):
    """An address at which streams are accepted."""

    @property
    def address(self) -> str:
        """`host:port` with the real port when 0 was asked for."""
        ...

    async def close(self) -> None:
        """Stop accepting. Accepted streams stay open."""
        ...


MakeReceiver = Callable[[Stream], Receiver]


class Dial(Protocol):
    """Dials an address, and returns the stream to it."""

    async def __call__(self, address: str, receiver: Receiver, timeout: float, tls: Tls | None = None, /) -> Stream:
        """`timeout` in seconds. With `tls` the stream is encrypted, or none is made. Raises ConnectError."""
        ...


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[ipv6]:port`. Raises ValueError for anything else."""
    host, _, port = address.strip().rpartition(":")
    bare = host[1:-1] if host[:1] + host[-1:] == "[]" else host
    if not bare or not port.isdecimal() or int(port) > 65_535 or any(c in "[]" or c.isspace() for c in bare):
        raise ValueError(f"{address!r} is not host:port or [ipv6]:port")
    return bare, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
