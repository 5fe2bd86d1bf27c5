"""A server on loopback that answers as a test says."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable

from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.frame import FrameReader, encode


class Scripted:
    """A server on loopback that answers as a test says: name server and broker `broker-a` in one, with one queue."""

    def __init__(self, answer: Callable[[Command], Command | bytes | None], tls: ssl.SSLContext | None = None) -> None:
        """`answer` is asked for everything but routes. Bytes are sent as they are, None closes the connection."""
        self._answer, self._tls = answer, tls
        self.requests: list[Command] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.replica, self.has_master = "", True
        self.routes = self._route
        self.connections = 0
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def count(self, code: int) -> int:
        return sum(request.code == code for request in self.requests)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                stream, _ = self._listener.accept()
                self.connections += 1
                self._open.append(stream)
                serving = threading.Thread(target=self._serve, args=(stream,), daemon=True)
                self._threads.append(serving)
                serving.start()

    def _serve(self, stream: socket.socket) -> None:
        # A TLS stream that is closed meanwhile raises ValueError.
        with contextlib.suppress(OSError, ValueError):
            if self._tls is not None:
                stream = self._tls.wrap_socket(stream, server_side=True)
                self._open.append(stream)
            frames = FrameReader(1 << 26)
            while data := stream.recv(65536):
                for request in frames.feed(data):
                    self.requests.append(request)
                    reply = (
                        self.routes(request)
                        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
                        else self._answer(request)
                    )
                    if reply is None:
                        stream.close()
                        return
                    stream.sendall(reply if isinstance(reply, bytes) else encode(reply))

    def _route(self, request: Command) -> Command:
        addresses = {"0": self.address} if self.has_master else {}
        addresses |= {"1": self.replica} if self.replica else {}
        queue = {"brokerName": "broker-a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
        broker = {"cluster": "c", "brokerName": "broker-a", "brokerAddrs": addresses}
        body = json.dumps({"queueDatas": [queue], "brokerDatas": [broker]}).encode()
        return Command.response(request, ResponseCode.SUCCESS, body=body)

    def close(self) -> None:
        # Nothing is closed under a thread that reads it: the next connection would get its number, and TLS an alert.
        for stream in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for stream in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                stream.close()
