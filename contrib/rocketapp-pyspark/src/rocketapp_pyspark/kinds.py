"""What `schema=` may be, and what `codec=` may."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rocketapp_pyspark.arrow_columns import arrow_columns
from rocketapp_pyspark.columns import Columns
from rocketapp_pyspark.ddl import schema_of_ddl
from rocketapp_pyspark.protobuf_columns import is_generated, protobuf_columns
from rocketapp_pyspark.typed_columns import typed_columns

RESERVED = "_rmq_"
CODECS = {
    "json": "application/json",
    "msgpack": "application/msgpack",
    "protobuf": "application/protobuf",
    "avro": "application/avro",
}
"""Short names of content types."""


def columns_of(kind: Any) -> Columns:
    """Of a class, a union of tagged Structs, a pyarrow schema, or Spark DDL. Raises TypeError for what has none."""
    if isinstance(kind, str):
        found = arrow_columns(schema_of_ddl(kind))
    elif isinstance(kind, pa.Schema):
        found = arrow_columns(kind)
    elif is_generated(kind):
        found = protobuf_columns(kind)
    else:
        found = typed_columns(kind)
    seen: dict[str, str] = {}
    for name in found.schema.names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise TypeError(f"columns {other!r} and {name!r} differ in case alone, which Spark takes for one")
    if not found.schema.names:
        raise TypeError(f"{kind!r} has no fields")
    for name in found.schema.names:
        if name.startswith(RESERVED):
            raise TypeError(f"field {name!r}: names that begin with {RESERVED} are those of the sink")
    return found


def content_type_of(codec: str | None) -> str | None:
    """The content type of bodies that do not say theirs; None leaves that to the type."""
    return None if codec is None else CODECS.get(codec, codec)


def codec_problem(codec: object, schema: object) -> str | None:
    """Why this cannot be; None when it can."""
    if codec is None:
        return None
    if not isinstance(codec, str) or (codec not in CODECS and "/" not in codec):
        return f"codec={codec!r} is unknown: give {', '.join(map(repr, CODECS))}, or a content type"
    return f"codec={codec!r} needs a schema=" if schema is None else None
