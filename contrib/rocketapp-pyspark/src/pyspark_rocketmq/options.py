"""The options of a read or a write as one value, checked together. What is secret is in no `repr`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from pyspark_rocketmq import option_table
from pyspark_rocketmq.columns import BAD_RECORD, PROPERTIES, TYPES, USUAL
from pyspark_rocketmq.offsets import from_json, from_tree, whole
from pyspark_rocketmq.problems import OptionError
from rocketapp import MessageQueue

EARLIEST, LATEST = -2, -1
"""Places in a queue; other values are offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How servers are checked, and how this client names itself."""

    ca_file: str = ""
    """Certificates that are trusted; empty: those of the system."""
    cert_file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    verify: bool = True
    """False: any certificate is accepted."""
    check_host: bool = True
    """Whether the certificate has to name the address that was dialled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What every connection needs: keys and TLS."""

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    tls: Tls | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How servers are reached."""

    name_servers: tuple[str, ...]
    namespace: str
    access: Access
    timeout: float
    """Seconds for one answer."""
    retries: int
    retry_interval: float
    """Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Which queues are read. One of the three is given."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[MessageQueue, ...] = ()

    def have(self, queue: MessageQueue) -> bool:
        """Whether this queue is read, if it exists."""
        return queue in self.assigned or self.has_topic(queue.topic)

    def has_topic(self, topic: str) -> bool:
        """Whether all queues of this topic are read."""
        return bool(re.fullmatch(self.pattern, topic)) if self.pattern else topic in self.names


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Where reads begin or end: an offset or place by queue, a time by queue, and what counts for the other queues."""

    default: int
    """EARLIEST or LATEST."""
    offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    time: int | None = None
    """Milliseconds since 1970, for queues that are not named."""
    times: Mapping[MessageQueue, int] = field(default_factory=dict)
    fail_on_miss: bool = False
    """Whether a time behind the last message is an error; otherwise it means the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulls:
    """How a range of a queue is pulled."""

    group: str
    tags: frozenset[str]
    expression: str
    expression_type: Literal["TAG", "SQL92"]
    pull_batch_size: int
    pull_depth: int
    fail_on_data_loss: bool
    from_replica: bool
    waits: bool
    """Whether a broker that is away is waited for, however long."""

    @property
    def is_filtered(self) -> bool:
        return bool(self.tags) or self.expression_type == "SQL92"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """A read, batch or streaming."""

    reach: Reach
    topics: Topics
    start: Edge
    end: Edge
    pulls: Pulls
    columns: tuple[str, ...]
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    commit_offsets: bool = False
    pushdown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A write, batch or streaming."""

    reach: Reach
    topic: str
    producer_group: str
    max_batch_bytes: int
    send_depth: int
    stamp: bool


T = TypeVar("T")


