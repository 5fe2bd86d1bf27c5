"""The plugin that keeps a group's offsets in the user's database, in place of the brokers.

A row of a queue has the epoch that was given out last: a write of an earlier one finds no row, and is refused. Rows are
found by a hash, because some databases take `orders` and `Orders` for one name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from hashlib import blake2b

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from rocketapp import MessageQueue, RocketAppError
from rocketapp.plugin import OffsetStore, Taken, hookimpl
from rocketapp_sqlalchemy.database import Database
from rocketapp_sqlalchemy.tables import offsets


class Offsets:
    """`RocketApp(plugins=[Offsets(database)])`: all members of the group need it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __repr__(self) -> str:
        return f"<Offsets in {self._database!r}>"

    @hookimpl
    def offset_store(self) -> OffsetStore:
        return self

    async def open(self) -> None:
        await self._database.create_missing_tables()

    async def close(self) -> None:
        """The engines are the user's."""

    async def take(self, group: str, queue: MessageQueue) -> Taken:
        take, refusal = partial(_take, group, queue), None
        taken: Taken | None = await self._database.run(take)
        if taken is None:
            # In a transaction of its own: two that look and then write would wait for each other.
            try:
                await self._database.run(partial(_add, group, queue, None))
            except IntegrityError as error:  # another process was first, or the table refuses such a row
                refusal = error
            taken = await self._database.run(take)
        if taken is None:
            raise RocketAppError(f"{self!r} cannot add a row for {queue}: {refusal}") from refusal
        return taken

    async def read(self, group: str, queue: MessageQueue) -> int | None:
        statement = select(offsets.c.committed).where(offsets.c.key == _key(group, queue))
        offset: int | None = await self._database.run(lambda connection: connection.execute(statement).scalar())
        return offset

    async def write(self, group: str, queue: MessageQueue, offset: int, epoch: int) -> bool:
        write = partial(_write, group, queue, epoch, {"committed": offset})
        try:
            # Epoch 0 is for a queue that is not known.
            is_written: bool = await self._database.run(write if epoch else partial(_add, group, queue, offset))
        except IntegrityError:
            return False
        return is_written

    async def remember(self, group: str, queue: MessageQueue, landmark: str, epoch: int) -> bool:
        is_written: bool = await self._database.run(partial(_write, group, queue, epoch, {"landmark": landmark}))
        return is_written


def _add(group: str, queue: MessageQueue, offset: int | None, connection: Connection) -> bool:
    """Raises IntegrityError when it is known."""
    row = {"consumer_group": group, "topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id}
    connection.execute(insert(offsets).values(key=_key(group, queue), epoch=0, committed=offset, **row))
    return True


def _take(group: str, queue: MessageQueue, connection: Connection) -> Taken | None:
    """None when it is not known."""
    is_it = offsets.c.key == _key(group, queue)
    # What was added behind this is not looked at: its epoch would be another process's.
    if not connection.execute(update(offsets).where(is_it).values(epoch=offsets.c.epoch + 1)).rowcount:
        return None
    row = connection.execute(select(offsets.c.epoch, offsets.c.committed, offsets.c.landmark).where(is_it)).one()
    return Taken(*row)


def _write(
    group: str, queue: MessageQueue, epoch: int, values: Mapping[str, int | str], connection: Connection
) -> bool:
    is_last = (offsets.c.key == _key(group, queue)) & (offsets.c.epoch == epoch)
    return bool(connection.execute(update(offsets).where(is_last).values(**values)).rowcount)


def _key(group: str, queue: MessageQueue) -> str:
    text = "\0".join((group, queue.topic, queue.broker_name, str(queue.queue_id)))
    return blake2b(text.encode(), digest_size=16).hexdigest()
