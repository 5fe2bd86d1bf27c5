"""What the parts of one group share. It imports none of the parts that use it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

from rocketapp.client.instance import ClientInstance
from rocketapp.clock import Clock
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.brokers import Brokers
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.limits import Limits
from rocketapp.consumer.pausing import Pausing
from rocketapp.consumer.stalls import StallReasons
from rocketapp.model.event import Observe
from rocketapp.model.stats import HandlerStats
from rocketapp.model.subscription import SubscriptionData
from rocketapp.tasks import Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """This process as a member of one group."""

    name: str
    """The group's name."""
    client_id: str
    client: ClientInstance
    """This process as brokers and name servers know it, with the routes of all topics."""
    broadcast: bool
    """Every member gets every message: queues, offsets and failures are its own. Otherwise members share them."""
    subscriptions: Mapping[str, SubscriptionData]
    """What brokers hear of every topic, the retry topic included if there is one."""
    retry_topic: str | None
    """Where failed messages come back; None: the group has none."""
    brokers: Brokers
    config: ConsumerConfig
    """The settings of the start; `limits` has those in force."""
    limits: Limits
    stats: GroupStats
    stalls: StallReasons
    """Why queues stand still."""
    waits: StallReasons
    """Queues that wait for a free call of their handler. They are pulled all the same."""
    pausing: Pausing
    observe: Observe
    """Receives what happens, as events."""
    tasks: Tasks
    """The owner of what runs beside its caller until the group stops."""
    clock: Clock
    random: Random
    max_inflated_bytes: int = 16_777_216
    """The most bytes that a compressed message may become."""

    def __repr__(self) -> str:
        return f"<Member {self.client_id} of {self.name}>"


class GroupStats:
    """The counters of a group: one set per handler, and one per topic for messages that match no handler."""

    def __init__(self, handlers: Iterable[Handler]) -> None:
        self.handlers: tuple[Handler, ...] = tuple(handlers)
        """Each carries its own counters."""
        self.unmatched: dict[str, HandlerStats] = {}
        """By topic."""
        self.pulls: int = 0
        """Pulls that brokers have answered."""
        self.pulled: Counter[str] = Counter()
        """By topic the messages of their answers."""

    def __repr__(self) -> str:
        return f"<GroupStats of {len(self.handlers)} handlers: {self.total()}>"

    def count_unmatched(self, topic: str, count: int) -> None:
        """`count` messages of this topic were finished because no handler subscribes to their tag."""
        self.unmatched.setdefault(topic, HandlerStats()).unmatched += count

    def total(self) -> HandlerStats:
        """The sum of all counters."""
        return sum((*(handler.stats for handler in self.handlers), *self.unmatched.values()), HandlerStats())
