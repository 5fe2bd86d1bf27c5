"""Read stored messages, outside of any group and without changing any offset."""

from __future__ import annotations

from collections.abc import AsyncIterator

from rocketapp.admin.cluster import AdminCluster
from rocketapp.client.calls import offsets, pull
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import ALL_TAGS
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION, PullRequest

GROUP = "TOOLS_CONSUMER"
"""RocketMQ's own group for tools: every broker knows it, and nothing of it is stored."""
MOST_MESSAGES = 32
"""Of one pull; brokers give no more."""
PULL_TIMEOUT = 15.0


async def limits(cluster: AdminCluster, queues: list[MessageQueue]) -> dict[MessageQueue, range]:
    """The offsets that each queue holds now."""
    first = await cluster.for_queues(queues, offsets.min_offset)
    end = await cluster.for_queues(queues, offsets.max_offset)
    return {queue: range(max(first[queue], 0), max(end[queue], first[queue], 0)) for queue in queues}


async def read(cluster: AdminCluster, queue: MessageQueue, begin: int, end: int) -> AsyncIterator[list[Message]]:
    """The messages of a queue from `begin` to before `end`, in batches. Deleted ones are passed over.

    Raises BrokerError when the queue may not be read.
    """
    while begin < end:
        request = PullRequest(
            group=GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=begin,
            max_messages=min(MOST_MESSAGES, end - begin),
            sys_flag=FLAG_SUBSCRIPTION,
            commit_offset=0,
            suspend_ms=0,
            sub_version=0,
            expression=ALL_TAGS,
            broker_name=queue.broker_name,
        )
        connection = await cluster.connection(queue.broker_name)
        result = pull.read(await pull.start(connection, request, PULL_TIMEOUT), connection.peer)
        messages = [message for message in decode_records(result.body, queue) if begin <= message.offset < end]
        if messages:
            yield messages
        following = max(result.next_offset, messages[-1].offset + 1 if messages else begin)
        if following <= begin:
            return
        begin = following
