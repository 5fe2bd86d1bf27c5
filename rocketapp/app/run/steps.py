"""Steps of a start that know nothing of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from rocketapp.errors import SetupError
from rocketapp.tasks import scope

if TYPE_CHECKING:
    from rocketapp.consumer.group.offset_store import OffsetStore


async def opened(store: OffsetStore) -> None:
    """Open a plugin's store. Raises SetupError with what it raises."""
    try:
        await store.open()
    except Exception as error:
        raise SetupError("", f"the offset store did not open: {type(error).__name__}: {error}") from error


async def all_of(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All at once; when one fails the others are ended before its error goes on."""
    async with scope(*works) as tasks:
        await asyncio.gather(*tasks)
