"""Which mode consumes which topic: a new consume mode is one row of this table, and a file if no mode here does it.

A mode is imported when a topic is consumed so: every start would pay for those that it does not use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import NamedTuple

from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.consumer.modes.delivery import Mode, ModeContext
from rocketapp.consumer.workers.callers import Callers
from rocketapp.model.subscription import POLLED


def _of(module: str, name: str) -> Callable[[ConsumedTopic, ModeContext], Mode]:
    """Makes a mode of this room by the name of its class."""

    def new(topic: ConsumedTopic, context: ModeContext) -> Mode:
        mode: Mode = getattr(import_module(f"rocketapp.consumer.modes.{module}"), name)(topic, context)
        return mode

    return new


class Row(NamedTuple):
    """A consume mode, and which topics it consumes."""

    takes: Callable[[ConsumedTopic], bool]
    """Whether it consumes this topic."""
    new: Callable[[ConsumedTopic, ModeContext], Mode]
    """Makes the mode of this topic."""


_TABLE: tuple[Row, ...] = (
    Row(lambda topic: topic.sink is not None, _of("sink", "SinkMode")),
    Row(lambda topic: topic.kind is POLLED, _of("poll", "PolledMode")),
    Row(lambda topic: topic.kind.in_order, lambda topic, context: MessageMode([topic], context, in_order=True)),
    # A message that has ended a process comes again with another offset, and brokers count its attempts: nothing is
    # noted down of what is in flight.
    Row(lambda topic: topic.is_popped, lambda topic, context: MessageMode([topic], replace(context, journal=None))),
)
"""The first row that takes a topic has it; topics without a row are consumed concurrently."""


class Modes:
    """The consume modes of one group."""

    def __init__(self, context: ModeContext) -> None:
        self.callers: Callers = context.callers
        """What calls the handlers of all of them."""
        self.concurrent: MessageMode = MessageMode(context.member.topics, context)
        """Of topics without a row, and of messages that come back for a retry: they have lost their order anyway."""
        self._of_topics: dict[str, Mode] = {}
        for topic in context.member.topics:
            if (row := next((row for row in _TABLE if row.takes(topic)), None)) is not None:
                self._of_topics[topic.topic] = row.new(topic, context)

    def __repr__(self) -> str:
        return f"<Modes of {len(self._of_topics)} topics, others are concurrent>"

    def of(self, topic: str) -> Mode:
        """How this topic is consumed."""
        return self._of_topics.get(topic, self.concurrent)
