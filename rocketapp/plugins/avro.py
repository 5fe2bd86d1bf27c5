"""Avro payloads: a dataclass, msgspec Struct or pydantic model whose `__avro_schema__` is a record.

The content type is `application/avro`. Bodies are written in Avro's single-object encoding: two bytes, the fingerprint
of the writer's schema, and the record. They are read by the schema of that fingerprint, the type's own or one of its
`__avro_old_schemas__`, and resolved to the type's own. A body without the two bytes is a bare record of the type's own
schema. fastavro, in the extra `avro`, is imported when the first such type is looked at.

Bodies come from anyone. So a schema that a few bytes could make deep or huge is refused at start: fastavro reads a
recursive one without a limit of depth, which ends the process, and items of no bytes without a limit of their number.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import inspect
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rocketapp import SetupError
from rocketapp.plugin import Codec, hookimpl

CONTENT_TYPE = "application/avro"
SCHEMA_FORMAT = "application/vnd.apache.avro;version=1.9.0"
"""AsyncAPI's name for a schema of Avro."""
SCHEMA, OLD_SCHEMAS = "__avro_schema__", "__avro_old_schemas__"
SINGLE_OBJECT = b"\xc3\x01"
HEADER_BYTES = 10
_REASON_MOST = 300
"""fastavro's reasons may hold whole schemas."""
_LOGICAL = {
    "decimal": decimal.Decimal,
    "date": datetime.date,
    "time": datetime.time,
    "timestamp": datetime.datetime,
    "local": datetime.datetime,
}
"""First word of a logical type -> what fastavro takes for it. A schema without it gets such a value as text."""


class Avro:
    """The plugin. It changes nothing for apps without types that have a schema."""

    @hookimpl
    def payload_codec(self) -> Codec:
        return AvroCodec()


class AvroCodec:
    """The codec for types with a schema."""

    content_type = CONTENT_TYPE

    def __init__(self) -> None:
        self._formats: dict[type[Any], Format] = {}

    def claims(self, kind: type[Any]) -> bool:
        """Every type with a schema."""
        return _has_schema(kind)

    def decoder(self, kind: Any) -> Callable[[bytes], Any] | None:
        """Raises SetupError for an invalid schema, and for one that cannot be read safely."""
        return self._format(kind).decode if _has_schema(kind) else None

    def encode(self, body: Any) -> bytes:
        if not _has_schema(type(body)):
            kind = type(body).__qualname__
            raise TypeError(f"a body of type {kind} has no form in Avro: give it an {SCHEMA}, or publish bytes")
        return self._format(type(body)).encode(body)

    def payload_schema(self, kind: type[Any]) -> dict[str, Any]:
        """The type's schema, for an AsyncAPI document. Raises SetupError for an invalid schema."""
        self._format(kind)
        schema = getattr(kind, SCHEMA)
        return {"schemaFormat": SCHEMA_FORMAT, "schema": json.loads(schema) if isinstance(schema, str) else schema}

    def _format(self, kind: type[Any]) -> Format:
        if kind not in self._formats:
            try:
                self._formats[kind] = Format(kind)
            except ValueError as error:
                raise SetupError(_place(kind), f"{kind.__qualname__}: {error}") from error
        return self._formats[kind]


