"""Read a topic as its messages come, outside of any group: nothing is committed."""

from __future__ import annotations

import asyncio
import logging
import math
from random import Random
from typing import Literal, TypedDict

from rocketapp.app.places import place_of_call
from rocketapp.app.settings.settings import Settings
from rocketapp.client.instance import ClientInstance
from rocketapp.consumer.following import Following
from rocketapp.errors import SetupError
from rocketapp.model.event import Event, LoopFailed, StandingStill
from rocketapp.model.names import topic_problem
from rocketapp.model.numbers import is_number
from rocketapp.model.subscription import parse_tags
from rocketapp.wire.record import Message

log: logging.Logger = logging.getLogger("rocketapp.client")


class ReadOptions(TypedDict, total=False):
    """`messages` takes these."""

    tags: str
    """`"paid || refunded"`; `"*"` (default) is all of them."""
    start: Literal["first", "last"]
    """The oldest message of each queue, or (default) what comes from now on."""
    idle: float | None
    """Seconds without a message after which the loop ends; None (default) goes on for ever."""


class Reading:
    """One topic, read once; made before the first message is asked for, so that its arguments are checked then."""

    def __init__(
        self, client: ClientInstance, settings: Settings, random: Random, topic: str, options: ReadOptions
    ) -> None:
        """Raises SetupError, with the line of the call, for an argument that it does not take."""
        place = place_of_call()
        self._idle = _checked(topic, options, place)
        try:
            tags = parse_tags(options.get("tags", "*"))
        except ValueError as error:
            raise SetupError(place, f"tags={options.get('tags')!r}: {error}") from None
        self._following = Following(
            client,
            settings.consumer,
            topic,
            tags,
            from_first=options.get("start") == "first",
            max_inflated_bytes=settings.client.max_inflated_bytes,
            random=random,
            observe=tell,
            say=log.warning,
        )

    def start(self) -> None:
        """Begin to pull."""
        self._following.start()

    async def next(self) -> list[Message]:
        """Messages as they were pulled, from one queue and in its order; none at the end."""
        try:
            async with asyncio.timeout(self._idle):
                return await self._following.next()
        except TimeoutError:
            return []

    async def stop(self) -> None:
        """Pull no more. May be called again."""
        await self._following.stop()


def tell(event: Event) -> None:
    """What keeps a client from going on is logged: nothing else tells it to a script that waits."""
    if isinstance(event, StandingStill):
        log.warning("%s: %s", event.queue, event.reason)
    elif isinstance(event, LoopFailed):
        log.warning("%s: %s", event.loop, event.error)


def _checked(topic: object, options: ReadOptions, place: str) -> float | None:
    problem = topic_problem(topic) if isinstance(topic, str) else f"give a topic, not {topic!r}"
    if problem is not None:
        raise SetupError(place, f"messages: {problem}")
    known = ReadOptions.__annotations__
    for name in options:
        if name not in known:
            raise SetupError(place, f"messages takes no keyword {name!r}: it takes {', '.join(known)}")
    if options.get("start", "last") not in ("first", "last"):
        raise SetupError(place, f'start={options.get("start")!r}: give "first" or "last"')
    idle = options.get("idle")
    if idle is not None and not (is_number(idle) and 0 < idle < math.inf):
        raise SetupError(place, f"idle={idle!r}: give seconds above 0, or None to go on for ever")
    return idle
