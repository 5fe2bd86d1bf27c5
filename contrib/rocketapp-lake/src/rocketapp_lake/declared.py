"""What `app.sink` was given, checked where it is written."""

from __future__ import annotations

import difflib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import FrameType
from typing import Any, Self, get_args
from urllib.parse import quote

import pyarrow as pa

from rocketapp import DeadLetter, Message, SetupError, Topic
from rocketapp.plugin import Start
from rocketapp_lake.arrow_columns import arrow_columns
from rocketapp_lake.batches import DEFAULTS, Limits
from rocketapp_lake.columns import Columns
from rocketapp_lake.ddl import schema_of_ddl
from rocketapp_lake.evolution import Evolution
from rocketapp_lake.formats import Format, PartitionBy, TableOptions, missing
from rocketapp_lake.pacing import STUBBORN, Retries
from rocketapp_lake.rows import SET_ASIDE, BadRows, Read, Rows, Transform
from rocketapp_lake.store import TARGET_FILE_SIZE
from rocketapp_lake.typed import SinkOptions
from rocketapp_lake.typed_columns import is_generated, protobuf_columns, typed_columns
from rocketapp_lake.writer import OnOffsetReset
from rocketapp_lake.writing import is_known

MOST_BAD = 0.05
"""The share of bad rows that a queue may have unless the sink says otherwise."""
MOST_SECONDS = 10**9
"""Some 30 years: what a clock can be set to."""
_SECONDS = "more than 0 and less than a billion"
LONGEST_NAME = 200
"""Signs of the name of a sink, which names a directory: all but letters, digits and `_.-~` count as three or more."""


