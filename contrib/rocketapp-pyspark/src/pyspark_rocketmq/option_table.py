"""Every option of the data source: its name, what its text may be, and where it counts. Pure.

Spark hands options over with names in lower case, so names are compared without case.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from pyspark_rocketmq.problems import OptionError

Use = Literal["batch", "stream", "sink"]
"""A batch read, a streaming read, or a write of either kind."""
READS: frozenset[Use] = frozenset(("batch", "stream"))
EVERYWHERE: frozenset[Use] = frozenset(("batch", "stream", "sink"))
BATCH: frozenset[Use] = frozenset(("batch",))
STREAM: frozenset[Use] = frozenset(("stream",))
SINK: frozenset[Use] = frozenset(("sink",))

Read = Callable[[str], Any]


class _MalformedError(Exception):
    """What the text should have been."""


def text(value: str) -> str:
    return value.strip()


def whole(least: int, most: int) -> Read:
    def read(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise _MalformedError(f"a whole number from {least} to {most}")
        return number

    return read


def switch(value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise _MalformedError("true or false")
    return value.strip().lower() == "true"


def one_of(*choices: str) -> Read:
    def read(value: str) -> str:
        for choice in choices:
            if value.strip().lower() == choice.lower():
                return choice
        raise _MalformedError(" or ".join(choices))

    return read


def names(value: str) -> tuple[str, ...]:
    found = tuple(filter(None, (part.strip() for part in value.split(","))))
    if not found:
        raise _MalformedError("names with commas between them")
    return found


def addresses(value: str) -> tuple[str, ...]:
    found = tuple(filter(None, (part.strip() for part in value.replace(",", ";").split(";"))))
    if not found or not all(map(_is_address, found)):
        raise _MalformedError("host:port, or several with ; between them")
    return found


def _is_address(part: str) -> bool:
    host, _, port = part.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= len("65535") and 0 < int(port) <= 65535
    return is_port and bool(host) and not set(host) & set("/ @")


def structure(value: str) -> Any:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = None
    if found is None:
        raise _MalformedError("JSON")
    return found


def duration(value: str) -> float:
    """Seconds of `500ms`, `30s`, `15m` or `1h`."""
    for unit, seconds in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)):
        number = value.strip().lower().removesuffix(unit)
        if number != value.strip().lower() and number.isdigit():
            return int(number) * seconds
    raise _MalformedError("a duration such as 500ms, 30s, 15m or 1h")


class Option(NamedTuple):
    """One option."""

    name: str
    read: Read
    uses: frozenset[Use]
    default: Any = None
    secret: bool = False
    needs: tuple[str, ...] = ()
    """Without one of these it does nothing, and is refused."""


PREFIX = "spark-rocketmq"
_MANY = 2**31 - 1
_MILLISECONDS = whole(0, 2**53)

OPTIONS: tuple[Option, ...] = (
    Option("nameServer", addresses, EVERYWHERE),
    Option("namespace", text, EVERYWHERE, ""),
    Option("accessKey", text, EVERYWHERE, "", needs=("secretKey",)),
    Option("secretKey", text, EVERYWHERE, "", secret=True, needs=("accessKey",)),
    Option("securityToken", text, EVERYWHERE, "", secret=True, needs=("accessKey",)),
    Option("tls.enabled", switch, EVERYWHERE, False),
    Option("tls.caFile", text, EVERYWHERE, "", needs=("tls.enabled",)),
    Option("tls.certFile", text, EVERYWHERE, "", needs=("tls.enabled",)),
    Option("tls.keyFile", text, EVERYWHERE, "", needs=("tls.certFile",)),
    Option("tls.keyPassword", text, EVERYWHERE, "", secret=True, needs=("tls.certFile",)),
    Option("tls.verify", switch, EVERYWHERE, True, needs=("tls.enabled",)),
    Option("tls.checkHost", switch, EVERYWHERE, True, needs=("tls.enabled",)),
    Option("subscribe", names, READS),
    Option("subscribePattern", text, READS),
    Option("assign", structure, READS),
    Option("tags", text, READS, "*"),
    Option("sql", text, READS),
    Option("consumerGroup", text, READS),
    Option("groupIdPrefix", text, READS, PREFIX),
    Option("startingOffsets", text, READS),
    Option("startingTimestamp", _MILLISECONDS, READS),
    Option("startingOffsetsByTimestamp", structure, READS),
    Option(
        "startingOffsetsByTimestampStrategy",
        one_of("error", "latest"),
        READS,
        "error",
        needs=("startingTimestamp", "startingOffsetsByTimestamp"),
    ),
    Option("endingOffsets", text, BATCH),
    Option("endingTimestamp", _MILLISECONDS, BATCH),
    Option("endingOffsetsByTimestamp", structure, BATCH),
    Option("maxOffsetsPerTrigger", whole(1, 2**53), STREAM),
    Option("maxBytesPerTrigger", whole(1, 2**53), STREAM),
    Option("minOffsetsPerTrigger", whole(1, 2**53), STREAM),
    Option("maxTriggerDelay", duration, STREAM, 900.0, needs=("minOffsetsPerTrigger",)),
    Option("minPartitions", whole(1, 1_000_000), READS),
    Option("maxRecordsPerPartition", whole(1, 2**53), READS),
    Option("failOnDataLoss", switch, READS, True),
    Option("commitOffsets", switch, STREAM, False, needs=("consumerGroup",)),
    Option("pullBatchSize", whole(1, 1024), READS, 256),
    Option("pullDepth", whole(1, 256), READS, 16),
    Option("pullTimeoutMs", whole(1, _MANY), READS, 20_000),
    Option("fetchOffset.numRetries", whole(0, 1000), READS, 3),
    Option("fetchOffset.retryIntervalMs", whole(0, _MANY), READS, 1000),
    Option("fromReplica", one_of("advice", "never"), READS, "advice"),
    Option("includeProperties", switch, READS, False),
    Option("columns", names, READS),
    Option("badRecords", one_of("fail", "null"), READS, "fail"),
    Option("pushdown", switch, BATCH, False),
    Option("topic", text, SINK),
    Option("producerGroup", text, SINK, "spark-rocketmq"),
    Option("maxBatchBytes", whole(1024, 64 * 1024 * 1024), SINK, 1_048_576),
    Option("sendDepth", whole(1, 256), SINK, 4),
    Option("sendTimeoutMs", whole(1, _MANY), SINK, 10_000),
    Option("sendRetries", whole(0, 1000), SINK, 3),
    Option("sendRetryIntervalMs", whole(0, _MANY), SINK, 1000),
    Option("stamp", switch, SINK, True),
)
_BY_NAME = {option.name.lower(): option for option in OPTIONS}
_OF_SPARK = frozenset(("checkpointlocation", "queryname"))
"""What Spark itself hands over to every sink."""


def read_options(given: Mapping[str, str], use: Use) -> dict[str, Any]:
    """The values of all options of this use by name, defaults filled in.

    Raises OptionError for an unknown name, for a malformed value (which is shown unless it is secret), for an option
    that counts elsewhere, and for one that does nothing without another.
    """
    check_names(given)
    found = {option.name: option.default for option in OPTIONS if use in option.uses}
    for name, value in given.items():
        if name.lower() in _OF_SPARK:
            continue
        option = _BY_NAME[name.lower()]
        if use not in option.uses:
            raise OptionError(f"option {option.name} counts for {_uses(option.uses)}, this is {_uses([use])}")
        try:
            found[option.name] = option.read(value)
        except _MalformedError as problem:
            shown = "" if option.secret else f"={value[:80]!r}"
            raise OptionError(f"option {option.name}{shown}: give {problem}") from None
    changed = {name for name, value in found.items() if value != _BY_NAME[name.lower()].default}
    for option in OPTIONS:
        if option.name in changed and option.needs and changed.isdisjoint(option.needs):
            raise OptionError(f"option {option.name} does nothing without {' or '.join(option.needs)}")
    return found


def check_names(given: Iterable[str]) -> None:
    """Raises OptionError for a name that no use has."""
    for name in given:
        if name.lower() not in _BY_NAME and name.lower() not in _OF_SPARK:
            raise OptionError(_unknown(name))


def _unknown(name: str) -> str:
    nearest = difflib.get_close_matches(name.lower(), _BY_NAME, n=1, cutoff=0.0)
    return f"unknown option {name!r}: the nearest known one is {_BY_NAME[nearest[0]].name!r}"


_SHOWN: dict[Use, str] = {"batch": "a batch read", "stream": "a streaming read", "sink": "a write"}


def _uses(uses: Iterable[Use]) -> str:
    return " or ".join(_SHOWN[use] for use in sorted(uses))
