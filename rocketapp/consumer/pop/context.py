"""What all popped queues of a group share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from rocketapp.consumer.member import Member
from rocketapp.consumer.pausing import Pausing
from rocketapp.consumer.pull.flow import FlowControl
from rocketapp.consumer.queues.start import Starts
from rocketapp.consumer.retry.breaker import Stopping
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.model.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class PopContext:
    """The parts of a group that its popped queues use."""

    member: Member
    flow_control: FlowControl
    pausing: Pausing
    starts: Starts
    redelivery: Redelivery
    stopping: Stopping
    epochs: Iterator[int]
    begun: asyncio.Future[None]
    """Done when messages may be asked for."""

    def queues_of(self, popped: MessageQueue) -> list[MessageQueue]:
        """The queues behind one that stands for all of a broker."""
        route = self.member.client.routes.get(popped.topic)
        queues = () if route is None else route.readable_queues(popped.topic)
        return [queue for queue in queues if queue.broker_name == popped.broker_name]