@dataclass(slots=True, kw_only=True)
class Sink:
    """One sink of an app: what the keywords of `SinkOptions` gave, right or wrong, under the same names."""

    topic: str
    table: str | os.PathLike[str]
    group: str
    name: str
    format: str = "delta"
    schema: Any = None
    codec: str | None = None
    tags: str = "*"
    start: Start = "first"
    cluster: str | None = None
    flush_rows: int = DEFAULTS.rows
    flush_bytes: int = DEFAULTS.bytes
    flush_seconds: float = DEFAULTS.seconds
    bad_rows: BadRows = "fail"
    bad_rows_topic: str | None = None
    bad_rows_max_ratio: float | None = None
    evolution: Evolution = "fail"
    partition_by: PartitionBy | None = None
    sort_by: Any = None
    """A tuple of names as soon as the sink is made."""
    on_offset_reset: OnOffsetReset = "fail"
    commit_retries: int = STUBBORN.most
    retry_backoff: tuple[float, float] = (STUBBORN.first, STUBBORN.longest)
    max_buffer_bytes: int | None = None
    compact_every: float | None = None
    target_file_size: int = TARGET_FILE_SIZE
    place: str
    options: Mapping[str, Any] = field(repr=False)
    """The keywords that only this format takes; a password may be among them."""
    transform: Transform | None = field(default=None, init=False)
    """The user's function, when the sink is used as a decorator."""
    folder: Path = field(default_factory=Path.cwd, init=False)
    """Where the program is when it declares the sink."""

    @classmethod
    def of(cls, app: str, topic: str, given: Mapping[str, Any], place: str) -> Self:
        """`app`: its name, which stands in the names that are not given."""
        own = {one.name for one in fields(cls)} & SinkOptions.__annotations__.keys()
        said = {"table": None, **{name: value for name, value in given.items() if name in own}}
        if said.get("group") is None:
            said["group"] = f"{app}-sink-{topic}"
        if said.get("name") is None:
            said["name"] = f"{app}/{topic}"
        options = {name: value for name, value in given.items() if name not in own}
        return cls(topic=topic, place=place, options=options, **said)

    def __post_init__(self) -> None:
        if isinstance(self.sort_by, str):
            self.sort_by = (self.sort_by,)
        elif isinstance(self.sort_by, Iterable):
            self.sort_by = tuple(self.sort_by)
        elif self.sort_by is None:
            self.sort_by = ()

    @property
    def limits(self) -> Limits:
        """When a batch is cut."""
        return Limits(rows=self.flush_rows, bytes=self.flush_bytes, seconds=self.flush_seconds)

    @property
    def retries(self) -> Retries:
        """What follows failed attempts; with a longest pause that no sink may have where the backoff is not a pair."""
        backoff: Any = self.retry_backoff
        first, longest = backoff if isinstance(backoff, tuple | list) and len(backoff) == 2 else (backoff, -1.0)
        return Retries(most=self.commit_retries, first=first, longest=longest)

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
        name = re.split(r"[/\\]", os.fspath(self.table).rstrip("/\\"))[-1]
        return f"{re.sub('[^A-Za-z0-9_-]', '-', name)}-bad"

    @property
    def most_bad(self) -> float:
        """The share of bad rows above which a queue stops."""
        return MOST_BAD if self.bad_rows_max_ratio is None else self.bad_rows_max_ratio

    def columns(self) -> Columns | None:
        """None where bodies are stored as they are. Raises TypeError for a type without columns."""
        return None if self.schema is None else columns_of(self.schema)

    def rows(self, reader: Callable[[Any, str | None], Read]) -> Rows:
        """`reader`: what makes payloads of a type, and of the content type of bodies that do not say theirs."""
        columns = self.columns()
        read = None if columns is None else reader(columns.kind, content_type_of(self.codec))
        return Rows(columns, read, self.bad_rows, lambda: self.transform)

    @property
    def key(self) -> tuple[str, str, str]:
        """What it consumes, and for whom: as a Subscription has it."""
        return self.cluster or "", self.topic, self.group

    @property
    def full_table(self) -> str:
        """The table, however it is spelled."""
        table = os.fspath(self.table)
        return table.rstrip("/") if "://" in table else os.path.normpath(self.folder / table)

    def written_by(self, format: Format, default: str) -> str:
        """What writes its table. Raises SetupError for what is not installed. `default`: what the settings say."""
        name = format.written_by(self.about(format), default)
        if name != "arrow" and not is_known(name):
            raise SetupError(self.place, f"written_by={name!r} needs another package: pip install 'rocketapp[{name}]'")
        return name

    def about(self, format: Format) -> TableOptions:
        """What the store is made of. Raises ValueError for options that the format does not take."""
        options = format.make_options(self.options, SinkOptions.__annotations__)
        return TableOptions(
            table=self.table,
            sink=self.name,
            folder=self.folder,
            partition_by=self.partition_by,
            sort_by=self.sort_by,
            options=options,
        )


def problem_of(sink: Sink, formats: Mapping[str, Format]) -> str | None:
    """Why it cannot work; None when it can. `formats`: those that are known."""
    return (
        _choice_problem(sink, sorted(formats))
        or _table_problem(sink, formats[sink.format])
        or _limits_problem(sink.limits)
        or _compaction_problem(sink)
        or _effort_problem(sink)
        or _bad_rows_problem(sink)
        or codec_problem(sink.codec, sink.schema)
        or _name_problem(sink)
    )


def _choice_problem(sink: Sink, formats: Sequence[str]) -> str | None:
    for name, value, known in (
        ("format", sink.format, formats),
        ("bad_rows", sink.bad_rows, get_args(BadRows)),
        ("evolution", sink.evolution, get_args(Evolution)),
        ("on_offset_reset", sink.on_offset_reset, get_args(OnOffsetReset)),
        ("partition_by", sink.partition_by, (None, *get_args(PartitionBy))),
    ):
        if value not in known:
            return f"{name}={value!r} is unknown: give {' or '.join(map(repr, known))}"
    library = missing(sink.format)
    return None if library is None else f"format={sink.format!r} needs {library}"


