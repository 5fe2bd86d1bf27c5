"""Makes the ways of one group from what they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketapp.consumer.crashes import Crashes
from rocketapp.consumer.elsewhere import Elsewhere
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.retry.releasing import Releasing
from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.consumer.stats import GroupStats
from rocketapp.consumer.ways.concurrent import ConcurrentWay
from rocketapp.consumer.ways.delivery import NewCompletion, Prompt
from rocketapp.consumer.ways.keyed import KeyedWay
from rocketapp.consumer.ways.orderly import OrderlyWay
from rocketapp.consumer.ways.plugged import PluggedWay
from rocketapp.consumer.ways.retries_in_place import RetryContext
from rocketapp.consumer.workers.threads import MakeThreads
from rocketapp.model.event import Observe


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """What the ways of one group share."""

    group: str
    topics: Sequence[ConsumedTopic]
    stats: GroupStats
    observe: Observe
    threads: MakeThreads
    crashes: Crashes | None
    elsewhere: Elsewhere
    releasing: Releasing | None
    """Knows messages of concurrent handlers that were sent back while their call ran; None: none are."""
    new_completion: NewCompletion
    prompt: Prompt
    """Called when messages of an orderly queue were finished."""
    locked: bool
    """Queues in order are another member's at other times."""

    def concurrent(self) -> ConcurrentWay:
        return ConcurrentWay(
            self.topics,
            stats=self.stats,
            new_completion=self.new_completion,
            observe=self.observe,
            threads=self.threads,
            group=self.group,
            crashes=self.crashes,
            elsewhere=self.elsewhere,
            releasing=self.releasing,
        )

    def orderly(self, retries: RetryContext) -> OrderlyWay:
        return OrderlyWay(
            self.topics,
            group=self.group,
            stats=self.stats,
            retries=retries,
            observe=self.observe,
            prompt=self.prompt,
            threads=self.threads,
            crashes=self.crashes,
            elsewhere=self.elsewhere,
            locked=self.locked,
        )

    def keyed(self, retries: RetryContext) -> KeyedWay:
        return KeyedWay(
            self.topics,
            stats=self.stats,
            retries=retries,
            observe=self.observe,
            prompt=self.prompt,
            threads=self.threads,
            crashes=self.crashes,
            elsewhere=self.elsewhere,
            locked=self.locked,
        )

    def plugged(self, topic: ConsumedTopic, stall_reasons: StallReasons) -> PluggedWay:
        """The way of a plugin that consumes this topic."""
        return PluggedWay(
            topic.handlers[0],
            topic.plugged_in,
            new_completion=self.new_completion,
            stats=self.stats,
            stall_reasons=stall_reasons,
            observe=self.observe,
        )
