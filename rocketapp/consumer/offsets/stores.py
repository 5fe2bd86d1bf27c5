"""Where the offsets of a group are kept: at the brokers, in a plugin's store, or in a file of this member.

The commits of a group know one of them. That of a plugin arrives through the hook `offset_store`; brokers hear what it
holds, so that tools see how far the group is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar

from rocketapp.client.calls.offsets import Committed
from rocketapp.consumer.brokers import GroupOffsets
from rocketapp.consumer.member import Member
from rocketapp.errors import OvertakenError, RequestTimeoutError, TransportError
from rocketapp.model.message_queue import MessageQueue

T = TypeVar("T")
_WHO = "offset store"


class Taken(NamedTuple):
    """What a session of a queue begins with."""

    epoch: int
    """Higher than that of every session before, of all processes together; 1 or more."""
    offset: int | None
    """What was stored last; None when nothing ever was."""
    landmark: str | None = None
    """What `remember` stored last, if the store has that method."""


class OffsetStore(Protocol):
    """Keeps how far each queue of each group is done, for all processes of the group.

    An offset says that everything below it is done. Each time that a process begins with a queue it takes it, and gets
    an epoch; with it, it writes until another process takes the queue. So a process that was cut off or stood still
    cannot set the offset of its successor back: the store refuses what an older epoch writes.

    Every method is called on the event loop and must not block it; it answers or raises within
    `consumer.commit_timeout`. When it raises, the question stays open: the error is told in the log, and the store is
    asked again. A method that raises, or that did not answer in time, has perhaps been carried out.

    One more method may be there: `async def remember(group, queue, landmark, epoch) -> bool` keeps a text of at most
    255 ASCII characters, or an empty one, in place of the one before, and answers as `write` does. `take` returns it.
    By it a member notices, after a restart, that its offset is of a broker that was replaced since.
    """

    async def open(self) -> None:
        """Called once, before the first queue is taken. What it raises stops the start of the app."""
        ...

    async def close(self) -> None:
        """Called once, after the last write, and when `open` has raised."""
        ...

    async def take(self, group: str, queue: MessageQueue) -> Taken:
        """A new epoch, stored for good before it is returned, and the offset.

        When it raises, the queue is not consumed: it is taken again a second later. An offset that cannot be read is
        not None: None lets the group begin where its brokers, or `start=`, say.
        """
        ...

    async def read(self, group: str, queue: MessageQueue) -> int | None:
        """What was stored last, by any process; None when nothing ever was."""
        ...

    async def write(self, group: str, queue: MessageQueue, offset: int, epoch: int) -> bool:
        """Returns True when the offset is stored so that no crash takes it back, a lower one than before as well.

        False, with nothing stored, when a higher epoch has been given out. Epoch 0 is the start position of a group:
        it is stored only if nothing was, and its queue was never taken. Writing the same twice is as writing it once.
        """
        ...


class PluginOffsets(GroupOffsets):
    """A plugin's offset store as a `GroupOffsets`."""

    travels: bool = False

    def __init__(self, store: OffsetStore, member: Member) -> None:
        self._store, self._group, self._brokers = store, member.name, member.brokers
        self._timeout = member.config.commit_timeout
        """Seconds that any answer may take, as the contract says. The engine gives brokers less where an old answer
        would mislead it; here epochs keep late writers out.
        """
        self._epochs: dict[MessageQueue, int] = {}
        self._remember: Callable[[str, MessageQueue, str, int], Awaitable[bool]] | None
        self._remember = getattr(store, "remember", None)
        self._landmarks: dict[MessageQueue, str] = {}
        """What the store holds of them; empty for none."""

    def __repr__(self) -> str:
        return f"<PluginOffsets of {self._group}: {len(self._epochs)} queues taken>"

    async def take(self, queue: MessageQueue) -> None:
        taken = await self._ask(self._store.take(self._group, queue), None)
        self._epochs[queue], landmark = taken.epoch, taken.landmark or ""
        if landmark != self._landmarks.get(queue, ""):
            # Otherwise it is ours, which may be void by now: the next commit stores another.
            self._brokers.goes_on_from(queue, landmark)
        self._landmarks[queue] = landmark

    async def committed(self, queue: MessageQueue, *, timeout: float | None = None) -> int | None:
        return await self._ask(self._store.read(self._group, queue), timeout)

    async def committed_for_start(self, queue: MessageQueue) -> Committed:
        """The offset in the store, or at the brokers for a group that had its offsets there before."""
        known = await super().committed_for_start(queue)
        return await self._brokers.committed_for_start(queue) if known.offset is None else known

    async def commit(self, queue: MessageQueue, offset: int, *, timeout: float | None = None) -> None:
        epoch, landmark = self._epochs.get(queue, 0), self._brokers.landmarks.get(queue)
        text = (landmark and landmark.text()) or ""
        if text:  # before: after a kill between the two, the offset would be taken for one of whatever queue is there
            await self._keep_landmark(queue, text, epoch, timeout)
        if not await self._ask(self._store.write(self._group, queue, offset, epoch), timeout) and epoch:
            raise OvertakenError(str(queue), epoch)
        if not text:  # after: the offset before may be one of the queue that the landmark tells of
            await self._keep_landmark(queue, text, epoch, timeout)

    async def _keep_landmark(self, queue: MessageQueue, text: str, epoch: int, timeout: float | None) -> None:
        if epoch and self._remember is not None and text != self._landmarks[queue]:
            if not await self._ask(self._remember(self._group, queue, text, epoch), timeout):
                raise OvertakenError(str(queue), epoch)
            self._landmarks[queue] = text

    async def _ask(self, answer: Awaitable[T], timeout: float | None) -> T:
        timeout = max(self._timeout, timeout or 0.0)
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise RequestTimeoutError(_WHO, f"no answer within {timeout:g} s") from None
        except Exception as error:
            raise TransportError(_WHO, f"{type(error).__name__}: {error}") from error


def offsets_of(member: Member, store: OffsetStore | None) -> GroupOffsets:
    """The offset store of a group: that of a plugin (`store`), a file for broadcast groups, or the brokers."""
    if member.broadcast:
        from rocketapp.consumer.offsets.local import LocalOffsets, folder_of  # every start would pay for it

        folder = folder_of(member.config.broadcast_dir, cluster=member.cluster, group=member.name)
        return LocalOffsets(member, folder, member.worker)
    return member.brokers if store is None else PluginOffsets(store, member)