class Format:
    """Reads and writes the payloads of one type."""

    def __init__(self, kind: type[Any]) -> None:
        """Raises ValueError for a schema that no payload can have."""
        try:
            import fastavro
        except ImportError:
            raise ValueError(f"{SCHEMA} needs fastavro: pip install 'rocketapp[avro]'") from None
        self._kind, self._avro = kind, fastavro
        self._own = _parsed(fastavro, getattr(kind, SCHEMA), SCHEMA)
        old = getattr(kind, OLD_SCHEMAS, ())
        if isinstance(old, str | Mapping):
            raise ValueError(f"{OLD_SCHEMAS} is a list of schemas")
        self._header = SINGLE_OBJECT + _fingerprint(fastavro, self._own)
        self._writers = {self._header: self._own}
        for one in old:
            schema = _parsed(fastavro, one, OLD_SCHEMAS)
            self._writers.setdefault(SINGLE_OBJECT + _fingerprint(fastavro, schema), schema)
        self._native: tuple[type[Any], ...] = (bytes, *_logical_values(self._own))
        self._validate = getattr(kind, "model_validate", None)

    def decode(self, body: bytes) -> Any:
        """Raises ValueError or a ValidationError, which say what is wrong with the body."""
        try:
            members = self._members(body)
        except MemoryError:
            raise
        except EOFError as error:
            raise ValueError("the record is cut short") from error
        except Exception as error:
            raise ValueError(f"{type(error).__name__}: {error}"[:_REASON_MOST]) from error
        if self._validate is not None:
            return self._validate(members)
        return msgspec.convert(members, self._kind)

    def encode(self, body: Any) -> bytes:
        """Raises TypeError or ValueError, which name the field, for a value that its schema does not hold."""
        if self._validate is not None:
            members = body.model_dump()
        else:
            members = msgspec.to_builtins(body, builtin_types=self._native)
        into = io.BytesIO()
        into.write(self._header)
        self._avro.schemaless_writer(into, self._own, members, strict_allow_default=True, disable_tuple_notation=True)
        self._check_bounds(members)
        return into.getvalue()

    def _members(self, body: bytes) -> Any:
        if body[:2] != SINGLE_OBJECT:
            return self._read(body, 0, self._own)
        header = body[:HEADER_BYTES]
        writer = self._writers.get(header)
        if writer is None:
            said = header[2:].hex()
            raise LookupError(f"no schema has the fingerprint {said}: add the writer's to {OLD_SCHEMAS}")
        members = self._read(body, HEADER_BYTES, writer)
        if writer is self._own:
            return members
        # The second reading resolves. It skips what the type does not have without a check, so it is not the only one.
        source = io.BytesIO(body)
        source.seek(HEADER_BYTES)
        return self._avro.schemaless_reader(source, writer, self._own)

    def _read(self, body: bytes, start: int, schema: Any) -> Any:
        source = io.BytesIO(body)
        source.seek(start)
        members = self._avro.schemaless_reader(source, schema, None)
        if source.tell() != len(body):
            raise ValueError(f"{len(body) - source.tell()} bytes are left behind the record")
        return members

    def _check_bounds(self, members: Any) -> None:
        """fastavro writes an int of any size; a reader in another language would not read it."""
        from fastavro.validation import ValidationError, validate

        try:
            validate(members, self._own, strict=False)
        except ValidationError as error:
            raise ValueError(f"{error.errors[0]}"[:_REASON_MOST]) from error


def _has_schema(kind: Any) -> bool:
    if not isinstance(kind, type) or not hasattr(kind, SCHEMA):
        return False
    return dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct) or hasattr(kind, "model_validate")


def _parsed(avro: Any, schema: Any, name: str) -> Any:
    """The schema as fastavro takes it. Raises ValueError for one of another kind, or that is not safe to read."""
    try:
        parsed = avro.parse_schema(json.loads(schema) if isinstance(schema, str) else schema)
    except Exception as error:
        raise ValueError(f"{name} is not a schema: {type(error).__name__}: {error}"[:_REASON_MOST]) from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ValueError(f"{name} is not a record")
    problem = _unsafe(parsed, parsed["__named_schemas"], ())
    if problem is not None:
        raise ValueError(f"{name}: {problem}")
    return parsed


def _fingerprint(avro: Any, schema: Any) -> bytes:
    """The fingerprint of the schema's canonical form in the single-object encoding: CRC-64, little-endian."""
    return bytes.fromhex(avro.schema.fingerprint(avro.schema.to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def _parts(schema: Any, named: Mapping[str, Any]) -> list[Any]:
    """The schemas that this one consists of."""
    if isinstance(schema, str):
        return [named[schema]] if schema in named else []
    if isinstance(schema, list):
        return schema
    if schema["type"] in ("record", "error"):
        return [field["type"] for field in schema["fields"]]
    return [] if schema["type"] in ("enum", "fixed") else [schema.get("items", schema.get("values", schema["type"]))]


def _unsafe(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> str | None:
    """What a hostile body could do with this schema, or None. `inside`: the records around it."""
    if isinstance(schema, dict) and schema["type"] in ("record", "error"):
        name = schema["name"]
        if name in inside:
            return f"{name} holds itself, and a short body could be deep enough to end the process: make it flat"
        inside = (*inside, name)
    problem = next(filter(None, (_unsafe(part, named, inside) for part in _parts(schema, named))), None)
    if problem is None and isinstance(schema, dict) and "items" in schema and _takes_no_bytes(schema["items"], named):
        return "an array has items of no bytes, and a short body could hold any number of them"
    return problem


def _takes_no_bytes(schema: Any, named: Mapping[str, Any]) -> bool:
    if schema == "null":
        return True
    if isinstance(schema, list):
        return False
    if isinstance(schema, dict) and schema["type"] in ("array", "map", "enum", "fixed"):
        return bool(schema.get("size") == 0)
    parts = _parts(schema, named)
    is_record = isinstance(schema, dict) and schema["type"] in ("record", "error")
    return (bool(parts) or is_record) and all(_takes_no_bytes(part, named) for part in parts)


def _logical_values(schema: Any) -> set[type[Any]]:
    """The classes of values that fastavro takes for the logical types of a schema."""
    found = set[type[Any]]().union(*map(_logical_values, _parts(schema, {})))
    name = str(schema.get("logicalType")).partition("-")[0] if isinstance(schema, dict) else ""
    return found | {_LOGICAL[name]} if name in _LOGICAL else found


def _place(kind: type[Any]) -> str:
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):
        return f"{kind.__module__}:{kind.__qualname__}"
