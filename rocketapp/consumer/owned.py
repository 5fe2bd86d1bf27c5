"""What the group asks of a queue that it owns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message

if TYPE_CHECKING:
    from rocketapp.state.pop_queue import PopQueue


class Owned(Protocol):
    """One owned queue: an assignment."""

    process_queue: ProcessQueue[Message] | None
    """Of the present session; None between two sessions."""
    popped: PopQueue[Message] | None
    """In place of offsets, when a broker hands out its messages one by one; None of a queue that is pulled."""
    is_clean: bool
    """Once it has been given back: whether everything that was started has been finished and committed."""

    @property
    def is_ending(self) -> bool:
        """It is being given back."""
        ...

    def end(self) -> None:
        """Give it back; what was started may finish."""
        ...

    def hand_over(self) -> None:
        """Give it to another living member, which does not wait for long."""
        ...

    def is_of_another(self) -> None:
        """While it is being given back, another member has got it."""
        ...

    def cut(self) -> None:
        """Wait for no handler any more."""
        ...

    def look_at_pulls(self) -> None:
        """Begin anew if its pulls have come to an end by themselves."""
        ...

    def pull_anew(self) -> None:
        """What its pulls ask for has changed."""
        ...

    def limits_changed(self) -> None:
        """Other limits hold for what it pulls."""
        ...

    def move(self, offset: int) -> None:
        """An operator has the group go on at this offset."""
        ...

    async def run(self) -> None: ...


class NewAssignments(Protocol):
    """Makes assignments."""

    def new(self, queue: MessageQueue, *, handed_over: bool) -> Owned:
        """An assignment that does not run yet. `handed_over`: another member may still work on the queue."""
        ...
