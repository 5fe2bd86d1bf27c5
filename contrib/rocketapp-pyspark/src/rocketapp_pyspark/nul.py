"""Texts with a NUL, which JSON and Protobuf may hold and PostgreSQL may not."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

NUL = "\x00"


def rows_with_nul(arrays: Sequence[pa.Array], fields: Sequence[pa.Field]) -> list[tuple[int, str]]:
    """The number of each row that has one, in a text or a list of texts, and which field it is."""
    found = []
    for array, field in zip(arrays, fields, strict=True):
        if pa.types.is_string(field.type):
            numbers = _marked(array)
        elif pa.types.is_list(field.type) and pa.types.is_string(field.type.value_type):
            parents = pc.list_parent_indices(array)
            numbers = sorted({parents[number].as_py() for number in _marked(pc.list_flatten(array))})
        else:
            continue
        found += [
            (number, f"field {field.name}: the text has a NUL, which the database cannot hold") for number in numbers
        ]
    return found


def without_nul(text: str) -> str:
    """The same with a sign in its place that every table holds."""
    return text.replace(NUL, "\N{REPLACEMENT CHARACTER}")


def _marked(texts: pa.Array) -> list[int]:
    has = pc.match_substring(texts, NUL)
    numbers: list[int] = pc.indices_nonzero(pc.fill_null(has, False)).to_pylist()
    return numbers
