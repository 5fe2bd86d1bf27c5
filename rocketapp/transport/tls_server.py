"""TLS on the port that serves without it too: the first byte of a connection says which it is, as in Apache RocketMQ.

Bytes pass through memory: the stream below and the receiver above know nothing of TLS.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from typing import NamedTuple

from rocketapp.config.broker import BrokerConfig
from rocketapp.errors import ConfigError
from rocketapp.transport.stream import MakeReceiver, Receiver, Stream
from rocketapp.transport.tls import alert_problem, load_own

_HANDSHAKE = 0x16
"""The first byte of TLS. A frame begins with its length, which has no such byte there."""
_CHUNK_BYTES = 131_072


class ServerTls(NamedTuple):
    """The TLS context of a server, shared by all its connections."""

    context: ssl.SSLContext
    is_required: bool
    """Whether a connection without TLS is ended."""

    def around(self, make_receiver: MakeReceiver) -> MakeReceiver:
        return lambda stream: _EitherStream(stream, make_receiver, self)


def server_tls_of(config: BrokerConfig) -> ServerTls | None:
    """None without TLS. Raises ConfigError for files that cannot be used, and where TLS is wanted without them."""
    if not config.cert_file:
        if config.key_file or config.tls == "enforcing":
            raise ConfigError("broker.cert_file", "is empty: TLS needs a certificate")
        return None
    if config.tls == "disabled":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_own(context, config.cert_file, config.key_file, config.key_password, "broker")
    return ServerTls(context, config.tls == "enforcing")


class _EitherStream:
    """Sits between a stream and its receiver, with TLS if the first byte asks for it, and otherwise without."""

    def __init__(self, stream: Stream, make_receiver: MakeReceiver, tls: ServerTls) -> None:
        self._stream, self._tls = stream, tls
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._coded: ssl.SSLObject | None = None
        self._is_begun = self._is_open = self._is_paused = False
        self.peer: str = stream.peer
        self.local: str = stream.local
        self.abort: Callable[[], None] = stream.abort
        self.disown: Callable[[], None] = stream.disown
        self._receiver: Receiver = make_receiver(self)
        self.pause: Callable[[], None] = self._receiver.pause
        self.resume: Callable[[], None] = self._receiver.resume
        self._lost_because = ""

    def __repr__(self) -> str:
        return f"<_EitherStream {'with TLS' if self._coded else 'plain'} of {self.peer}>"

    @property
    def unsent(self) -> int:
        return self._stream.unsent

    # What the stream below calls.

    def received(self, data: bytes) -> None:
        if not self._is_begun:
            self._begin(data[0])
        if self._coded is None:
            if not self._lost_because:
                self._receiver.received(data)
            return
        self._incoming.write(data)
        read = self._read(self._coded)
        self._send_coded()
        if read:
            self._receiver.received(read)
        if self._lost_because and not self._is_paused:
            self._stream.close()

    def lost(self, reason: str) -> None:
        self._receiver.lost(self._lost_because or reason)

    # What the receiver above calls.

    def write(self, data: bytes) -> None:
        if self._coded is None:
            self._stream.write(data)
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._coded.write(rest) :]
        except ssl.SSLError as error:
            self._lost_because = alert_problem(error)
            self._stream.abort()
            return
        self._send_coded()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._stream.pause_reading()

    def resume_reading(self) -> None:
        """Read on; where nothing more can come, the stream ends."""
        self._is_paused = False
        if self._lost_because:
            self._stream.close()
        else:
            self._stream.resume_reading()

    def close(self) -> None:
        if self._coded is not None and self._is_open:
            with contextlib.suppress(ssl.SSLError):
                self._coded.unwrap()  # says goodbye, and does not wait for the other's
            self._send_coded()
        self._stream.close()

    # Inside.

    def _begin(self, first: int) -> None:
        self._is_begun = True
        if first == _HANDSHAKE:
            self._coded = self._tls.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        elif self._tls.is_required:
            self._lost_because = "it speaks without TLS"
            self._stream.abort()

    def _read(self, coded: ssl.SSLObject) -> bytes:
        """What has arrived as a whole; notes why no more can come."""
        chunks: list[bytes] = []
        try:
            if not self._is_open:
                coded.do_handshake()
                self._is_open = True
            while chunk := coded.read(_CHUNK_BYTES):
                chunks.append(chunk)
            self._lost_because = "closed by the peer"
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._lost_because = alert_problem(error)
        return b"".join(chunks)

    def _send_coded(self) -> None:
        if self._outgoing.pending:
            self._stream.write(self._outgoing.read())
