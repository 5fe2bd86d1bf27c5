"""JSON as Java's fastjson writes it: maps keep the type of their keys.

`{0:"a"}` has an integer as key, `{{"queueId":0}:5}` an object. A bare integer is
read as int, an object as a tuple of its sorted items. Standard JSON is read by
msgspec; only what it refuses comes here. Whatever is malformed, too deep or no
UTF-8 raises ProtocolError and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue

DEEPEST = 64
"""Most levels of nesting."""

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_NUMBER = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,4})?")
_WORDS = {"true": True, "false": False, "null": None}


def loads(data: bytes) -> Any:
    """The value of one document; raises ProtocolError."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _Reader(data.decode("utf-8", "replace")).document()


def dump_queue_map(items: Mapping[MessageQueue, Any] | Iterable[tuple[MessageQueue, Any]]) -> msgspec.Raw:
    """A map with queues as keys in fastjson's form, `{{"brokerName":..,"queueId":0,"topic":..}:value,..}`.

    Raw: it can be a member of what msgspec encodes.
    """
    pairs = items.items() if isinstance(items, Mapping) else items
    encode = msgspec.json.encode
    entries = [
        encode({"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic})
        + b":"
        + encode(value)
        for queue, value in pairs
    ]
    return msgspec.Raw(b"{" + b",".join(entries) + b"}")


def queue_of_key(key: Any) -> MessageQueue:
    """The queue that an object in the place of a key stands for; raises ProtocolError."""
    try:
        members = dict(key)
        return MessageQueue(str(members["topic"]), str(members["brokerName"]), int(members["queueId"]))
    except (TypeError, ValueError, KeyError):
        raise ProtocolError(f"{str(key)[:100]} is no message queue") from None


class _Reader:
    """Reads one document from the left to the right."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    def document(self) -> Any:
        value = self._value(0)
        if self._next() != "":
            raise self._problem("nothing more")
        return value

    def _next(self) -> str:
        """The next character that is no space, or nothing at the end."""
        self._at = _SPACE.match(self._source, self._at).end()  # type: ignore[union-attr]
        return self._source[self._at : self._at + 1]

    def _value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise ProtocolError(f"JSON is nested deeper than {DEEPEST} levels")
        first = self._next()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        if first == '"':
            return self._string()
        if first == "-" or first.isdecimal():
            return self._number()
        for word, value in _WORDS.items():
            if self._source.startswith(word, self._at):
                self._at += len(word)
                return value
        raise self._problem("a value")

    def _object(self, depth: int) -> dict[Any, Any]:
        self._at += 1
        found: dict[Any, Any] = {}
        if self._next() == "}":
            self._at += 1
            return found
        while True:
            key = _frozen(self._value(depth + 1))
            self._expect(":")
            found[key] = self._value(depth + 1)
            if self._next() != ",":
                self._expect("}")
                return found
            self._at += 1

    def _array(self, depth: int) -> list[Any]:
        self._at += 1
        found: list[Any] = []
        if self._next() == "]":
            self._at += 1
            return found
        while True:
            found.append(self._value(depth + 1))
            if self._next() != ",":
                self._expect("]")
                return found
            self._at += 1

    def _string(self) -> str:
        match = _STRING.match(self._source, self._at)
        if match is None:
            raise self._problem("the end of a string")
        try:
            text: str = msgspec.json.decode(match.group().encode(), type=str)
        except (msgspec.MsgspecError, ValueError):
            raise self._problem("a legal string") from None
        self._at = match.end()
        return text

    def _number(self) -> int | float:
        match = _NUMBER.match(self._source, self._at)
        if match is None:
            raise self._problem("a number")
        self._at = match.end()
        text = match.group()
        return int(text) if match.group(1) is None and match.group(2) is None else float(text)

    def _expect(self, sign: str) -> None:
        if self._next() != sign:
            raise self._problem(repr(sign))
        self._at += 1

    def _problem(self, expected: str) -> ProtocolError:
        found = self._source[self._at : self._at + 20]
        return ProtocolError(f"JSON: {expected} expected at character {self._at}, found {found!r}")


def _frozen(value: Any) -> Any:
    """A value that may be a key: objects become tuples of sorted items, arrays tuples."""
    if isinstance(value, dict):
        return tuple(sorted(((key, _frozen(item)) for key, item in value.items()), key=lambda item: str(item[0])))
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return value