def _filled(kind: type[T], found: Mapping[str, Any], prefix: str = "", **others: Any) -> T:
    """Made of the options that have the names of its fields, as `pullDepth` has that of `pull_depth`, and of others.

    `prefix`: what stands in front of them.
    """
    words = {field.name: field.name.split("_") for field in fields(kind)}  # type: ignore[arg-type]
    names = {name: prefix + first + "".join(map(str.title, rest)) for name, (first, *rest) in words.items()}
    return kind(**{name: found[option] for name, option in names.items() if option in found} | others)


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that a read gives, whatever kind of read it is. Raises OptionError, also for unknown options."""
    option_table.check_names(given)
    mine = ("columns", "includeproperties", "badrecords")
    return _columns(option_table.read_options({n: v for n, v in given.items() if n.lower() in mine}, "batch"))


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check every option of a read. Raises OptionError."""
    found = option_table.read_options(given, "stream" if streaming else "batch")
    most, least = found.get("maxOffsetsPerTrigger"), found.get("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}")
    return _filled(
        ReadOptions,
        found,
        reach=_reach(found, "pullTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
        topics=_topics(found),
        start=_edge(found, "starting", LATEST if streaming else EARLIEST),
        end=Edge(default=LATEST) if streaming else _edge(found, "ending", LATEST),
        pulls=_pulls(found, waits=streaming),
        columns=_columns(found),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check every option of a write. Raises OptionError."""
    found = option_table.read_options(given, "sink")
    reach = _reach(found, "sendTimeoutMs", "sendRetries", "sendRetryIntervalMs")
    return _filled(WriteOptions, found, reach=reach, topic=found["topic"] or "")


def _reach(found: Mapping[str, Any], timeout: str, retries: str, interval: str) -> Reach:
    if not found["nameServer"]:
        raise OptionError("option nameServer is missing: give host:port of the name server")
    tls = _filled(Tls, found, "tls.") if found["tls.enabled"] else None
    return _filled(
        Reach,
        found,
        name_servers=found["nameServer"],
        access=_filled(Access, found, tls=tls),
        timeout=found[timeout] / 1000,
        retries=found[retries],
        retry_interval=found[interval] / 1000,
    )


def _topics(found: Mapping[str, Any]) -> Topics:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if found[name]]
    if len(given) != 1:
        raise OptionError(f"give one of subscribe, subscribePattern and assign; given: {', '.join(given) or 'none'}")
    if found["subscribe"]:
        return Topics(names=tuple(sorted(set(found["subscribe"]))))
    if found["subscribePattern"]:
        try:
            re.compile(found["subscribePattern"])
        except re.error as error:
            raise OptionError(f"option subscribePattern={found['subscribePattern']!r}: {error}") from None
        return Topics(pattern=found["subscribePattern"])
    return Topics(assigned=_assigned(found["assign"]))


def _assigned(given: Any) -> tuple[MessageQueue, ...]:
    problem = OptionError('option assign: give {"topic": {"broker": [0, 1]}} as JSON')
    try:
        queues = {
            MessageQueue(topic, broker, number)
            for topic, brokers in given.items()
            for broker, numbers in brokers.items()
            for number in numbers
        }
    except (AttributeError, TypeError):
        raise problem from None
    if not queues or not all(type(queue.queue_id) is int and queue.queue_id >= 0 for queue in queues):
        raise problem
    return tuple(sorted(queues))


_PLACES = {"earliest": EARLIEST, "latest": LATEST}


def _edge(found: Mapping[str, Any], name: str, default: int) -> Edge:
    by_offset, by_time, times = f"{name}Offsets", f"{name}Timestamp", f"{name}OffsetsByTimestamp"
    given = [option for option in (by_offset, by_time, times) if found[option] is not None]
    if len(given) > 1:
        raise OptionError(f"give one of {by_offset}, {by_time} and {times}; given: {', '.join(given)}")
    strict = name == "starting" and found["startingOffsetsByTimestampStrategy"] == "error"
    if found[by_time] is not None:
        return Edge(default=default, time=found[by_time], fail_on_miss=strict)
    if found[times] is not None:
        return Edge(default=default, times=from_tree(found[times], f"option {times}", whole), fail_on_miss=strict)
    text = found[by_offset]
    if text is None:
        return Edge(default=default)
    if text.lower() in _PLACES:
        place = _PLACES[text.lower()]
        if name == "ending" and place == EARLIEST:
            raise OptionError("option endingOffsets='earliest': nothing lies before it; give latest or JSON")
        return Edge(default=place)
    return Edge(default=default, offsets=_offsets(by_offset, text))


def _offsets(option: str, text: str) -> dict[MessageQueue, int]:
    try:
        data = option_table.structure(text)
    except Exception:
        raise OptionError(f"option {option}={text[:80]!r}: give earliest, latest or JSON") from None
    is_progress = isinstance(data, dict) and {"t", "v"} <= set(data)
    offsets = from_json(data).next if is_progress else from_tree(data, f"option {option}", whole)
    wrong = [queue for queue, offset in offsets.items() if offset < EARLIEST]
    if wrong:
        raise OptionError(f"option {option}: {wrong[0]} is {offsets[wrong[0]]}; -2 is earliest and -1 is latest")
    return offsets


def _pulls(found: Mapping[str, Any], *, waits: bool) -> Pulls:
    if found["sql"] and found["tags"] != "*":
        raise OptionError("give one of tags and sql")
    if found["consumerGroup"] and found["groupIdPrefix"] != option_table.PREFIX:
        raise OptionError("give one of consumerGroup and groupIdPrefix")
    expression = found["sql"] or found["tags"] or "*"
    tags: frozenset[str] = frozenset()
    if not found["sql"] and expression != "*":
        tags = frozenset(filter(None, (part.strip() for part in expression.split("||"))))
        if not tags:
            raise OptionError(f"option tags={expression!r} names no tag: give a || b")
    return _filled(
        Pulls,
        found,
        group=found["consumerGroup"] or f"{found['groupIdPrefix']}-source",
        tags=tags,
        expression=expression,
        expression_type="SQL92" if found["sql"] else "TAG",
        from_replica=found["fromReplica"] == "advice",
        waits=waits,
    )


def _columns(found: Mapping[str, Any]) -> tuple[str, ...]:
    columns = USUAL if found["columns"] is None else tuple(name.lower() for name in found["columns"])
    unknown = [name for name in columns if name not in TYPES]
    if unknown:
        raise OptionError(f"option columns: {unknown[0]!r} is not one of {', '.join(TYPES)}")
    if len(set(columns)) < len(columns):
        raise OptionError("option columns names a column twice")
    if BAD_RECORD in columns and found["badRecords"] == "fail":
        raise OptionError(
            f"option columns: {BAD_RECORD} needs badRecords=null, without which such a message fails the read"
        )
    added = {PROPERTIES: found["includeProperties"], BAD_RECORD: found["badRecords"] == "null"}
    return (*columns, *(name for name, is_wanted in added.items() if is_wanted and name not in columns))
