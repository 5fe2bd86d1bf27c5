"""One member consumes and the others stand by: `consumer.allocation = "STANDBY"` with the plugin `Standby()`.

When the member that consumes leaves, or is lost, the next rebalance gives all its queues to another one.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocketapp import MessageQueue
from rocketapp.plugin import Allocation, hookimpl


class OneMember:
    """Assigns all queues to the first member by client id."""

    name = "STANDBY"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        return queues if me == members[0] else ()


class Standby:
    """The plugin that brings this strategy to an app."""

    @hookimpl
    def allocation_strategy(self) -> Allocation:
        return OneMember()
