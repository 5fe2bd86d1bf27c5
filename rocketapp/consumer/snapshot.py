"""What one consumer group is doing at this moment, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rocketapp.consumer.assembly import Group
from rocketapp.consumer.group.owned import Owned
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.snapshot import GroupSnapshot, HandlerSnapshot, QueueSnapshot


def of_group(
    group: Group, *, cluster: str, client_id: str, members: int, reasons: Mapping[MessageQueue, str]
) -> GroupSnapshot:
    """`reasons`: the queues that stand still, and why."""
    owned = group.rebalancer.owned
    return GroupSnapshot(
        group=group.name,
        cluster=cluster,
        client_id=client_id,
        members=members,
        pulls=group.pull_counters.pulls,
        handlers=tuple(
            HandlerSnapshot(
                name=each.name,
                topic=each.subscription.topic,
                stats=replace(each.stats),
                slow=group.watch.slow[each.name],
            )
            for each in group.stats.handlers
        ),
        unmatched={topic: stats.unmatched for topic, stats in group.stats.unmatched.items()},
        roll_out=group.guard.text,
        handed_over=group.elsewhere.handed_over,
        queues=tuple(_of_queue(group, queue, owned[queue], reasons.get(queue, "")) for queue in sorted(owned)),
        unassigned=group.rebalancer.problem,
        adjusted={topic: dict(values) for topic, values in group.limits.changed.items()},
        has_assigned=group.rebalancer.has_been_complete,
    )


def _of_queue(group: Group, queue: MessageQueue, owned: Owned, reason: str) -> QueueSnapshot:
    process_queue, popped = owned.process_queue, owned.popped
    return QueueSnapshot(
        queue=queue,
        committed=group.model.offsets.confirmed(queue),
        position=None if process_queue is None or popped is not None else process_queue.end_offset,
        end=None if process_queue is None else process_queue.broker_end,
        unfinished=0 if process_queue is None else len(process_queue),
        unfinished_bytes=0 if process_queue is None else process_queue.size,
        standing_still=reason,
        lease=group.leases.state(queue),
        rest=None if popped is None else popped.rest,
    )
