"""Makes the assignments of one group: what consumes each of its queues, by how its topic is consumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketapp.consumer.assignment import Assignment
from rocketapp.consumer.assignment_context import AssignmentContext
from rocketapp.consumer.group.owned import Owned
from rocketapp.consumer.ways.delivery import Way
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import SubscriptionData

if TYPE_CHECKING:
    from rocketapp.consumer.pop.context import PopContext
    from rocketapp.consumer.pop.way import PopWay

    Popping = tuple[PopWay, PopContext]
    """How topics are consumed whose messages brokers hand out one by one."""


class AssignmentMaker:
    """Makes the assignments of one group."""

    def __init__(
        self,
        subscriptions: Mapping[str, SubscriptionData],
        ways: Mapping[str, Way],
        context: AssignmentContext,
        popping: Popping | None,
    ) -> None:
        self._subscriptions, self._ways, self._context, self._popping = subscriptions, ways, context, popping

    def new(self, queue: MessageQueue, *, handed_over: bool) -> Owned:
        """See `group.owned.NewAssignments`."""
        topic = queue.topic
        if self._popping is not None and topic in self._popping[0].tables:
            from rocketapp.consumer.pop.assignment import PopAssignment

            return PopAssignment(queue, self._subscriptions[topic], *self._popping)
        return Assignment(queue, self._subscriptions[topic], self._ways[topic], self._context, handed_over=handed_over)
