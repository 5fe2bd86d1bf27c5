"""One request or response: code, id, fields, body. Java: RemotingCommand."""

from __future__ import annotations

import msgspec

from rocketapp.wire.signing import SECRET_FIELDS

LANGUAGE = "PYTHON"
VERSION = 479
"""The ordinal of V5_3_3 in Java's MQVersion: the protocol version that peers may expect."""
VERSION_NAME = "V5_3_3"

FLAG_RESPONSE, FLAG_ONE_WAY = 1, 2
JSON, BINARY = 0, 1
"""Serializers of the header."""


class Command(msgspec.Struct, eq=False):
    """A request or a response. `serializer` is the form in which its header was read or will be written."""

    code: int
    fields: dict[str, str] | None = None
    body: bytes = b""
    remark: str | None = None
    opaque: int = 0
    flag: int = 0
    language: str = LANGUAGE
    version: int = VERSION
    serializer: int = JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_one_way(self) -> bool:
        """Whether the request gets no response, not even an error."""
        return bool(self.flag & FLAG_ONE_WAY)

    @staticmethod
    def response(
        request: Command,
        code: int,
        *,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> Command:
        """A response to `request`, with its id and its serializer."""
        return Command(
            code,
            fields,
            body,
            remark=remark,
            opaque=request.opaque,
            flag=FLAG_RESPONSE,
            serializer=request.serializer,
        )

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "one-way request" if self.is_one_way else "request"
        shown = {name: value for name, value in (self.fields or {}).items() if name not in SECRET_FIELDS}
        return f"<Command {kind} code={self.code} opaque={self.opaque} {shown} body={len(self.body)} bytes>"
