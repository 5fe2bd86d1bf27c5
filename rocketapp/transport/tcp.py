"""Streams over TCP.

The transport calls the receiver's `received` directly, so that no extra Python call is made per read.
TCP_NODELAY is set, because every write is a whole batch of frames.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import Any, cast

from rocketapp.errors import ConnectError, TlsError
from rocketapp.transport.stream import (
    WRITE_HIGH_BYTES,
    MakeReceiver,
    Receiver,
    join_address,
    split_address,
)
from rocketapp.transport.tls import Tls, alert_problem, handshake_problem
from rocketapp.transport.tls_server import ServerTls

READ_BYTES = 131_072
"""Most bytes of one read. asyncio's own 256 KiB costs much more CPU per pulled message (2.0 instead of 1.25 us):
every read allocates a buffer of the full size, and the C library maps and unmaps buffers of that size."""
BACKLOG = 1024
"""Connections that may wait to be accepted (Java: serverSocketBacklog)."""
_TLS_CLOSE_TIMEOUT = 1.0
"""Seconds that a peer may take to answer the end of TLS."""
_TLS_ERRORS = (ssl.SSLError, ConnectionResetError, ConnectionAbortedError)
"""What a handshake ends with. A server that is not reached refuses the connection, or is silent."""


class TcpStream(asyncio.Protocol):
    """A TCP connection as a stream, on a transport of asyncio."""

    def __init__(self, make_receiver: MakeReceiver) -> None:
        self._make_receiver = make_receiver
        self._ended = False
        self.peer: str = ""
        self.local: str = ""

    def __repr__(self) -> str:
        return f"<TcpStream {self.local} to {self.peer}>"

    @property
    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():  # asyncio logs what is written to a peer that has gone
            self._transport.write(data)

    def pause_reading(self) -> None:
        if not self._ended and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._ended and not self._transport.is_reading():
            self._transport.resume_reading()

    def close(self) -> None:
        self._ended = True
        self._transport.close()

    def abort(self) -> None:
        self._ended = True
        self._transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not cast by isinstance: uvloop's transports do not inherit from asyncio.Transport.
        self._transport = cast(asyncio.Transport, transport)
        self.peer, self.local = _name(transport, "peername"), _name(transport, "sockname")
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(transport, "max_size"):  # asyncio's socket transports; uvloop reads into a buffer of its own.
            transport.max_size = READ_BYTES
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=WRITE_HIGH_BYTES // 4)
        self._receiver = self._make_receiver(self)
        # Instance attributes replace the methods of asyncio.Protocol, which saves a call per read.
        # The protocol is set again, because uvloop keeps the methods that it found the first time.
        receiver = self._receiver
        vars(self).update(data_received=receiver.received, pause_writing=receiver.pause, resume_writing=receiver.resume)
        self._transport.set_protocol(self)

    def disown(self) -> None:
        sock: socket.socket | None = self._transport.get_extra_info("socket")
        if not self._ended and sock is not None and sock.fileno() >= 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, sock.fileno(), inheritable=False)
            os.close(nowhere)

    def connection_lost(self, error: Exception | None) -> None:
        by_us, self._ended = self._ended, True
        if isinstance(error, ssl.SSLError):
            self._receiver.lost(alert_problem(error))
        elif error is not None:
            self._receiver.lost(f"{type(error).__name__}: {error}")
        else:
            self._receiver.lost("closed here" if by_us else "closed by the peer")


async def dial_tcp(address: str, receiver: Receiver, timeout: float, tls: Tls | None = None) -> TcpStream:
    """Connect to `host:port` within `timeout` seconds, with TLS when that is given.

    Raises ConnectError with the reason. Where TLS fails, nothing is ever sent without it.
    """
    try:
        host, port = split_address(address)
    except ValueError as error:
        raise ConnectError(address, str(error)) from None
    loop = asyncio.get_running_loop()
    stream = TcpStream(lambda _: receiver)
    secured: dict[str, Any] = {}
    if tls is not None:
        name = tls.server_name or host
        secured = {"ssl": tls.context, "server_hostname": name, "ssl_shutdown_timeout": _TLS_CLOSE_TIMEOUT}
    try:
        async with asyncio.timeout(timeout):
            await loop.create_connection(lambda: stream, host, port, **secured)
    except TimeoutError:
        raise ConnectError(address, f"no connection within {timeout:g} s") from None
    except _TLS_ERRORS as error:
        if tls is None:
            raise ConnectError(address, _reason(error)) from None
        raise TlsError(address, handshake_problem(error, tls, host)) from None
    except OSError as error:
        raise ConnectError(address, _reason(error)) from None
    except ValueError as error:
        # The look-up of names refuses some texts by itself.
        raise ConnectError(address, f"{host!r} cannot be the name of a host: {error}") from None
    return stream


class TcpListening:
    """A listening TCP socket."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        host, port = server.sockets[0].getsockname()[:2]
        self.address: str = join_address(host, port)

    async def close(self) -> None:
        # wait_closed() would wait for the streams too, in Python 3.12 and later.
        self._server.close()


async def listen_tcp(host: str, port: int, make_receiver: MakeReceiver, tls: ServerTls | None = None) -> TcpListening:
    """Accept streams, with TLS where that is given; port 0 takes a free one. OSError when the address is taken."""
    loop = asyncio.get_running_loop()
    if tls is not None:
        make_receiver = tls.around(make_receiver)
    server = await loop.create_server(lambda: TcpStream(make_receiver), host, port, backlog=BACKLOG)
    return TcpListening(server)


def _reason(error: OSError) -> str:
    # asyncio's own text for a refused connection is "Connect call failed"; errors of name look-ups are negative.
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or str(error)


def _name(transport: asyncio.BaseTransport, which: str) -> str:
    name: Any = transport.get_extra_info(which)
    return join_address(name[0], name[1]) if isinstance(name, tuple) else str(name or "")
