"""A blocking connection to a broker or name server. Frames are those of `rocketapp.wire`.

One thread uses a connection at a time. Many requests may be in flight; replies come in any order.
Nothing is opened when this module is imported, because Spark forks its workers.
"""

from __future__ import annotations

import itertools
import select
import socket
import ssl
from collections import deque
from collections.abc import Iterable, Mapping

from pyspark_rocketmq.options import Access, Tls
from rocketapp import TransportError
from rocketapp.errors import ProtocolError
from rocketapp.wire.command import Command
from rocketapp.wire.frame import FrameReader, encode
from rocketapp.wire.signing import Keys

_LARGEST_FRAME = 64 * 1024 * 1024
_READ = 262_144
"""Bytes of one read: what many pulls in flight bring is taken at once."""


class Connection:
    """One connection. Every method raises TransportError when it breaks or an answer does not come in time.

    One that cannot be read is a ProtocolError, which names the server.
    """

    def __init__(self, address: str, access: Access, *, timeout: float) -> None:
        self.address, self.access = address, access
        named = bool(access.access_key)
        self._keys = Keys(access.access_key, access.secret_key, access.security_token) if named else None
        self._opaques = itertools.count(1)
        self._frames, self._arrived = FrameReader(_LARGEST_FRAME), deque[Command]()
        self.in_flight = 0
        """Requests whose replies have not been received."""
        self._stream = _dial(address, access.tls, timeout)

    def send(self, code: int, fields: Mapping[str, str] | None, body: bytes = b"") -> int:
        """Send a request; return the id that its reply will carry."""
        (opaque,) = self.send_all([(code, fields, body)])
        return opaque

    def send_all(self, requests: Iterable[tuple[int, Mapping[str, str] | None, bytes]]) -> list[int]:
        """Send requests (code, fields, body) with one call of the operating system; return their ids."""
        opaques, frames = [], []
        for code, fields, body in requests:
            opaque = next(self._opaques)
            own = dict(fields or {}) if self._keys is None else self._keys.sign(fields, body)
            frames.append(encode(Command(code, own, body, opaque=opaque)))
            opaques.append(opaque)
        try:
            self._stream.sendall(frames[0] if len(frames) == 1 else b"".join(frames))
        except OSError as error:
            raise TransportError(self.address, f"the connection broke while sending: {error}") from None
        self.in_flight += len(opaques)
        return opaques

    def receive(self, timeout: float) -> Command:
        """The next reply, whichever request it belongs to."""
        while not self._arrived:
            self._read(timeout)
        self.in_flight -= 1
        return self._arrived.popleft()

    def receive_all(self, timeout: float) -> list[Command]:
        """The next reply and those that came with it."""
        replies = [self.receive(timeout), *self._arrived]
        self.in_flight -= len(self._arrived)
        self._arrived.clear()
        return replies

    def call(self, code: int, fields: Mapping[str, str] | None, body: bytes = b"", *, timeout: float) -> Command:
        """Send a request and wait for its reply, when nothing else is in flight."""
        opaque = self.send(code, fields, body)
        while True:
            reply = self.receive(timeout)
            if reply.opaque == opaque:
                return reply

    def _read(self, timeout: float) -> None:
        try:
            self._stream.settimeout(timeout)
            data = self._stream.recv(_READ)
        except TimeoutError:
            raise TransportError(self.address, f"no answer within {timeout:g} s") from None
        except OSError as error:
            raise TransportError(self.address, f"the connection broke: {error}") from None
        if not data:
            raise TransportError(self.address, "the server closed the connection")
        try:
            commands = self._frames.feed(data)
        except ProtocolError as error:
            raise ProtocolError(f"{self.address}: {error}") from None
        # Brokers may send requests of their own. They concern consumers and producers that stay.
        self._arrived += (command for command in commands if command.is_response)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight and the server has neither sent anything nor closed it."""
        if self.in_flight or self._arrived:
            return False
        return not select.select([self._stream], [], [], 0)[0]

    def close(self) -> None:
        self._stream.close()


def _dial(address: str, tls: Tls | None, timeout: float) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    stream = None
    try:
        stream = socket.create_connection((host, int(port)), timeout=timeout)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream if tls is None else _context(tls).wrap_socket(stream, server_hostname=host)
    except (OSError, ValueError) as error:
        if stream is not None:
            stream.close()
        raise TransportError(address, f"cannot connect: {error}") from None


def _context(tls: Tls) -> ssl.SSLContext:
    """Reads the files. Raises OSError (ssl.SSLError is one) when one cannot be used."""
    context = ssl.create_default_context(cafile=tls.ca_file or None)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif not tls.check_host:
        context.check_hostname = False
    if tls.cert_file:
        context.load_cert_chain(tls.cert_file, tls.key_file or None, tls.key_password or None)
    return context
