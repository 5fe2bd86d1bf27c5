"""What the group asks of a queue that it owns."""

from __future__ import annotations

from typing import Protocol

from rocketapp.consumer.handler import Handler
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message


class Owned(Protocol):
    """One owned queue: an assignment."""

    is_orderly: bool
    process_queue: ProcessQueue[Message] | None
    is_clean: bool

    @property
    def is_ending(self) -> bool: ...

    def end(self, *, patience: float | None = None) -> None: ...

    def cut(self) -> None: ...

    def apply_pauses(self) -> None:
        """The pauses of the group have changed."""
        ...

    def in_hand(self) -> list[tuple[Handler, Message]]: ...

    async def look_whether_overtaken(self) -> None: ...

    def overtaken(self) -> None: ...

    async def run(self) -> None: ...


class NewAssignments(Protocol):
    """Makes assignments."""

    def new(self, queue: MessageQueue, *, handed_over: bool) -> Owned:
        """An assignment that does not run yet. `handed_over`: another member may still work on the queue."""
        ...
