"""A call of `app.sink`: where it is written, and what it gave, right or wrong; `declared` checks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from rocketapp import DeadLetter, Message, Topic
from rocketapp_pyspark.pacing import Retries


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
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("rocketapp_pyspark."):
        frame = frame.f_back
    return frame


def columns_to_sort(sort_by: Any) -> tuple[str, ...]:
    """What was given, right or wrong."""
    if isinstance(sort_by, str):
        return (sort_by,)
    given: tuple[str, ...] = () if sort_by is None else tuple(sort_by) if isinstance(sort_by, Iterable) else sort_by
    return given


def retries_of(most: int, backoff: Any) -> Retries:
    """What was given, right or wrong."""
    first, longest = backoff if isinstance(backoff, tuple | list) and len(backoff) == 2 else (backoff, -1.0)
    return Retries(most=most, first=first, longest=longest)
