"""The committed offsets of a group: show them, plan a reset, apply it.

A plan is made first, shown, and applied as shown. For a group without members the offsets are committed as members
would. Running members would overwrite a new offset with their own: they can only be moved by a broker that supports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from rocketapp.admin.cluster import AdminCluster, AdminError, at_once, first_of
from rocketapp.admin.groups import is_broadcasting, live_members
from rocketapp.admin.messages import at_time, limits
from rocketapp.client.calls import admin, offsets
from rocketapp.errors import BrokerError, RocketAppError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.requests.reset_offset import SERVER_SIDE
from rocketapp.wire.requests.statistics import ConnectedClient

Target = Literal["first", "last"] | int | datetime
"""Where a group is to go on: the oldest message, behind the newest, at an offset, at a time."""


@dataclass(frozen=True, slots=True)
class QueueOffset:
    """The offsets of one queue and the group's committed one."""

    queue: MessageQueue
    held: range
    """The offsets that the queue holds."""
    committed: int | None
    """None: the group has not committed here."""

    @property
    def lag(self) -> int:
        """Messages stored and not committed; without a commit, all that are stored."""
        return max(self.held.stop - (self.held.start if self.committed is None else self.committed), 0)


@dataclass(frozen=True, slots=True)
class Move:
    """The present offset of one queue, and the one after the reset."""

    queue: MessageQueue
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned reset; nothing is changed yet."""

    group: str
    moves: tuple[Move, ...]
    members: tuple[ConnectedClient, ...]
    """Those that were alive when it was made."""


async def show_offsets(cluster: AdminCluster, group: str, topic: str | None = None) -> list[QueueOffset]:
    """Every queue of one topic, or of all topics in which the group has offsets. Raises NoRouteError."""
    if topic is not None:
        queues = await cluster.queues(topic)
    else:
        stats = await cluster.from_all(lambda connection, timeout: admin.consume_stats(connection, group, timeout))
        queues = sorted(queue for answer in stats.values() for queue in answer)
    held, committed = await limits(cluster, queues), await _committed(cluster, group, queues)
    return [QueueOffset(queue, held[queue], committed[queue]) for queue in queues]


async def plan_reset(
    cluster: AdminCluster, group: str, topic: str, target: Target, *, only: frozenset[int] = frozenset()
) -> Plan:
    """Plan a reset of a topic's queues to `target`; `only`: the queues with these ids.

    Raises NoRouteError for an unknown topic, ValueError for an offset that a queue does not hold, and AdminError for a
    broadcast group.
    """
    if await is_broadcasting(cluster, group):
        raise AdminError(
            f"group {group} is broadcasting: each member keeps its offsets in a file of its own, and what is set here "
            "would change nothing"
        )
    shown = [one for one in await show_offsets(cluster, group, topic) if not only or one.queue.queue_id in only]
    if isinstance(target, datetime):
        wanted = await at_time(cluster, [one.queue for one in shown], target.timestamp())
    else:
        wanted = {one.queue: _aim(one, target) for one in shown}
    moves = tuple(Move(one.queue, one.committed, wanted[one.queue]) for one in shown)
    return Plan(group, moves, await live_members(cluster, group))


async def apply(cluster: AdminCluster, plan: Plan) -> None:
    """Carry out a plan and verify it. Raises AdminError; BrokerError or TransportError when nothing was set."""
    moves = {move.queue: move.after for move in plan.moves}
    members = await live_members(cluster, plan.group)
    if members:
        await _check_brokers_can_move(cluster, plan.group, members, moves)

    async def set_one(queue: MessageQueue) -> RocketAppError | None:
        try:
            connection = await cluster.connection(queue.broker_name)
            if members:
                await admin.reset_offset(connection, plan.group, queue, moves[queue], cluster.timeout)
            else:
                await offsets.commit(connection, plan.group, queue, moves[queue], cluster.timeout)
        except BrokerError as error:
            if members and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return _live(plan.group, members, queue.broker_name)
            return error
        except RocketAppError as error:
            return error
        return None

    # One that fails keeps no other queue from being set: what was asked for is asked of all.
    results = dict(zip(moves, await at_once(set_one, moves), strict=True))
    failures = {queue: error for queue, error in results.items() if error is not None}
    if len(failures) == len(moves):
        raise next(iter(failures.values()))
    if failures:
        done, reason = len(moves) - len(failures), next(iter(failures.values()))
        raise AdminError(
            f"{done} queues of group {plan.group} are set, and {first_of(failures)} are not ({reason}): "
            "the same command sets those as well"
        )
    if not members and (joined := await live_members(cluster, plan.group)):
        raise _live(plan.group, joined, next(iter(moves)).broker_name)


def _live(group: str, members: Sequence[ConnectedClient], broker: str) -> AdminError:
    """The error that the group has members and this broker cannot move them."""
    names = first_of([f"{one.client_id} at {one.address}" for one in members])
    return AdminError(
        f"group {group} has live members ({names}), which would commit over it, and broker {broker} cannot move them: "
        "stop them, then reset"
    )


async def _check_brokers_can_move(
    cluster: AdminCluster, group: str, members: tuple[ConnectedClient, ...], moves: Mapping[MessageQueue, int]
) -> None:
    """Raises AdminError for a broker that only notifies members, to which only Java's listen.

    A broker whose options cannot be read moves them itself.
    """
    for name in sorted({queue.broker_name for queue in moves}):
        try:
            config = await admin.broker_config(await cluster.connection(name), cluster.timeout)
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            continue
        if config.get(SERVER_SIDE) != "true":
            raise _live(group, members, name)


async def _committed(cluster: AdminCluster, group: str, queues: list[MessageQueue]) -> dict[MessageQueue, int | None]:
    found = await cluster.for_queues(queues, lambda to, queue, timeout: offsets.query(to, group, queue, timeout))
    return {queue: committed.offset for queue, committed in found.items()}


def _aim(one: QueueOffset, target: Literal["first", "last"] | int) -> int:
    if target == "first":
        return one.held.start
    if target == "last":
        return one.held.stop
    if not one.held.start <= target <= one.held.stop:
        raise ValueError(
            f"{one.queue} holds the offsets {one.held.start} to {one.held.stop}, not {target}: "
            "choose one of them, or first, last or a time"
        )
    return target
