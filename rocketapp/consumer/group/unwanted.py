"""Topics and tags that no member wants: messages of them are done once the members that are not known yet were asked.

A process that was frozen, or has missed that a member joined, gets messages that only that member wants: the broker
hands out by what it heard from the newest one. They are not done before the members have been asked once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_MOST = 1_000
"""Topics and tags that are remembered. Beyond that nothing more is asked: such tags are many, and hardly handled."""


class Unwanted:
    """Topics and tags that no member of one group wants."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        """`ask()` asks the members that are not known yet what they want."""
        self._ask = ask
        self._known: set[tuple[str, bytes | None]] = set()
        self._asking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Unwanted: {len(self._known)}>"

    def is_known(self, topic: str, tag: bytes | None) -> bool:
        """Whether it has been asked since the members changed."""
        return (topic, tag) in self._known or len(self._known) >= _MOST

    async def settle(self, topic: str, tag: bytes | None) -> None:
        """Ask, unless it is known."""
        async with self._asking:
            if not self.is_known(topic, tag):
                await self._ask()
                self._known.add((topic, tag))

    def forget(self) -> None:
        """The members have changed."""
        self._known.clear()