def _table_problem(sink: Sink, format: Format) -> str | None:
    columns: object = sink.sort_by
    if not isinstance(columns, tuple) or not all(isinstance(column, str) and column for column in columns):
        return f"sort_by={columns!r}: give names of columns"
    if sink.sort_by and not format.is_sorted:
        return f"sort_by={sink.sort_by!r}: format={sink.format!r} does not sort"
    try:
        return _place_problem(sink) or format.problem(sink.about(format))
    except ValueError as error:
        return f"format={sink.format!r}: {error}"


def _place_problem(sink: Sink) -> str | None:
    table: object = sink.table
    if table is None:
        typo = next(iter(difflib.get_close_matches("table", sink.options, n=1)), None)
        return "table= is missing" if typo is None else f"{typo}= is unknown: table= is meant?"
    if not isinstance(table, str | os.PathLike) or not os.fspath(table):
        return f"table={table!r}: give the place of the table"
    if "\0" in str(table):
        return f"table={table!r} has a sign that no path has"
    return None


def _limits_problem(limits: Limits) -> str | None:
    for name, value in (("flush_rows", limits.rows), ("flush_bytes", limits.bytes)):
        if not _is_count(value):
            return f"{name}={value!r}: give a whole number, 1 or more"
    if not _is_seconds(limits.seconds):
        return f"flush_seconds={_shown(limits.seconds)}: give seconds, {_SECONDS}"
    return None


def _compaction_problem(sink: Sink) -> str | None:
    every: object = sink.compact_every
    if every is not None and not _is_seconds(every):
        return f"compact_every={_shown(every)}: give seconds, {_SECONDS}, or None"
    if not _is_count(sink.target_file_size):
        return f"target_file_size={sink.target_file_size!r}: give bytes, 1 or more"
    if every is None and sink.target_file_size != TARGET_FILE_SIZE:
        return f"target_file_size={sink.target_file_size} does nothing without compact_every="
    return None


def _effort_problem(sink: Sink) -> str | None:
    retries, most = sink.retries, sink.max_buffer_bytes
    if not _is_count(retries.most):
        return f"commit_retries={retries.most!r}: give a whole number, 1 or more"
    if not (_is_seconds(retries.first) and _is_seconds(retries.longest) and retries.first <= retries.longest):
        return "retry_backoff= is two numbers: the first and the longest pause in seconds"
    if most is not None and not _is_count(most):
        return f"max_buffer_bytes={most!r}: give bytes, 1 or more, or None"
    return None


def _is_count(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int) and value >= 1


def _is_seconds(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value < MOST_SECONDS


def _shown(value: object) -> str:
    return repr(value) if len(str(value)) < 40 else f"{str(value)[:40]}..."


def _bad_rows_problem(sink: Sink) -> str | None:
    if sink.bad_rows_topic is not None and sink.bad_rows != "topic":
        return f'bad_rows_topic={sink.bad_rows_topic!r} needs bad_rows="topic"'
    if sink.bad_rows == "topic" and sink.bad_topic == sink.topic:
        return f"bad_rows_topic={sink.bad_topic!r} is the topic of the sink: bad rows would come again for ever"
    most: object = sink.bad_rows_max_ratio
    if most is None:
        return None
    if not sink.sets_aside:
        return f'bad_rows_max_ratio={most!r} needs bad_rows="table" or bad_rows="topic"'
    if isinstance(most, bool) or not isinstance(most, int | float) or not 0 <= most <= 1:
        return f"bad_rows_max_ratio={most!r}: give a share from 0 to 1"
    return None


def _name_problem(sink: Sink) -> str | None:
    name: object = sink.name
    if not isinstance(name, str) or not name:
        return f"name={name!r}: give a text"
    if not name.isprintable():
        return f"name={name!r} has a sign that cannot be shown"
    if len(quote(name, safe="")) > LONGEST_NAME:
        return f"name={name[:40]!r}... is too long: give {LONGEST_NAME} signs at most"
    return None


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
