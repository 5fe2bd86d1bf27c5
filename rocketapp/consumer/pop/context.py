"""What all popped queues of a group share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.start_offsets import StartOffsets
from rocketapp.consumer.limits import Limits
from rocketapp.consumer.pausing import Pausing
from rocketapp.consumer.pull.flow_control import FlowControl
from rocketapp.consumer.pull.puller import PullCounters
from rocketapp.consumer.retry.failed_messages import FailedMessages
from rocketapp.consumer.retry.stopping import Stopping
from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.model.event import Observe
from rocketapp.model.message_queue import MessageQueue
from rocketapp.tasks import Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class PopContext:
    """The parts of a group that its popped queues use."""

    group: str
    brokers: Brokers
    limits: Limits
    flow_control: FlowControl
    pausing: Pausing
    starts: StartOffsets
    queues_of: Callable[[MessageQueue], Iterable[MessageQueue]]
    """The queues behind one that stands for all of a broker."""
    redelivery: FailedMessages
    stopping: Stopping
    stall_reasons: StallReasons
    counters: PullCounters
    tasks: Tasks
    observe: Observe
    epochs: Iterator[int]
    begun: asyncio.Future[None]
    """Done when messages may be asked for."""
    max_inflated_bytes: int
    refresh: Callable[[str], None]
    """Asks for the topic's route soon."""
