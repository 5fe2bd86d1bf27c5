"""Which consume mode a topic has. A new mode is one more case here, and a file of its own.

A mode is imported when a topic needs it: importing all would slow down every start.
"""

from __future__ import annotations

from dataclasses import replace

from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.consumer.modes.delivery import Mode, ModeContext
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.workers.callers import Callers
from rocketapp.model.subscription import POLLED


def mode_of(topic: ConsumedTopic, context: ModeContext) -> Mode | None:
    """The mode of this topic alone; None: it is consumed concurrently, together with other topics."""
    if topic.sink is not None:
        from rocketapp.consumer.modes.sink import SinkMode

        return SinkMode(topic, context)
    if topic.kind is POLLED:
        from rocketapp.consumer.modes.poll import PolledMode

        return PolledMode(topic, context)
    if topic.kind.in_order:
        return MessageMode([topic], context, in_order=True)
    if topic.is_popped:
        # A message that has ended a process comes again with another offset, and brokers count its attempts: nothing
        # is noted down of what is in flight.
        return MessageMode([topic], replace(context, journal=None))
    return None


class Modes:
    """The consume modes of one group."""

    def __init__(self, context: ModeContext) -> None:
        self.callers: Callers = context.callers
        """What calls the handlers of all of them."""
        self.redelivery: Redelivery = context.redelivery
        """What sends back the messages on which they fail."""
        self.concurrent: MessageMode = MessageMode(context.member.topics, context)
        """Of topics without their own mode, and of messages that come back for a retry: their order is lost anyway."""
        modes = {topic.topic: mode_of(topic, context) for topic in context.member.topics}
        self._of_topics: dict[str, Mode] = {topic: mode for topic, mode in modes.items() if mode is not None}

    def __repr__(self) -> str:
        return f"<Modes of {len(self._of_topics)} topics, others are concurrent>"

    def of(self, topic: str) -> Mode:
        """The mode of this topic."""
        return self._of_topics.get(topic, self.concurrent)
