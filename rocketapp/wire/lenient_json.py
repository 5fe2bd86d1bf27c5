"""JSON as Java's fastjson writes it: maps keep the type of their keys.

`{0:"a"}` has an integer as key, `{{"queueId":0}:5}` an object. As a key, an integer is
read as int and an object as a tuple of its sorted items. A comma before a closing bracket
is accepted. msgspec reads standard JSON; this reader gets only what msgspec refuses.
Malformed or too deeply nested input raises ProtocolError and no other exception.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Self

import msgspec

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.fields import Int32, java_names

DEEPEST = 64
"""Most levels of nesting."""

dump: Callable[[Any], bytes] = msgspec.json.Encoder(order="sorted").encode
"""The bytes of a value in standard JSON, its members sorted as Java's are."""

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_NUMBER = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,4})?")
_WORDS = {"true": True, "false": False, "null": None}


def loads(data: bytes) -> Any:
    """The value of one document. Raises ProtocolError when it is malformed."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return loads_shallow(data)


def loads_shallow(data: bytes) -> Any:
    """The same for what others are to read again: also standard JSON is refused where it is nested too deeply."""
    return _Reader(data.decode("utf-8", "replace")).document()


@contextmanager
def reading(what: str, body: bytes) -> Iterator[Any]:
    """Within: the value of a document, and ProtocolError for members that it lacks or that are of another type."""
    value = loads(body)
    try:
        yield value
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"{what}: {type(error).__name__} {error}") from None


def dump_queue_map(items: Mapping[MessageQueue, Any]) -> msgspec.Raw:
    """A map with queues as keys in fastjson's form, `{{"brokerName":..,"queueId":0,"topic":..}:value,..}`.

    The result can be a member of a value that msgspec encodes.
    """
    entries = [dump(queue_members(queue)) + b":" + dump(value) for queue, value in items.items()]
    return msgspec.Raw(b"{" + b",".join(entries) + b"}")


def queue_members(queue: MessageQueue) -> dict[str, Any]:
    """A queue as an object of Java's."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def queue_of(members: Any) -> MessageQueue:
    """The queue in these members, or in the items of a key. Raises KeyError, TypeError or ValueError if it has none."""
    found = dict(members)
    return MessageQueue(text_of(found["topic"]), text_of(found["brokerName"]), int32_of(found["queueId"]))


def text_of(value: Any) -> str:
    """A string; numbers and booleans become strings, as in fastjson. Raises TypeError for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise TypeError(f"a text is expected, not {type(value).__name__}")


def int64_of(value: Any) -> int:
    """A 64-bit integer, which may be quoted. Raises TypeError or ValueError for anything else."""
    if not isinstance(value, int | str) or isinstance(value, bool):
        raise TypeError(f"an integer is expected, not {type(value).__name__}")
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError("an integer does not fit into 64 bits")
    return number


def int32_of(value: Any) -> int:
    """A 32-bit integer, which may be quoted. Raises TypeError or ValueError for anything else."""
    number = int64_of(value)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{number} does not fit into 32 bits")
    return number


class JsonObject(msgspec.Struct, frozen=True, rename=java_names(broker_name="brokerName")):
    """The members of an object, an attribute each. One that is missing or null has the default of its attribute."""

    def encode(self) -> bytes:
        return dump(self)

    @classmethod
    def of(cls, members: Any) -> Self:
        """From decoded members. Raises AttributeError, KeyError, TypeError or ValueError for others."""
        found = []
        for one in _attributes(cls):
            value = members.get(one.encode_name)
            if value is not None:
                found.append(_READERS[one.type](value))
            elif one.default is not msgspec.NODEFAULT:
                found.append(one.default)
            else:
                raise KeyError(one.encode_name)
        return cls(*found)


_attributes = cache(msgspec.structs.fields)
_READERS: dict[Any, Callable[[Any], Any]] = {str: text_of, int: int64_of, Int32: int32_of, float | None: float}


class _Reader:
    """Reads one document from left to right."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    def document(self) -> Any:
        value = self._value(0)
        if self._next() != "":
            raise self._problem("nothing more")
        return value

    def _next(self) -> str:
        """Skip white space and return the next character; an empty string at the end."""
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
        found: dict[Any, Any] = {}
        for _ in self._places("}"):
            key = _frozen(self._value(depth + 1))
            self._expect(":")
            found[key] = self._value(depth + 1)
        return found

    def _array(self, depth: int) -> list[Any]:
        return [self._value(depth + 1) for _ in self._places("]")]

    def _places(self, bracket: str) -> Iterator[None]:
        """Each place at which an item begins, up to and with the closing bracket."""
        self._at += 1
        while self._next() != bracket:
            yield
            if self._next() != ",":
                break
            self._at += 1
        self._expect(bracket)

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
    """The value in a hashable form: objects become tuples of sorted items, arrays become tuples."""
    if isinstance(value, dict):
        return tuple(sorted(((key, _frozen(item)) for key, item in value.items()), key=lambda item: str(item[0])))
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return value
