"""Offsets in the user's database keep the promises of an offset store."""

from __future__ import annotations

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from rocketapp.testing import check_offset_store
from rocketapp_sqlalchemy import Database, Offsets


async def test_the_store_keeps_its_promises(engine: Engine) -> None:
    await check_offset_store(lambda: Offsets(Database(engine)))


async def test_the_store_keeps_its_promises_with_an_async_engine(async_engine: AsyncEngine) -> None:
    await check_offset_store(lambda: Offsets(Database(async_engine)))
