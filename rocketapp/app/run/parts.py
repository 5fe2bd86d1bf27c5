"""The parts of a running app, typed, and how clients, producers and consumers are made of them.

The container says which object each part is; these functions say where it goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from rocketapp.app.settings.settings import Settings
from rocketapp.client.instance import ClientInstance
from rocketapp.client.traces import trace_topic_of
from rocketapp.clock import Clock
from rocketapp.config.client import ClientConfig
from rocketapp.consumer.blocked_loop import BlockedLoop
from rocketapp.consumer.crashes import Crashes
from rocketapp.consumer.group.offset_store import OffsetStore
from rocketapp.consumer.parts import ConsumerParts
from rocketapp.consumer.pull.flow_control import FlowControl
from rocketapp.consumer.workers.threads import MakeThreads
from rocketapp.model.event import Observe
from rocketapp.producer.producer import Producer
from rocketapp.state.allocation.average import AVERAGE
from rocketapp.state.allocation.strategy import Allocation
from rocketapp.transport.connection import Connection
from rocketapp.transport.stream import Dial
from rocketapp.transport.tls import Tls
from rocketapp.transport.watched import NewConnection
from rocketapp.transport.web import ReadUrl, read_url


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenParts:
    """What every start of an app gives to its container."""

    settings: Settings
    observe: Observe
    dial: Dial
    clock: Clock
    random: Random
    threads: MakeThreads
    new_connection: NewConnection = Connection
    crashes: Crashes | None = None
    worker: int | None = None
    tls: Tls | None = None
    allocation: Allocation = AVERAGE
    read_url: ReadUrl = read_url
    offset_store: OffsetStore | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppParts:
    """What all clients, producers and consumers of one run share, as the container provides it."""

    settings: Settings
    observe: Observe
    dial: Dial
    clock: Clock
    random: Random
    threads: MakeThreads
    new_connection: NewConnection
    flow_control: FlowControl
    blocked_loop: BlockedLoop
    crashes: Crashes | None = None
    worker: int | None = None
    tls: Tls | None = None
    allocation: Allocation = AVERAGE
    read_url: ReadUrl = read_url
    offset_store: OffsetStore | None = None


def make_flow_control(settings: Settings) -> FlowControl:
    """One for all groups of an app."""
    return FlowControl(settings.consumer.cache_max_bytes)


def make_client(parts: AppParts, *, config: ClientConfig) -> ClientInstance:
    """The view of one cluster; `config` names its name server."""
    return ClientInstance(
        config=config,
        dial=parts.dial,
        clock=parts.clock,
        random=parts.random,
        observe=parts.observe,
        new_connection=parts.new_connection,
        tls=parts.tls,
        read_url=parts.read_url,
    )


def make_producer(parts: AppParts, *, client: ClientInstance, group: str) -> Producer:
    """The producer of one cluster."""
    return Producer(
        client=client,
        config=parts.settings.producer,
        group=group,
        clock=parts.clock,
        random=parts.random,
        observe=parts.observe,
        max_inflated_bytes=parts.settings.client.max_inflated_bytes,
        trace_topic=trace_topic_of(parts.settings.client),
    )


def make_consumer_parts(parts: AppParts, *, client: ClientInstance, producer: Producer, cluster: str) -> ConsumerParts:
    """What the consumers of one cluster are made of."""
    return ConsumerParts(
        client=client,
        producer=producer,
        config=parts.settings.consumer,
        clock=parts.clock,
        random=parts.random,
        observe=parts.observe,
        flow_control=parts.flow_control,
        blocked_loop=parts.blocked_loop,
        threads=parts.threads,
        crashes=parts.crashes,
        cluster=cluster,
        worker=parts.worker,
        allocation=parts.allocation,
        offset_store=parts.offset_store,
        traces=producer.traces if parts.settings.client.enable_msg_trace else None,
        app_version=parts.settings.app.version,
        max_inflated_bytes=parts.settings.client.max_inflated_bytes,
    )
