"""The log line for each event: what happened, where, and what comes next."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from rocketapp.plugin import events

MAX_TEXT: Final = 500
"""Characters of an error's text that go into a line."""
QUEUE_TOPIC: Final = "{topic}@{broker}"


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A log line; lines with equal text are equal."""

    level: int
    text: str
    is_about_message: bool = False
    repeats: bool = False
    """Whether it may come many times while one thing is wrong: then it is logged once while that goes on."""
    fields: dict[str, Any] = dataclasses.field(default_factory=dict, compare=False)


def _blocked_text(event: events.LoopBlocked) -> str:
    who = event.handler or "code"
    if event.is_over:
        what = f"{who} blocked the event loop for {event.seconds:.1f} s at {event.place}: nothing else ran meanwhile"
    else:
        what = f"{who} has blocked the event loop for {event.seconds:.0f} s at {event.place}: nothing else runs"
    stack = f"; it stands in {event.stack}" if event.stack and not event.is_over else ""
    return f"{what}; a handler that blocks must be a sync function{stack}"


_TEXTS: Final[dict[type[events.Event], str | Callable[[Any], str]]] = {
    events.Connected: "connected to {e.address}",
    events.Disconnected: "lost {e.address}: {e.reason}",
    events.LoopFailed: "{e.loop} failed and goes on: {e.error}",
    events.QueueBlocked: "group {e.group}: {e.queue} stands still: {e.reason}",
    events.Moving: "group {e.group}: {e.queue} moves again",
    events.Retried: (
        "retry in {e.delay:g} s: {e.handler} failed at {e.topic} {e.message_id}, attempt {e.attempt}: {e.error}"
    ),
    events.DeadLettered: (
        "dead letter in %DLQ%{e.group}: {e.handler} at {e.topic} {e.message_id}, attempt {e.attempt}: {e.reason}"
    ),
    events.Dropped: (
        "dropped by broadcast group {e.group}: {e.handler} at {e.topic} {e.message_id}, attempt {e.attempt}: {e.reason}"
    ),
    events.OffsetsFile: "offsets of broadcast group {e.group} in {e.path}: {e.text}",
    events.SendBackFailed: "handing back failed: {e.handler} at {e.topic} {e.message_id}: {e.error}",
    events.SendAttemptFailed: lambda e: (
        f"an attempt to send to {e.topic}{f' on {e.broker_name}' if e.broker_name else ''} failed: {e.error}"
    ),
    events.CommitFailed: lambda e: (
        f"group {e.group}: offset of {e.queue} not committed: {e.error}: "
        f"{'messages finished since the last commit are delivered again' if e.is_last else 'it is tried again'}"
    ),
    events.HandlerSlow: "{e.text}: its queue waits for it",
    events.OrderKeyMissing: (
        "{e.handler}: none of the first {e.count} messages of {e.topic} has the property {e.property!r} that "
        "order_by= names: they share one key and are handled one by one; correct the name, or publish the property"
    ),
    events.LoopBlocked: _blocked_text,
    events.DrainCut: lambda e: (
        f"cut after {round(e.seconds, 1):g} s: {e.handler} {'could not send back' if e.has_failed else 'still runs'} "
        f"({e.topic} {e.message_id}{f' and {e.others} more' if e.others else ''})"
    ),
    events.TopicMissing: "group {e.group}: topic {e.topic} does not exist yet: it is consumed as soon as it is created",
    events.Adjusted: "group {e.group}: topic {e.topic} from now on: {e.text}",
    events.ReadFromSlave: lambda e: (
        f"group {e.group}: the master of {e.broker_name} cannot be reached: its slave {e.broker_id} is read"
        if e.broker_id
        else f"group {e.group}: the master of {e.broker_name} is read again"
    ),
    events.SubscriptionsDiffer: "group {e.group}: {e.problem}",
    events.RollOut: lambda e: f"group {e.group}: {e.text or 'all members subscribe alike: the roll-out is over'}",
    events.StoreRecovered: lambda e: (
        f"store recovered: {e.records} records in {e.scanned_bytes} bytes read again"
        f"{', all consume queues rebuilt' if e.is_rebuilt else ''}"
    ),
    events.LogCut: "the commit log was cut at {e.position}, an unfinished write of a crash: {e.reason}",
    events.RecordDamaged: (
        "a stored message is damaged and left out: {e.topic} queue {e.queue_id} offset {e.offset}, "
        "commit log {e.physical_offset}"
    ),
    events.TableRestored: (
        "{e.path} cannot be used ({e.problem}): {e.path}.bak was taken in its place, which lacks what was written last"
    ),
    events.BrokerRegistered: "{e.broker_name} at {e.address} is registered with the name server {e.name_server}",
    events.SlaveJoined: "slave {e.address} copies the log from {e.position} on",
    events.SlaveLeft: "slave {e.address} copies the log no more, it has confirmed it up to {e.position}: {e.reason}",
    events.FollowsMaster: "copying the log of the master {e.master} from {e.position} on",
    events.LeftMaster: "not copying the log of the master {e.master}, it is here up to {e.position}: {e.reason}",
    events.StoreReadOnly: "the store takes no more messages until a restart: {e.problem}",
}
"""What is said of each kind of event: a sentence with its fields, or what makes one."""
_LEVELS: Final[dict[type[events.Event], int]] = {
    events.Connected: logging.INFO,
    events.Moving: logging.INFO,
    events.DeadLettered: logging.ERROR,
    events.Dropped: logging.ERROR,
    events.Adjusted: logging.INFO,
    events.RollOut: logging.INFO,
    events.StoreRecovered: logging.DEBUG,
    events.RecordDamaged: logging.ERROR,
    events.BrokerRegistered: logging.INFO,
    events.SlaveJoined: logging.INFO,
    events.FollowsMaster: logging.INFO,
    events.StoreReadOnly: logging.ERROR,
}
"""The level of events; all others: WARNING."""
_ABOUT_MESSAGES: Final = frozenset(
    (events.Retried, events.DeadLettered, events.Dropped, events.SendBackFailed, events.HandlerSlow, events.DrainCut)
)
_REPEATING: Final = frozenset(
    (
        *(events.LoopFailed, events.SendBackFailed, events.SendAttemptFailed, events.CommitFailed),
        *(events.RecordDamaged, events.SlaveLeft, events.LeftMaster),
    )
)


def line_of(event: events.Event) -> Line:
    """The line for an event. An unknown kind of event is shown with its fields."""
    kind = type(event)
    how = _TEXTS.get(kind, _by_fields)
    said = how.format(e=event) if isinstance(how, str) else how(event)
    text = _printable(" ".join(said.split()))
    if len(text) > MAX_TEXT:
        text = f"{text[: MAX_TEXT - 3]}..."
    fields = {"event": kind.__name__}
    fields |= {name: _plain(getattr(event, name)) for name in _facts(event)}
    level = _LEVELS.get(kind, logging.WARNING if kind in _TEXTS else logging.INFO)
    return Line(level, text, kind in _ABOUT_MESSAGES, kind in _REPEATING, fields)


def queues_text(
    kind: type[events.Event], group: str, topic: str, reason: str, moved: Sequence[events.Assigned | events.Released]
) -> str:
    """One line for several queues that were assigned or released at the same time."""
    ids = sorted(event.queue.queue_id for event in moved)
    if ids[0] < 0:  # its broker hands out messages one by one, of all queues
        return f"group {group} gave up {topic}: {reason}" if kind is events.Released else f"group {group} pops {topic}"
    which = f"{topic}: {'queue' if len(ids) == 1 else 'queues'} {_ranges(ids)}"
    if kind is events.Released:
        return f"group {group} gave up {which}: {reason}"
    offsets = {event.queue.queue_id: event.offset for event in moved if isinstance(event, events.Assigned)}
    distinct = set(offsets.values())
    if len(distinct) == 1:
        return f"group {group} takes {which} from offset {distinct.pop()}"
    each = ", ".join(f"{queue}: {offsets[queue]}" for queue in sorted(offsets))
    return f"group {group} takes {which} from offsets {each}"


def _ranges(ids: Sequence[int]) -> str:
    """Numbers as ranges: `0-3, 5`."""
    parts: list[list[int]] = []
    for one in ids:
        if parts and one == parts[-1][-1] + 1:
            parts[-1].append(one)
        else:
            parts.append([one])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _by_fields(event: events.Event) -> str:
    facts = ", ".join(f"{name}={getattr(event, name)}" for name in _facts(event))
    return f"{type(event).__name__}: {facts}" if facts else type(event).__name__


def _facts(event: events.Event) -> list[str]:
    """The names of the event's fields, without those that are too long for a line."""
    return [field.name for field in dataclasses.fields(event) if field.repr]


def _printable(text: str) -> str:
    """Control characters escaped: what strangers put into a message must not command the terminal of the log."""
    return text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
