"""One HTTP GET, by the standard library in a thread, so that DNS and reads never block the event loop.

Bounded in size and time. Redirects are not followed, no proxy is used, and certificates are verified.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rocketapp.errors import ConnectError, TransportError
from rocketapp.tasks import in_daemon_thread

if TYPE_CHECKING:
    from http.client import HTTPResponse

MOST_BYTES = 65_536
"""More than this is not an answer."""
_OK = 200

ReadUrl = Callable[[str, float], Awaitable[str]]
"""(URL, seconds) -> the text behind it; raises TransportError."""


def shown_url(url: str) -> str:
    """A URL as errors and logs show it: without user and password, and without its query, which may hold a token."""
    return re.sub(r"//.*@", "//", url, flags=re.DOTALL).partition("?")[0]


async def read_url(url: str, timeout: float) -> str:
    """The text behind a URL of http or https, within `timeout` seconds. Raises TransportError with the reason."""
    reading = _Reading(url, timeout)

    def work() -> str:
        try:
            return reading.text()
        except Exception as error:
            raise _problem(url, timeout, error) from None

    try:
        async with asyncio.timeout(timeout):
            return await in_daemon_thread(work, f"read {shown_url(url)}")
    except TimeoutError:
        raise _late(url, timeout) from None
    finally:
        # A server that sends byte by byte would hold the thread for ever.
        reading.cut()


class _Reading:
    """One GET request, made in a thread."""

    def __init__(self, url: str, timeout: float) -> None:
        self._shown, self._parts, self._timeout = shown_url(url), urlsplit(url), timeout
        self._sock: socket.socket | None = None

    def text(self) -> str:
        """Send the request and read the text. `timeout` bounds each step."""
        from http.client import HTTPConnection, HTTPSConnection  # slow, and most clusters need none of it

        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout)
        try:
            connection.connect()
            self._sock = connection.sock
            path = self._parts.path or "/"
            connection.request("GET", f"{path}?{self._parts.query}" if self._parts.query else path)
            with connection.getresponse() as response:
                return self._body(response).decode("utf-8")
        finally:
            connection.close()

    def _body(self, response: HTTPResponse) -> bytes:
        if response.status != _OK:
            raise TransportError(self._shown, f"answers {response.status} {response.reason}".rstrip())
        body = response.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            raise TransportError(self._shown, f"answers more than {MOST_BYTES} bytes")
        if response.length:
            # Half of a list of addresses may end with half of an address.
            raise TransportError(self._shown, f"ends {response.length} bytes early")
        return body

    def cut(self) -> None:
        """Called from another thread: end the request wherever it is."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)


def _problem(url: str, timeout: float, error: Exception) -> TransportError:
    url = shown_url(url)
    if isinstance(error, TransportError):
        return error
    if isinstance(error, TimeoutError):
        return _late(url, timeout)
    if isinstance(error, UnicodeDecodeError):
        return TransportError(url, "answers what is not UTF-8")
    if isinstance(error, OSError):
        return ConnectError(url, error.strerror or str(error))
    return TransportError(url, f"{type(error).__name__}: {error}")


def _late(url: str, timeout: float) -> ConnectError:
    return ConnectError(shown_url(url), f"no answer within {timeout:g} s")
