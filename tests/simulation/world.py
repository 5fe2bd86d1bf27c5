"""What all parts of a simulated cluster share: its seed, its topics, its network, and its history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from rocketapp.broker.broker import USUAL_PACE, Pace
from rocketapp.model import event as events
from rocketapp.model.outcome import Decision
from rocketapp.model.policy import Breaker
from rocketapp.model.subscription import ALL_TAGS, Start
from rocketapp.wire.record import Message
from tests.random_network import RandomNetwork
from tests.simulation.history import Event, Fault

if TYPE_CHECKING:
    from tests.simulation.brokers import NamedBroker

ADDRESS, GROUP = "10.0.0.1:9876", "group"
NAME_SERVER = "10.0.0.9:9876"
FEW_ROUNDS = Pace(traffic=60.0, index=60.0)
"""Of brokers that nobody asks for their traffic, or for messages by their keys: a third of what they do is that."""
TAGS = "abc"
"""Of messages whose tag matters."""
Behave = Callable[[Message], Any]
"""What the handler of a message does. Of an async topic it returns an awaitable; of a sync topic it is called in a
simulated thread and may `block`."""


@dataclass(frozen=True, kw_only=True)
class Topic:
    """What the group subscribes to."""

    name: str
    tags: str = ALL_TAGS
    orderly: bool = False
    keyed: bool = False
    """In order by the key with which messages are sent."""
    broadcast: bool = False
    """Each member gets every message; then all topics are so."""
    by_tag: bool = False
    """Each of TAGS has a handler of its own; every second one is sync."""
    by_hand: bool = False
    """Its handlers commit by hand."""
    sync: bool = False
    retries: int = 2
    start: Start = "first"
    concurrency: int = 64
    rate: float | None = None
    breaker: Breaker | None = None
    popped: bool = False
    every: float | None = None
    """Polled: seconds between the calls for a queue."""
    batch: int | None = None
    sink: bool = False
    """A plugin consumes it, which acknowledges what it has stored."""

    @property
    def is_guarded(self) -> bool:
        """Its messages may wait by the will of its handler."""
        return self.rate is not None or self.breaker is not None


@dataclass(kw_only=True)
class World:
    """What all parts of a simulation share."""

    seed: int
    topics: tuple[Topic, ...]
    behave: Behave
    block: Behave | None = None
    """What the handlers of sync topics do."""
    decide: Callable[[Message], Decision | None] = lambda message: None
    """What handlers that commit by hand say."""
    latency: float = 0.01
    pace: Pace = USUAL_PACE
    """Of the brokers."""
    consumer: Mapping[str, Any] = field(default_factory=dict)
    """Options of ConsumerConfig that are not the defaults."""
    history: list[Event] = field(default_factory=list)
    observed: list[tuple[float, str, events.Event]] = field(default_factory=list)
    """What the engine told, with the time and the name of the process."""
    brokers: list[NamedBroker] = field(default_factory=list)
    name_server: str = ADDRESS
    """Where clients ask for routes: the one broker, or the name server of several."""

    def __post_init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.network = RandomNetwork(self.random("network"), latency=self.latency)

    def random(self, name: str) -> Random:
        """A source of chance for each part, so that one that draws more does not shift the others."""
        return Random(f"{self.seed}/{name}")

    def fault(self, kind: str, who: str = "") -> None:
        self.history.append(Fault(self.loop.time(), kind, who))


def number_of(body: bytes) -> int:
    """Bodies are decimal numbers."""
    return int(body)
