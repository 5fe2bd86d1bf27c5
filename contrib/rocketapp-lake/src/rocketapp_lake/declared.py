"""What `app.sink` was given, checked where it is written."""

from __future__ import annotations

import difflib
import inspect
import os
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints
from urllib.parse import quote

import msgspec
import pyarrow as pa

from rocketapp import DeadLetter, Message, SetupError, Topic
from rocketapp_lake.arrow_columns import arrow_columns, schema_of_ddl
from rocketapp_lake.columns import Columns
from rocketapp_lake.options import ONLY, TARGET_FILE_SIZE, SinkOptions, Transform
from rocketapp_lake.rows import SET_ASIDE, Read, Rows
from rocketapp_lake.typed_columns import is_generated, protobuf_columns, typed_columns
from rocketapp_lake.writing import is_known

LONGEST_NAME = 200
"""Signs of the name of a sink, which names a directory: all but letters, digits and `_.-~` count as three or more."""


@dataclass(slots=True, kw_only=True)
class Sink(SinkOptions):
    """One sink of an app: what it was told, right or wrong. What makes its store is given it."""

    table: str
    name: str
    """Of the sink in its table: positions belong to it."""
    group: str = ""
    topic: str = ""
    place: str = ""
    """The user's line."""
    folder: Path = field(default_factory=Path.cwd)
    """Where the program is when it declares the sink: a relative table that is a directory lies below it."""
    is_set_back: bool = False
    """An operator opens the table: it is taken as it is, restored to an older version or not."""
    transform: Transform | None = field(default=None, init=False)
    """The user's function, when the sink is used as a decorator."""

    @classmethod
    def of(cls, app: str, topic: str, given: Mapping[str, Any], place: str) -> Self:
        """`app`: its name, which stands in the names that are not given. Raises SetupError for unknown keywords."""
        known = [one.name for one in fields(SinkOptions)]
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                raise SetupError(place, f"{name}= is unknown{f': {near[0]}= is meant?' if near else ''}")
        if given.get("table") is None:
            raise SetupError(place, "table= is missing")
        names = {"group": f"{app}-sink-{topic}", "name": f"{app}/{topic}"}
        said = {name: value for name, value in given.items() if name not in names or value is not None}
        if isinstance(said["table"], str | os.PathLike):
            said["table"] = os.fspath(said["table"]).replace("{topic}", topic)
        return cls(topic=topic, place=place, **{**names, **said})

    @property
    def directory(self) -> str:
        """The table where it is a directory or a URL, wherever the program is by now."""
        return self.table.rstrip("/") if "://" in self.table else os.path.normpath(self.folder / self.table)

    @property
    def arranged_by(self) -> tuple[Sequence[str], Sequence[str]]:
        """Columns of the partitions, and those that rows are sorted by."""
        partition_by: Any = self.partition_by
        sort_by: Any = self.sort_by
        return partition_by, sort_by

    def of_bad_rows(self) -> Sink:
        """The sink of the table of its bad rows."""
        table = f"{self.table.rstrip('/')}_bad"
        return replace(self, table=table, name=f"{self.name}/bad", partition_by=(), sort_by=(), merge_on=())

    def decorate(self, function: Transform) -> Transform:
        """Take the user's function. Raises SetupError, with the place of the sink."""
        problem = transform_problem(function)
        if problem is None and self.transform is not None:
            problem = "this sink has a function already"
        if problem is not None:
            raise SetupError(self.place, problem)
        self.transform = function
        return function

    @property
    def sets_aside(self) -> bool:
        """Whether bad rows go elsewhere."""
        return self.bad_rows in SET_ASIDE

    @property
    def bad_topic(self) -> str:
        """Where `bad_rows="topic"` publishes them."""
        if self.bad_rows_topic is not None:
            return self.bad_rows_topic
        name = re.split(r"[/\\]", self.table.rstrip("/\\"))[-1]
        return f"{re.sub('[^A-Za-z0-9_-]', '-', name)}-bad"

    def columns(self) -> Columns | None:
        """None where bodies are stored as they are. Raises TypeError for a type without columns."""
        return None if self.schema is None else columns_of(self.schema)

    def rows(self, reader: Callable[[Any, str | None], Read]) -> Rows:
        """`reader`: what makes payloads of a type, and of the content type of bodies that do not say theirs."""
        columns = self.columns()
        read = None if columns is None else reader(columns.kind, CODECS.get(self.codec or "", self.codec))
        return Rows(columns, read, self.bad_rows, lambda: self.transform)

    @property
    def key(self) -> tuple[str, str, str]:
        """What it consumes, and for whom: as a Subscription has it."""
        return self.cluster or "", self.topic, self.group

    def writer_name(self, default: str) -> str:
        """What writes its table. Raises SetupError for what is not installed. `default`: what the settings say."""
        if self.format not in ONLY["written_by"]:
            return "arrow"
        name = self.written_by or default
        if name != "arrow" and not is_known(name):
            raise SetupError(self.place, f"written_by={name!r} needs another package: pip install 'rocketapp[{name}]'")
        return name


