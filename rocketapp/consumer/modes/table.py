"""Which mode consumes which topic: a new consume mode is one file of this room, and one row of this table.

A mode is imported when a topic is consumed so: every start would pay for those that it does not use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.modes.concurrent import ConcurrentMode
from rocketapp.consumer.modes.delivery import Mode, ModeContext
from rocketapp.model.subscription import KEYED, ORDERLY, POLLED


def _of(module: str, name: str, **options: Any) -> Callable[[Sequence[ConsumedTopic], ModeContext], Mode]:
    """Makes a mode of this room by the name of its class."""

    def new(topics: Sequence[ConsumedTopic], context: ModeContext) -> Mode:
        mode: Mode = getattr(import_module(f"rocketapp.consumer.modes.{module}"), name)(topics, context, **options)
        return mode

    return new


class Row(NamedTuple):
    """A consume mode, and which topics it consumes."""

    takes: Callable[[ConsumedTopic], bool]
    """Whether it consumes this topic."""
    new: Callable[[Sequence[ConsumedTopic], ModeContext], Mode]
    """Makes the mode of these topics."""
    is_own: bool = False
    """Each topic has a mode of its own; otherwise all topics of a group share one."""


_TABLE: tuple[Row, ...] = (
    Row(lambda topic: topic.sink is not None, _of("sink", "SinkMode"), is_own=True),
    Row(lambda topic: topic.kind is POLLED, _of("poll", "PolledMode"), is_own=True),
    Row(lambda topic: topic.kind is KEYED, _of("in_order", "InOrderMode", by_key=True)),
    Row(lambda topic: topic.kind is ORDERLY, _of("in_order", "InOrderMode", by_key=False)),
    Row(lambda topic: topic.is_popped, _of("popped", "PopMode")),
)
"""The first row that takes a topic has it; topics without a row are consumed concurrently."""


class Modes:
    """The consume modes of one group."""

    def __init__(self, context: ModeContext) -> None:
        topics, self.callers = context.member.topics, context.callers
        self.concurrent: ConcurrentMode = ConcurrentMode(topics, context)
        """Of topics without a row, and of messages that come back for a retry: they have lost their order anyway."""
        self._of_topics: dict[str, Mode] = {}
        others: list[Mode] = []
        left = list(topics)
        for row in _TABLE:
            taken = [topic for topic in left if row.takes(topic)]
            left = [topic for topic in left if not row.takes(topic)]
            for share in [[topic] for topic in taken] if row.is_own else [taken] if taken else []:
                others.append(row.new(share, context))
                self._of_topics |= {topic.topic: others[-1] for topic in share}
        self.all: tuple[Mode, ...] = self.concurrent, *others

    def __repr__(self) -> str:
        return f"<Modes {', '.join(type(mode).__name__ for mode in self.all)}>"

    def of(self, topic: str) -> Mode:
        """How this topic is consumed."""
        return self._of_topics.get(topic, self.concurrent)

    def in_flight(self) -> list[tuple[Handler, Any]]:
        """Every running call: its handler, and the message or batch that it works on."""
        return self.callers.in_flight()
