"""Offsets in the user's database keep the promises of an offset store."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from rocketapp import Message, MessageQueue, RocketApp, RocketAppError
from rocketapp.testing import TestApp, check_offset_store
from rocketapp_sqlalchemy import Database, Offsets


async def test_the_store_keeps_its_promises(engine: Engine) -> None:
    await check_offset_store(lambda: Offsets(Database(engine)))


async def test_the_store_keeps_its_promises_with_an_async_engine(async_engine: AsyncEngine) -> None:
    await check_offset_store(lambda: Offsets(Database(async_engine)))


def test_virtual_time_waits_for_the_answers_of_an_async_engine(tmp_path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}", poolclass=NullPool)
    app = RocketApp("shop", plugins=[Offsets(Database(engine))])

    @app.subscribe("orders", orderly=True)
    async def settle(message: Message) -> None: ...

    with TestApp(app) as t:
        for number in range(3):
            t.publish("orders", str(number))
            t.advance(minutes=5)
        t.settle(limit=60.0)
        assert len(t.handled) == 3


async def test_a_table_that_refuses_the_row_of_a_queue_is_an_error_with_its_words(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}", poolclass=NullPool)
    offsets = Offsets(Database(engine))
    await offsets.open()
    with engine.begin() as connection:
        refuse = "BEFORE INSERT ON rocketapp_offsets BEGIN SELECT RAISE(ABORT, 'no tenant'); END"
        connection.execute(text(f"CREATE TRIGGER refusing {refuse}"))
    with pytest.raises(RocketAppError, match=r"cannot add a row for orders@broker-a:0: .*no tenant"):
        await offsets.take("shop", MessageQueue("orders", "broker-a", 0))
