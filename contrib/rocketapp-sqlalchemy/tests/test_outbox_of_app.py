"""Apps and their outboxes: bodies, clusters and marks are as the app declares them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, ClassVar

import msgspec
import pytest
from sqlalchemy import Engine, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from rocketapp import Message, RocketApp
from rocketapp.plugin import PluginError
from rocketapp.testing import Done, TestApp, call_sync
from rocketapp_sqlalchemy import Database, Outbox
from rocketapp_sqlalchemy.tables import marks, metadata, outbox


class Order(msgspec.Struct):
    cents: int


class AvroOrder(msgspec.Struct):
    cents: int
    __avro_schema__: ClassVar[Any] = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "cents", "type": "long"}],
    }


def shop(name: str, database: Database) -> tuple[RocketApp, Outbox]:
    """An app whose orders have a second version, and its outbox."""
    box = Outbox(database)
    app = RocketApp(name, plugins=[database, box])

    @app.upcaster(Order, version=1)
    def in_cents(old: dict[str, Any]) -> dict[str, Any]:
        return {"cents": old["euros"] * 100}

    return app, box


@pytest.mark.parametrize("runs", [True, False], ids=["in the running app", "where the app does not run"])
def test_bodies_are_those_of_the_app(database: Database, engine: Engine, runs: bool) -> None:
    metadata.create_all(engine)
    (app, box), taken = shop("shop", database), list[Order | AvroOrder]()

    @app.subscribe("orders")
    async def take(order: Order) -> None:
        taken.append(order)

    @app.subscribe("avro")
    async def take_avro(order: AvroOrder) -> None:
        taken.append(order)

    def write() -> None:
        with Session(engine) as session, session.begin():
            box.publish(session, "orders", Order(5))
            box.publish(session, "orders", Order(6), content_type="application/msgpack")
            box.publish(session, "avro", AvroOrder(7))

    if not runs:
        write()
    with TestApp(app) as t:
        if runs:
            write()
        t.advance(10)
        assert t.dead == []
        kinds = {one.message.properties.get("content-type") for one in t.handled}
    assert kinds == {None, "application/msgpack", "application/avro"}
    assert sorted(order.cents for order in taken) == [5, 6, 7]


def test_apps_that_share_a_database_write_by_their_own_declarations(database: Database, engine: Engine) -> None:
    metadata.create_all(engine)
    (ours, box), other = shop("shop", database), Outbox(database)
    others = RocketApp("other", plugins=[database, other])
    for app in (ours, others):
        app.subscribe("orders")(lambda message: None)
    with TestApp(others):
        pass  # what ends must not take the first app's codecs away
    with Session(engine) as session, session.begin():
        box.publish(session, "orders", Order(5))
        other.publish(session, "orders", Order(6))
    with engine.connect() as connection:
        stored = [options["properties"] for (options,) in connection.execute(select(outbox.c.options))]
    assert [one.get("payload-version") for one in stored] == ["2", None]


def test_what_a_handler_writes_goes_to_the_cluster_of_its_message_unless_it_names_another(
    database: Database, engine: Engine
) -> None:
    box, taken = Outbox(database), list[str]()
    app = RocketApp("shop", clusters={"eu": "eu:9876"}, plugins=[database, box])

    @app.subscribe("orders", cluster="eu", idempotent=database.once)
    def settle(message: Message, session: Session) -> None:
        box.publish(session, "bills", "follows")
        box.publish(session, "bills", "named", cluster="")

    @app.subscribe("bills", cluster="eu", group="eu")
    async def bill_there(message: Message) -> None:
        taken.append(f"eu: {message.text()}")

    @app.subscribe("bills")
    async def bill_here(message: Message) -> None:
        taken.append(f"unnamed: {message.text()}")

    with TestApp(app) as t:
        t.publish("orders", "1", cluster="eu")
        t.advance(5)
    assert sorted(taken) == ["eu: follows", "unnamed: named"]


def test_where_a_handler_is_tried_nothing_is_taken_out_of_the_outbox(database: Database, engine: Engine) -> None:
    box = Outbox(database)
    app = RocketApp("shop", plugins=[database, box])

    @app.subscribe("orders")
    async def settle(message: Message) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(10):  # the relay of an app that runs looks every second
                await asyncio.Event().wait()

    metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        box.publish(session, "bills", "of an app that runs")
    assert call_sync(settle, "1", app=app) == Done()
    with engine.connect() as connection:
        assert len(connection.execute(select(outbox.c.id)).all()) == 1


def test_an_outbox_belongs_to_one_app(database: Database) -> None:
    box = Outbox(database)
    RocketApp("shop", plugins=[database, box])
    with pytest.raises(PluginError, match="is among the plugins of app 'shop' already: give each app one of its own"):
        RocketApp("other", plugins=[database, box])


def test_without_an_app_a_body_is_bytes_or_str(database: Database) -> None:
    box, session = Outbox(database), Session()
    box.publish(session, "bills", b"1")
    box.publish(session, "bills", "1")
    assert len(session.new) == 2
    with pytest.raises(TypeError, match="of type Order, for an outbox of no app: give bytes or str, or"):
        box.publish(session, "bills", Order(5))


def test_marks_are_swept_until_the_last_app_of_a_database_has_ended(engine: Engine, async_engine: AsyncEngine) -> None:
    database = Database(engine, async_engine, keep=0.0)
    first, second = RocketApp("first", plugins=[database]), RocketApp("second", plugins=[database])
    for app in (first, second):
        app.subscribe("orders")(lambda message: None)
    with TestApp(first) as t:
        with TestApp(second):
            pass
        with engine.begin() as connection:
            connection.execute(marks.insert().values(key="old", done_at=0.0))
        t.advance(minutes=11)
    with engine.connect() as connection:
        assert connection.execute(select(marks.c.key)).all() == []


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_settle_waits_for_the_relay(engine: Engine, async_engine: AsyncEngine, kind: str) -> None:
    database, taken = Database(engine if kind == "sync" else async_engine), list[str]()
    box = Outbox(database)
    app = RocketApp("shop", plugins=[database, box])

    def write(session: Session | AsyncSession) -> None:
        box.publish(session, "bills", "written")

    async def settle(message: Message, session: AsyncSession) -> None:
        write(session)

    def settle_sync(message: Message, session: Session) -> None:
        write(session)

    app.subscribe("orders", idempotent=database.once)(settle_sync if kind == "sync" else settle)

    @app.subscribe("bills")
    async def bill(message: Message) -> None:
        taken.append(message.text())

    with TestApp(app) as t:
        t.publish("orders", "1")
        t.settle()
        assert taken == ["written"]
