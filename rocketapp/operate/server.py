"""The HTTP server of a running app or broker: in threads of its own, so that it answers while the loop is blocked.

A connection carries one request, has 5 seconds for all of it, and may send 16 KiB. At most 16 are served at once: one
more ends the oldest, so that connections that send nothing do not keep a probe from its answer.
"""

from __future__ import annotations

import contextlib
import errno
import io
import ipaddress
import logging
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rocketapp.operate.gate import Answer, Request, Response

MOST_BYTES = 16 * 1024
"""Of one request, its head included."""
MOST_BODY = 12 * 1024
LONGEST = 5.0
"""Seconds for one request and its answer."""
MOST_AT_ONCE = 16
ROOM_WITHIN = 0.5
"""Seconds in which the oldest connection ends, or the new one is closed."""
_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
SHORT_PAUSE = 0.1
"""Seconds until a connection is accepted that the process has no room for."""
_ALWAYS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_log = logging.getLogger("rocketapp.http")


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `H:P`. Raises ValueError with what is wrong."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or (":" in bare and not host.startswith("[")):
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
        self._server: _Server | None = None

    def __repr__(self) -> str:
        return f"<OperatorServer {self._host}:{self._port}>"

    def start(self) -> str:
        """Serve from now on, until `stop`. Returns host:port, with the real port. Raises OSError when it is taken."""
        self._server = server = _Server(self._host, self._port, self._answer)
        threading.Thread(target=server.serve_forever, args=(0.1,), name="rocketapp-http", daemon=True).start()
        self._port = server.server_address[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    def stop(self) -> None:
        """Take no more requests. Takes a tenth of a second; nothing happens when it does not serve."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, answer: Answer) -> None:
        self.answer, self.host = answer, host
        self._free = threading.Semaphore(MOST_AT_ONCE)
        self._open: dict[socket.socket, None] = {}
        """Connections that are served, the oldest first."""
        self._lock = threading.Lock()
        """Of `_open`, and against the end of a socket that is one of them."""
        self._is_stopping = threading.Event()
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Connection)

    def server_bind(self) -> None:
        # HTTPServer's asks name servers for the name of this machine, which may take long.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.host, self.server_address[1]

    def shutdown(self) -> None:
        self._is_stopping.set()
        super().shutdown()

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _SHORT:
                # The connection goes on waiting, so that the selector would say so again at once.
                self._is_stopping.wait(SHORT_PAUSE)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self._end_oldest()
            if not self._free.acquire(timeout=ROOM_WITHIN):
                self.shutdown_request(request)
                return
        with self._lock:
            self._open[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def _end_oldest(self) -> None:
        """Its thread reads the end of the connection, or cannot write on."""
        with self._lock, contextlib.suppress(OSError, StopIteration):
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a request from %s failed", client_address, exc_info=True)


class _Bounded(io.RawIOBase):
    """What a connection sends, for a limited time and up to a limited size."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection, self._until, self._left = connection, until, MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        seconds = self._until - time.monotonic()
        if seconds <= 0 or not self._left:
            # Ends the connection without an answer: a request that was cut must not be taken for a whole one.
            raise TimeoutError("the request took too long, or is too long")
        self._connection.settimeout(seconds)
        count = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count


class _Connection(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "rocketapp", ""

    def setup(self) -> None:
        super().setup()
        self._until = time.monotonic() + LONGEST
        self.rfile.close()
        self.rfile = io.BufferedReader(_Bounded(self.connection, self._until))

    def do_GET(self) -> None:
        self._answer(b"")

    do_HEAD = do_GET  # noqa: N815 - names that http.server calls

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            self.send_error(411)
        elif int(length[:10]) > MOST_BODY:
            self.send_error(413)
        else:
            self._answer(self.rfile.read(int(length)))

    def _answer(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        peer = str(ipaddress.ip_address(self.client_address[0].partition("%")[0]))
        path, _, query = self.path.partition("?")
        request = Request(method=self.command, path=path, query=query, headers=headers, body=body, peer=peer)
        try:
            response = self.server.answer(request, self.server.host)
        except Exception:
            _log.exception("the answer to %s failed", path if path.isprintable() else "a request")
            response = Response(status=500, body=b"the answer failed: the log has the traceback\n")
        self._send(response)

    def _send(self, response: Response) -> None:
        self.connection.settimeout(max(0.1, self._until - time.monotonic()))
        self.send_response(response.status)
        always = {name: value for name, value in _ALWAYS.items() if name not in response.headers}
        length = {"Content-Length": str(len(response.body))}
        for name, value in {"Content-Type": response.content_type, **length, **always, **response.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command not in ("HEAD", None):  # None: the request could not be read
            self.wfile.write(response.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Plain text, without a word of the request."""
        self.close_connection = True
        self.log_error("code %d", code)
        self._send(Response(status=code, body=f"{code}\n".encode(), content_type="text/plain"))

    def log_message(self, format: str, *arguments: Any) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s: %s", self.client_address[0], repr(format % arguments)[1:-1])
