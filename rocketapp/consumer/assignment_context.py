"""What all assignments of a group share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.group_offsets import GroupOffsets
from rocketapp.consumer.group.leases import Leases
from rocketapp.consumer.group.offsets import Offsets
from rocketapp.consumer.group.start_offsets import StartOffsets
from rocketapp.consumer.limits import Limits
from rocketapp.consumer.pausing import Pausing
from rocketapp.consumer.pull.flow_control import FlowControl
from rocketapp.consumer.pull.puller import PullContext
from rocketapp.model.message_queue import MessageQueue
from rocketapp.tasks import Tasks


@dataclass(frozen=True, slots=True)
class AssignmentContext:
    """The parts of a group that its assignments use."""

    group: str
    brokers: Brokers
    offsets: Offsets
    store: GroupOffsets
    limits: Limits
    flow_control: FlowControl
    pausing: Pausing
    topics: tuple[str, ...]
    """The topics of the group, without its retry topic."""
    pull: PullContext
    starts: StartOffsets
    leases: Leases
    tasks: Tasks
    epochs: Iterator[int]
    begun: asyncio.Future[None]
    """Done when pulls may start."""
    recall: Callable[[MessageQueue], Awaitable[None]]
    """Learns what the owner of a locked queue before has counted."""
    taken: Callable[[MessageQueue], list[asyncio.Future[Any]]]
    """Calls that run here for messages of a queue which its owner has handed to us."""