def problems_of(sink: Sink) -> Iterator[str]:
    """Why it cannot work, as far as the options themselves tell. Those behind the first one need not be right."""
    yield from _kind_problems(sink)
    if sink.url is not None and "://" not in sink.url:
        yield "url= is a text as postgresql+psycopg://user@127.0.0.1/shop"
    table: object = sink.table
    if not isinstance(table, str | os.PathLike) or not os.fspath(table):
        yield f"table={table!r}: give the place of the table"
    if "\0" in str(table):
        yield f"table={table!r} has a sign that no path has"
    if sink.compact_every is None and sink.target_file_size != TARGET_FILE_SIZE:
        yield f"target_file_size={sink.target_file_size} does nothing without compact_every="
    yield from _bad_rows_problems(sink)
    yield from _codec_problems(sink.codec, sink.schema)
    if not sink.name.isprintable():
        yield f"name={sink.name!r} has a sign that cannot be shown"
    if len(quote(sink.name, safe="")) > LONGEST_NAME:
        yield f"name={sink.name[:40]!r}... is too long: give {LONGEST_NAME} signs at most"


_KINDS = get_type_hints(SinkOptions, include_extras=True) | {"table": Any, "start": Any}
"""What each option may be. Those two are checked elsewhere."""


def _kind_problems(sink: Sink) -> Iterator[str]:
    for one in fields(SinkOptions):
        value, kind = getattr(sink, one.name), _KINDS[one.name]
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            shown = f"{one.name}={reprlib.repr(value) if one.repr else ''}"
            choices = [get_args(part) for part in (kind, *get_args(kind)) if get_origin(part) is Literal]
            known = " or ".join(map(repr, chain(*choices)))
            yield f"{shown} is unknown: give {known}" if known else f"{shown}: {error}"


def _bad_rows_problems(sink: Sink) -> Iterator[str]:
    if sink.bad_rows_topic is not None and sink.bad_rows != "topic":
        yield f'bad_rows_topic={sink.bad_rows_topic!r} needs bad_rows="topic"'
    if sink.bad_rows == "topic" and sink.bad_topic == sink.topic:
        yield f"bad_rows_topic={sink.bad_topic!r} is the topic of the sink: bad rows would come again for ever"
    if (most := sink.bad_rows_max_ratio) is not None and not sink.sets_aside:
        yield f'bad_rows_max_ratio={most!r} needs bad_rows="table" or bad_rows="topic"'


def transform_problem(function: object) -> str | None:
    """Why this cannot be the function of a sink; None when it can."""
    if not callable(function):
        return f"{function!r} is not a function"
    if inspect.iscoroutinefunction(function):
        return "the function of a sink works on a batch in a thread: make it a plain `def`"
    try:
        inspect.signature(function).bind(object())
    except (TypeError, ValueError):
        return "the function of a sink takes one argument, the batch as a pyarrow.Table"
    return None


RESERVED = "_rmq_"
CODECS = {
    "json": "application/json",
    "msgpack": "application/msgpack",
    "protobuf": "application/protobuf",
    "avro": "application/avro",
}
"""Short names of content types: of bodies that do not say theirs."""


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
        if name.startswith(RESERVED):
            raise TypeError(f"field {name!r}: names that begin with {RESERVED} are those of the sink")
    if not seen:
        raise TypeError(f"{kind!r} has no fields")
    return found


def _codec_problems(codec: object, schema: object) -> Iterator[str]:
    if codec is not None and (not isinstance(codec, str) or (codec not in CODECS and "/" not in codec)):
        yield f"codec={codec!r} is unknown: give {', '.join(map(repr, CODECS))}, or a content type"
    if codec is not None and schema is None:
        yield f"codec={codec!r} needs a schema="


def handler_of(name: str, caller: FrameType) -> Callable[..., Any]:
    """The handler of a sink, named and described as it is for logs, errors and documents."""

    async def came_back(message: Message) -> None:
        # Nothing of a sink is ever sent back, so this was by hand, or by an earlier handler.
        raise DeadLetter("a sink takes messages of the topic alone: a message of a retry topic would be there twice")

    came_back.__module__, came_back.__qualname__ = caller.f_globals.get("__name__", "?"), f"sink {name}"
    came_back.__doc__ = "Lands each message of the topic in a table, once."
    return came_back


def held(topic: str, schema: Any) -> str | Topic[Any]:
    """The topic with the type of its payloads, where the schema is one: documents of the app tell it."""
    try:
        return Topic(topic, schema)
    except (TypeError, ValueError):  # a schema in other words, or a name that is refused where it is subscribed
        return topic


def caller_of(frame: FrameType) -> FrameType:
    """Of the user, who declares the sink."""
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("rocketapp_lake."):
        frame = frame.f_back
    return frame
