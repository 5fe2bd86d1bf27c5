"""What can go wrong with a sink."""

from __future__ import annotations

from collections.abc import Mapping

from rocketapp import MessageQueue, RocketAppError


class SinkError(RocketAppError):
    """A sink cannot go on as things are. The text says what has to be done."""


class FencedError(RocketAppError):
    """Another owner has published this sequence number; nothing of ours is in the table. Load, and look again."""


class RefusedRowsError(SinkError):
    """The table refuses rows of these messages; nothing of their batch is in it."""

    def __init__(self, places: Mapping[tuple[MessageQueue, int], str]) -> None:
        """`places`: the queue and the offset of each, with the reason."""
        super().__init__(places)
        self.places = places

    def __str__(self) -> str:
        (queue, offset), reason = next(iter(self.places.items()))
        return f"{queue} #{offset} is refused by the table: {reason}"


class GapError(SinkError):
    """The table lacks what lies below these rows: it was set back, and its queues have to be read again from there."""

    def __init__(self, queue: MessageQueue, has: int, start: int) -> None:
        super().__init__(
            f"{queue}: the table ends before #{has}, and these rows begin at #{start}: they are read again"
        )
        self.queue = queue


class TransformError(RocketAppError):
    """The user's function has raised."""


class TooManyBadRowsError(SinkError):
    """Too much of some queues cannot be rows: they stop, and the others go on."""

    def __init__(self, queues: Mapping[MessageQueue, str]) -> None:
        """`queues`: those that stop, each with the reason."""
        super().__init__("; ".join(queues.values()))
        self.queues = queues
