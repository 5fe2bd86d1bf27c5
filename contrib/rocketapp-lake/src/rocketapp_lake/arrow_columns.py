"""Columns that are given themselves, by a pyarrow schema or by Spark DDL → a type that bodies are decoded as.

Spark itself parses DDL, such as `id BIGINT NOT NULL, lines ARRAY<STRUCT<item: STRING, count: INT>>`, in its JVM, which
is not there yet when a sink is declared.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from rocketapp_lake.columns import Columns, of_object


def arrow_columns(schema: pa.Schema) -> Columns:
    """Raises TypeError for a column that no body fills.

    A field that may not be empty has to be in each body. The columns themselves may be: of tables that grow, old rows
    lack what is new.
    """
    names = [f"f{number}" for number in range(len(schema))]
    return Columns(
        kind=_struct("Row", list(schema)),
        schema=pa.schema([pa.field(column.name, column.type) for column in schema]),
        values=of_object(names),
        plain=[_plain(column.type) for column in schema],
    )


def _struct(name: str, fields: list[pa.Field]) -> type[msgspec.Struct]:
    """Its attributes are numbered: columns may have names that no attribute has."""
    if len({field.name for field in fields}) < len(fields):
        raise TypeError("two columns have the same name")
    members: list[Any] = []
    for number, field in enumerate(fields):
        kind = _kind(field.type, field.name)
        members.append((f"f{number}", kind | None, None) if field.nullable else (f"f{number}", kind))
    rename = {f"f{number}": field.name for number, field in enumerate(fields)}
    return msgspec.defstruct(name, members, rename=rename, kw_only=True)


def _kind(about: pa.DataType, name: str) -> Any:
    if pa.types.is_signed_integer(about):
        half = 2 ** (about.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-half, le=half - 1)]
    if pa.types.is_integer(about) and about.bit_width < 64:
        return Annotated[int, msgspec.Meta(ge=0, le=2**about.bit_width - 1)]
    for is_one, kind in _KINDS:
        if is_one(about):
            return kind
    if pa.types.is_list(about) or pa.types.is_large_list(about):
        return list[_inside(about.value_field, name)]  # type: ignore[misc]  # made at run time
    if pa.types.is_map(about):
        return dict[_kind(about.key_type, name), _inside(about.item_field, name)]  # type: ignore[misc]
    if pa.types.is_struct(about):
        return _struct(name, [about.field(number) for number in range(about.num_fields)])
    raise TypeError(f"column {name!r} is {about}: no body fills it")


def _inside(field: pa.Field, name: str) -> Any:
    kind = _kind(field.type, name)
    return kind | None if field.nullable else kind


_KINDS: list[tuple[Any, Any]] = [
    (pa.types.is_boolean, bool),
    (pa.types.is_uint64, Annotated[int, msgspec.Meta(ge=0)]),
    (pa.types.is_floating, float),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_large_binary, bytes),
    (pa.types.is_timestamp, datetime.datetime),
    (pa.types.is_date, datetime.date),
    (pa.types.is_decimal, decimal.Decimal),
]


_BUILT_IN = (bytes, datetime.datetime, datetime.date, decimal.Decimal)


def _plain(about: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes of a decoded value one that Arrow takes; None where it takes all of them."""
    return partial(msgspec.to_builtins, builtin_types=_BUILT_IN) if pa.types.is_nested(about) else None


# Spark DDL.


_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\w+|\S)")
_OF_SPARK = {
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
    return pa.schema(_Parser(text).fields(end=""))


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
        if name in _OF_SPARK:
            return _OF_SPARK[name]
        if name not in ("array", "map", "struct") or not self._take("<"):
            raise TypeError(f"{self._text!r}: bodies cannot become {name!r}: give another type of Spark")
        if name == "struct":
            found = pa.struct(self.fields(end=">"))
        elif name == "array":
            found = pa.list_(self._type())
        else:
            key = self._type()
            self._expect(",")
            found = pa.map_(key, self._type())
        self._expect(">")
        return found

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
