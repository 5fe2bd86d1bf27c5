"""A handler, or its policy, has said Stop: its topic is paused until it is resumed."""

from __future__ import annotations

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.pausing import Pausing
from rocketapp.state.redelivery import Failure


def stop_topic(pausing: Pausing, handler: Handler, failure: Failure) -> None:
    """Pause the handler's topic; the reason names both."""
    pausing.pause(handler.subscription.topic, f"{handler.name} said stop: {failure}")
