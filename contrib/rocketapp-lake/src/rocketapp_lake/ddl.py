"""Spark's DDL for columns → a pyarrow schema: `id BIGINT NOT NULL, lines ARRAY<STRUCT<item: STRING, count: INT>>`.

Spark itself parses it in its JVM, which is not there yet when a sink is declared.
"""

from __future__ import annotations

import re

import pyarrow as pa

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\w+|\S)")
_SCALARS = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
}
_DECIMALS = ("decimal", "dec", "numeric")
_TEXTS = ("varchar", "char", "character")


def schema_of_ddl(text: str) -> pa.Schema:
    """Raises TypeError that says where it cannot be read."""
    parser = _Parser(text)
    fields = parser.fields(end="")
    return pa.schema(fields)


class _Parser:
    """One text, from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._index = text, 0
        self._tokens = [(token.group(1), token.end()) for token in _TOKEN.finditer(text)]

    def fields(self, end: str) -> list[pa.Field]:
        """Columns with commas between them, up to `end`."""
        found = [self._field()]
        while self._take(","):
            found.append(self._field())
        if self._next() != end:
            raise self._wrong(f"{end or 'the end'} or a comma")
        return found

    def _field(self) -> pa.Field:
        name = self._word("the name of a column")
        self._take(":")
        kind = self._type()
        is_required = self._take("not")
        if is_required and not self._take("null"):
            raise self._wrong("NULL")
        if self._take("comment"):
            self._word("a comment")
        return pa.field(name, kind, nullable=not is_required)

    def _type(self) -> pa.DataType:
        name = self._word("a type").lower()
        if name in _DECIMALS:
            precision, scale = self._numbers(10, 0)
            return pa.decimal128(precision, scale)
        if name in _TEXTS:
            self._numbers(0)
            return pa.string()
        if name in _SCALARS:
            return _SCALARS[name]
        if name not in ("array", "map", "struct") or not self._take("<"):
            raise TypeError(f"{self._text!r}: bodies cannot become {name!r}: give another type of Spark")
        if name == "struct":
            inside = self.fields(end=">")
            self._take(">")
            return pa.struct(inside)
        first = self._type()
        if name == "map":
            self._expect(",")
            first = pa.map_(first, self._type())
        else:
            first = pa.list_(first)
        self._expect(">")
        return first

    def _numbers(self, *usual: int) -> list[int]:
        """Numbers in brackets; those that are missing are the usual ones."""
        if not self._take("("):
            return list(usual)
        found = [int(self._word("a number"))]
        while self._take(","):
            found.append(int(self._word("a number")))
        self._expect(")")
        return [*found, *usual[len(found) :]]

    def _next(self) -> str:
        """The next token; empty at the end."""
        return self._tokens[self._index][0] if self._index < len(self._tokens) else ""

    def _take(self, token: str) -> bool:
        if self._next().lower() != token:
            return False
        self._index += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise self._wrong(token)

    def _word(self, what: str) -> str:
        word = self._next()
        if not re.match(r"[\w`']", word):
            raise self._wrong(what)
        self._index += 1
        return word[1:-1].replace("``", "`") if word[0] in "`'" else word

    def _wrong(self, wanted: str) -> TypeError:
        at = self._tokens[self._index - 1][1] if self._index else 0
        return TypeError(f"{self._text!r}: {wanted} is expected at character {at}")
