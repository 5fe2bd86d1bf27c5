"""What a consumer is made of: the parts that all groups of an app get from outside, typed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from rocketapp.client.instance import ClientInstance
from rocketapp.client.traces import Traces
from rocketapp.clock import Clock
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.offsets.stores import OffsetStore
from rocketapp.consumer.pull.flow import FlowControl
from rocketapp.consumer.retry.redelivery import RawSender
from rocketapp.consumer.watch.blocked import BlockedLoop
from rocketapp.consumer.workers.threads import MakeThreads, Threads
from rocketapp.model.event import Observe
from rocketapp.state.allocation import AVERAGE, Allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerParts:
    """The parts of a consumer."""

    client: ClientInstance
    """The member's view of its cluster; it is started and stopped by its owner."""
    producer: RawSender
    """Sends retries and dead letters."""
    config: ConsumerConfig
    clock: Clock
    random: Random
    observe: Observe
    flow_control: FlowControl
    """One for all groups of an app: it bounds the bytes that all of them hold."""
    app_version: str = ""
    """Written into dead letters."""
    max_inflated_bytes: int = 16_777_216
    """The most bytes that a compressed message may become."""
    blocked_loop: BlockedLoop | None = None
    """One for all groups of an app: it names the line that blocks the loop. None: the loop is not watched."""
    journal: Journal | None = None
    """One for all groups of a process: what it has in hand when it dies. None: it is not recorded."""
    cluster: str = ""
    """Its name in the app; empty for the unnamed one."""
    worker: int | None = None
    """Its number among the workers of a run, from 1. None: broadcast groups keep their offsets in memory alone."""
    offset_store: OffsetStore | None = None
    """Keeps the offsets of the groups; None: the brokers do."""
    allocation: Allocation = AVERAGE
    """Which queues of a topic are this member's."""
    traces: Traces | None = None
    """Where calls of handlers are noted down for message trace; None: message trace is off."""
    threads: MakeThreads = Threads
    """(name, most): makes the threads of one sync handler."""
