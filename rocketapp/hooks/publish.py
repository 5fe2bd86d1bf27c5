"""What a plugin puts around publishing: around one call of `publish`, `publish_many` or `publish_one_way`.

The plugins are asked once, at start. Without a wrapper a publish goes to the producer directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rocketapp.model.outgoing import Outgoing, SendResult


@dataclass(frozen=True, slots=True)
class Sending:
    """One call that publishes; `dataclasses.replace` makes a changed one for the next callable."""

    messages: Sequence[Outgoing]
    """One for "send" and "one_way". Their bodies are encoded and their arguments checked."""
    kind: Literal["send", "many", "one_way"]
    """`publish` and `publish_sync`, `publish_many`, or `publish_one_way`."""
    cluster: str
    """The cluster that receives them; empty for the unnamed one."""
    timeout: float | None
    """Seconds in total; None is `producer.send_timeout`. Only "send" has one."""


PublishCall = Callable[[Sending], Awaitable[Sequence[SendResult]]]
"""Sends the messages. Returns one result for each, in their order; none of "one_way"."""
PublishWrapper = Callable[[PublishCall], PublishCall]
"""Receives the next callable once, at start, and returns the one that is called per publish."""
