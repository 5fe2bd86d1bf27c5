"""Marks in Redis.

A key holds `d` when its message is done, else `r` and the holder; it expires when the mark or the
lease does. Each step is a script, because "who has it" and "take it" must be one step. Several
keys are one round trip, a script each, so that the error of one key leaves the others alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from rocketapp.plugin import CLAIMED, DONE, Answer, Claim, MarkState, Tasks

_CLAIM: Final = """
local mark = redis.call('GET', KEYS[1])
if mark and mark ~= ARGV[1] then
    return {mark, redis.call('PTTL', KEYS[1])}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {}
"""
_RELEASE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""
_DONE_MARK: Final = b"d"
_RUNNING: Final = b"r"


Command = tuple[Any, ...]
"""The words of a command, as Redis has them."""


class RedisStore:
    """An IdempotencyStore in Redis, for consumers on any number of machines.

    One task talks to Redis over one connection. What handlers ask for while it waits for an answer
    goes into the next round trip: sixty-four handlers at once cost one, not sixty-four.
    """

    def __init__(self, url: str, *, prefix: str = "rocketapp:", timeout: float = 2.0) -> None:
        """`timeout`: seconds for a connection, and for one answer."""
        self._redis = Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout)
        self._prefix = prefix
        self._tasks = Tasks()
        self._waiting: list[tuple[list[Command], asyncio.Future[list[Any]]]] = []
        self._has_waiting: asyncio.Event
        self._is_open = False

    def __repr__(self) -> str:
        place = self._redis.connection_pool.connection_kwargs
        return f"<RedisStore {place.get('path') or place.get('host')}>"

    async def open(self) -> None:
        """Nothing is asked of Redis before the first claim: it may be away for a moment."""
        self._has_waiting = asyncio.Event()
        self._tasks.start(self._talk(), "idempotency in Redis")
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        await self._tasks.close()
        await self._redis.aclose()

    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        return [_answer(found) for found in await self._run(_CLAIM, claims, _milliseconds(lease))]

    async def release(self, claims: Sequence[Claim]) -> None:
        await self._run(_RELEASE, claims)

    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        await self._ask([("SET", self._prefix + key, _DONE_MARK, "PX", _milliseconds(expiry)) for key in keys])

    async def _run(self, script: str, claims: Sequence[Claim], *arguments: int) -> list[Any]:
        return await self._ask(
            [("EVAL", script, 1, self._prefix + key, _RUNNING + holder.encode(), *arguments) for key, holder in claims]
        )

    async def _ask(self, commands: list[Command]) -> list[Any]:
        """Raises redis.RedisError; then the commands have perhaps been carried out."""
        if not self._is_open:
            raise RedisError("the store is closed")
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((commands, future))
        self._has_waiting.set()
        return await future

    async def _talk(self) -> None:
        while True:
            await self._has_waiting.wait()
            self._has_waiting.clear()
            asked, self._waiting = self._waiting, []
            found = await self._execute([command for commands, _ in asked for command in commands])
            for commands, future in asked:
                answers = list(islice(found, len(commands)))
                failed = next((answer for answer in answers if isinstance(answer, Exception)), None)
                if future.done():
                    continue
                if failed is None:
                    future.set_result(answers)
                else:
                    # One exception for each caller: a raised one collects the traceback of its caller.
                    future.set_exception(RedisError(f"{type(failed).__name__}: {failed}"))

    async def _execute(self, commands: list[Command]) -> Iterator[Any]:
        """All of them in one round trip; the answer to each, or its error."""
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        try:
            return iter(await pipeline.execute(raise_on_error=False))
        except Exception as error:
            return repeat(error)


def _answer(found: list[Any]) -> Answer:
    if not found:
        return CLAIMED
    mark, milliseconds = found
    if mark == _DONE_MARK:
        return DONE
    return Answer(MarkState.RUNNING, mark[1:].decode(), max(0, milliseconds) / 1000)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
