"""The columns of a table, as its commits keep them, and how they grow. Values alone."""

from __future__ import annotations

import json

import pyarrow as pa

from rocketapp_lake.errors import SinkError
from rocketapp_lake.options import Evolution


def fingerprint(schema: pa.Schema) -> str:
    """Names and types of the columns, as JSON."""
    return json.dumps({column.name: str(column.type) for column in schema})


def grown(sink: str, has: str, rows: pa.Schema, evolution: Evolution) -> tuple[str, pa.Schema | None]:
    """The fingerprint of the table with these rows, and the columns that it lacks so far; None without any.

    `has`: the fingerprint of its columns; empty before the first rows.

    Rows may lack columns of the table with "add": they are empty there. That is how an app that does not know a new
    column yet goes on beside one that does. Raises SinkError for rows that the table cannot take.
    """
    if not has:
        return fingerprint(rows), rows
    known: dict[str, str] = json.loads(has)
    own = {column.name: str(column.type) for column in rows}
    for name, kind in own.items():
        if known.get(name, kind) != kind:
            raise SinkError(
                f"sink {sink}: column {name} is {known[name]} in the table, and {kind} in these rows: "
                f"give the changed column another name, or the sink another table"
            )
    new = [column for column in rows if column.name not in known]
    if evolution == "fail":
        if new or len(own) < len(known):
            mend = 'evolution="add" lets a table grow by columns'
            raise SinkError(f"sink {sink}: its rows are ({_shown(own)}), and the table has ({_shown(known)}): {mend}")
        return has, None
    for column in new:
        if not column.nullable:
            raise SinkError(
                f"sink {sink}: column {column.name} is new, and may not be empty: the rows of the table do not have it"
            )
    if not new:
        return has, None
    return json.dumps({**known, **own}), pa.schema(new)


def _shown(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
