"""The HTTP server of a running app or broker: on a loop of its own, so that it answers while the other one is blocked.

A connection carries one request, has 5 seconds for it and 5 for taking its answer, and may send 16 KiB. At most 16 are
served at once: one more ends the oldest, so that connections that send nothing do not keep a probe from its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import socket
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from rocketapp.operate.http_messages import Answer, Request, Response, text
from rocketapp.scripts.sync_client import LoopThread
from rocketapp.tasks import in_daemon_thread

MOST_BYTES = 16 * 1024
"""Most bytes of the head of a request."""
MOST_BODY = 12 * 1024
LONGEST = 5.0
"""Seconds for sending a request, and for taking its answer. How long that is worked on is its own affair."""
MOST_AT_ONCE = 16
BACKLOG = 32
"""Connections that wait to be accepted."""
_METHODS = ("GET", "HEAD", "POST")
_FIELD = r"([!#-'*+.^-z|~A-Z0-9-]+):([^\0\r\n]*)\r\n"
# `++`: the path ends at its `?`, or a long line that is no request would be read again from each of its letters.
_HEAD = re.compile(rf"([A-Z]+) ([!->@-~]++)\??([!-~]*) HTTP/1\.[0-9]\r\n((?:{_FIELD})*)\r\n")
_ALWAYS = {
    "Server": "rocketapp",
    "Cache-Control": "no-store",
    "Connection": "close",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_log = logging.getLogger("rocketapp.http")


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `H:P`. Raises ValueError with what is wrong."""
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if is_bracketed else host
    is_name = bare.isprintable() and not any(one in bare for one in " []")
    if not colon or not bare or not is_name or (":" in bare and not is_bracketed):
        raise ValueError("write host:port, as in 127.0.0.1:8080; 0.0.0.0:8080 is every address of this machine")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{port!r} is not a port from 0 to 65535")
    return bare, int(port)


class OperatorServer:
    """Answers HTTP in threads of its own."""

    def __init__(self, address: str, answer: Answer) -> None:
        """Raises ValueError for what is not an address."""
        self._host, self._port = parse_address(address)
        self._answer = answer
        self._loop: LoopThread | None = None
        self._server: asyncio.Server
        self._open: dict[asyncio.Task[Any], None] = {}
        """What serves connections, the oldest first."""
        self._free = asyncio.Semaphore(MOST_AT_ONCE)
        """Threads: one goes on although its connection has ended."""

    def __repr__(self) -> str:
        return f"<OperatorServer {self._host}:{self._port}>"

    def start(self) -> str:
        """Serve from now on, until `stop`. Returns host:port, with the real port. Raises OSError when it is taken."""
        listening = socket.socket(socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0][0])
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self._host, self._port))
        except BaseException:
            listening.close()
            raise
        self._port = listening.getsockname()[1]
        self._loop = LoopThread("rocketapp-http")
        self._loop.run(self._listen(listening))
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    def stop(self) -> None:
        """Take no more requests. Nothing happens when it does not serve."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.run(self._end())
            loop.stop()

    async def _listen(self, listening: socket.socket) -> None:
        # What it says, once for each connection that the process has no room for, is nothing for a log.
        asyncio.get_running_loop().set_exception_handler(lambda _loop, about: _log.debug("%s", about["message"]))
        self._server = await asyncio.start_server(self._connected, sock=listening, limit=MOST_BYTES, backlog=BACKLOG)

    async def _end(self) -> None:
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a coroutine's"
        self._open[task] = None
        if len(self._open) > MOST_AT_ONCE:
            # Not one of them any more, before it has ended: the next one that comes must end another.
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        try:
            async with asyncio.timeout(LONGEST):
                peer = writer.get_extra_info("peername")[0]
                request = await _read(reader, str(ipaddress.ip_address(peer.partition("%")[0])))
            response = request if isinstance(request, Response) else await self._answered(request)
            async with asyncio.timeout(LONGEST):
                writer.write(_encoded(response, has_body=isinstance(request, Response) or request.method != "HEAD"))
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError) as error:
            # Without an answer: a request that was cut must not be taken for a whole one. Nobody awaits this task.
            _log.debug("a request failed: %r", error)
        finally:
            self._open.pop(task, None)
            writer.transport.abort()

    async def _answered(self, request: Request) -> Response:
        """What may take long runs in a thread. It is a daemon: no request keeps the process from ending."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()

        def work() -> Response:
            try:
                return self._answer(request, self._host)
            except Exception:
                _log.exception("the answer to %s failed", request.path if request.path.isprintable() else "a request")
                return Response(status=500, body=b"the answer failed: the log has the traceback\n")
            finally:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
                    loop.call_soon_threadsafe(self._free.release)

        try:
            return await in_daemon_thread(work, "rocketapp-http-answer")
        except RuntimeError:  # there is no thread for it
            self._free.release()
            raise


async def _read(reader: asyncio.StreamReader, peer: str) -> Request | Response:
    """One request, or why it is none. Raises EOFError and LimitOverrunError for a part of one."""
    head = line = ""
    while line != "\r\n":
        line = (await reader.readuntil(b"\n")).decode("latin-1")
        head += line
        if len(head) > MOST_BYTES:
            raise asyncio.LimitOverrunError("the head is too long", len(head))
        if not line.endswith("\r\n"):
            break
    asked = _HEAD.fullmatch(head)
    if asked is None:
        return text(400, "this is no request of HTTP/1: each line ends with CR and LF, each header is name: value")
    method, path, query, fields = asked.groups()[:4]
    headers = dict[str, str]()
    for name, value in re.findall(_FIELD, fields):
        # A list, as the standard says: two lengths are no number, and two hosts no name.
        known = headers.get(name.lower())
        headers[name.lower()] = value.strip(" \t") if known is None else f"{known},{value}"
    if method not in _METHODS:
        return text(501, f"there are {', '.join(_METHODS)}")
    length = headers.get("content-length", "") if method == "POST" else "0"
    if "transfer-encoding" in headers or not (length.isascii() and length.isdigit()):
        return text(411, "give one Content-Length, and the form in one piece")
    if int(length[:10]) > MOST_BODY:
        return text(413, f"a form has at most {MOST_BODY} bytes")
    body = await reader.readexactly(int(length))
    return Request(method=method, path=path, query=query, headers=headers, body=body, peer=peer)


def _encoded(response: Response, *, has_body: bool) -> bytes:
    own = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Date": formatdate(usegmt=True),
    }
    lines = [f"HTTP/1.0 {response.status:d} {HTTPStatus(response.status).phrase}"]
    lines += (f"{name}: {value}" for name, value in {**_ALWAYS, **own, **response.headers}.items())
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + (response.body if has_body else b"")
