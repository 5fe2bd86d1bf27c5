"""RocketMQ's protocol in bare bytes: questions to brokers that no client, ours or Java's, is trusted for."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

GET_ROUTE = 105
QUERY_CONSUMER_OFFSET = 14


class Answer(NamedTuple):
    """What a broker or name server answered."""

    code: int
    fields: Mapping[str, Any]
    body: bytes


class Bare:
    """One connection that asks one question at a time. Raises OSError when it breaks or nothing answers in time."""

    def __init__(self, address: str, *, timeout: float = 5.0, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = address.rpartition(":")
        stream = socket.create_connection((host, int(port)), timeout=timeout)
        self._stream = stream if tls is None else tls.wrap_socket(stream, server_hostname=host)
        self._reader = self._stream.makefile("rb")

    def ask(self, code: int, content: bytes = b"", /, **fields: object) -> Answer:
        """Send one request with these fields, and `content` as its body, and wait for its answer."""
        texts = {name: str(value) for name, value in fields.items()}
        header = json.dumps(
            {"code": code, "language": "JAVA", "version": 479, "opaque": 1, "flag": 0,
             "serializeTypeCurrentRPC": "JSON", "extFields": texts}
        ).encode()  # fmt: skip
        self._stream.sendall(struct.pack(">ii", 4 + len(header) + len(content), len(header)) + header + content)
        (length,) = struct.unpack(">i", self._read(4))
        frame = self._read(length)
        size = int.from_bytes(frame[1:4], "big")
        read = json.loads(frame[4 : 4 + size])
        return Answer(read["code"], read.get("extFields") or {}, frame[4 + size :])

    def _read(self, count: int) -> bytes:
        data = self._reader.read(count)
        if len(data) < count:
            raise ConnectionError("the peer closed the connection")
        return data

    def committed(self, topic: str, group: str, queue: int) -> int:
        """The offset that the group committed in this queue of the broker; -1 for none."""
        answer = self.ask(
            QUERY_CONSUMER_OFFSET, topic=topic, consumerGroup=group, queueId=queue, setZeroIfNotFound="false"
        )
        return int(answer.fields["offset"]) if answer.code == 0 else -1

    def close(self) -> None:
        self._reader.close()
        self._stream.close()

    def __enter__(self) -> Bare:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
