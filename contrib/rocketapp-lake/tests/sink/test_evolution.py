"""Whole apps whose declared type grows, one version after another and side by side."""

from __future__ import annotations

from dataclasses import dataclass

from sink_shop import Shop, until


@dataclass
class OrderWithNote:
    """What Order has become."""

    id: int
    item: str
    note: str = ""


async def test_two_versions_of_an_app_side_by_side_lose_nothing_while_the_table_grows(shop: Shop) -> None:
    old = shop.app(evolution="add")
    async with old:
        await shop.send(old, range(40))
        await shop.has(*range(40))
        new = shop.app(evolution="add", schema=OrderWithNote)
        async with new:
            for start in range(40, 120, 20):
                await shop.send(new, range(start, start + 20))
                await shop.has(*range(start + 20))
        await shop.send(old, range(120, 140))
        await shop.has(*range(140))
    assert sorted(row["id"] for row in shop.rows()) == list(range(140))
    assert "note" in shop.rows()[0]


async def test_a_table_does_not_grow_unless_it_is_told_to(shop: Shop) -> None:
    async with shop.app() as app:
        await shop.send(app, [1])
        await shop.has(1)
    async with shop.app(schema=OrderWithNote) as app:
        await shop.send(app, [2])
        await until(lambda: bool(shop.watch.reasons()))
        (reason,) = shop.watch.reasons()
    assert 'evolution="add" lets a table grow by columns' in reason
    async with shop.app(schema=OrderWithNote, evolution="add"):
        await shop.has(1, 2)


async def test_a_version_that_may_not_grow_stands_still_until_the_new_one_takes_over(shop: Shop) -> None:
    async with shop.app() as old:
        await shop.send(old, [1])
        await shop.has(1)
    async with shop.app(schema=OrderWithNote, evolution="add") as new:
        await shop.send(new, [2])
        await shop.has(1, 2)
    async with shop.app() as old:
        await shop.send(old, [3])
        await until(lambda: bool(shop.watch.reasons()))
    async with shop.app(schema=OrderWithNote, evolution="add"):
        await shop.has(1, 2, 3)
