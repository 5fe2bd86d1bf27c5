"""Whole apps whose bodies are of every codec that the core has: each is a row of its declared type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pydantic
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from sink_shop import Landing, Order, Shop, all_rows, until

from rocketapp import SetupError
from rocketapp_lake.options import FILES

RECORD = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}


@dataclass
class AvroOrder:
    id: int
    item: str
    __avro_schema__: ClassVar[Any] = RECORD


class Model(pydantic.BaseModel):
    id: int
    item: str


MESSAGE_PACK = msgspec.msgpack.encode({"id": 1, "item": "x"})


@pytest.mark.parametrize(
    ("schema", "codec", "body", "options"),
    [
        (Model, None, Model(id=1, item="x"), {}),
        ("id BIGINT, item STRING", None, {"id": 1, "item": "x"}, {}),
        (pa.schema([("id", pa.int64()), ("item", pa.string())]), None, {"id": 1, "item": "x"}, {}),
        (Order, None, Order(1, "x"), {"content_type": "application/msgpack"}),
        (Order, "msgpack", MESSAGE_PACK, {}),
        ("id BIGINT, item STRING", "application/msgpack", MESSAGE_PACK, {}),
        (AvroOrder, None, AvroOrder(1, "x"), {}),
    ],
)
async def test_a_body_of_each_form_is_a_row(
    shop: Shop, schema: Any, codec: str | None, body: Any, options: dict[str, Any]
) -> None:
    async with shop.app(schema=schema, codec=codec) as app:
        await app.publish(shop.topic, body, **options)
        await shop.has(1)
    assert shop.rows()[0]["item"] == "x"


async def test_protobuf_messages_are_rows_and_other_bytes_are_bad(shop: Shop) -> None:
    async with shop.app(schema=Timestamp, bad_rows="table") as app:
        await app.publish_many(shop.topic, [Timestamp(seconds=5, nanos=1), b"\xff"], order_key="one")
        await until(lambda: len(shop.rows()) == 1)
    assert (shop.rows()[0]["seconds"], shop.rows()[0]["nanos"]) == (5, 1)
    assert [row["_rmq_body"] for row in all_rows(shop.table.with_name("table_bad"))] == [b"\xff"]


@pytest.mark.parametrize("format", [*FILES, "sql"])
async def test_numbers_without_a_sign_are_stored_whole_in_every_format(landing: Landing, format: str) -> None:
    schema, largest = pa.schema([("id", pa.uint32()), ("total", pa.uint64())]), {"id": 2**32 - 1, "total": 2**64 - 1}
    async with landing.app(format, schema=schema) as app:
        await app.publish(landing.shop.topic, largest)
        await until(lambda: len(landing.rows(format)) == 1)
    (row,) = landing.rows(format)
    assert {name: int(row[name]) for name in largest} == largest


async def test_an_upcaster_makes_rows_of_old_versions(shop: Shop) -> None:
    app = shop.app()

    @app.upcaster(Order, version=1)
    def name_item(members: dict[str, Any]) -> dict[str, Any]:
        return {"id": members["number"], "item": "old"}

    async with app:
        await app.publish(shop.topic, {"number": 7})
        await shop.has(7)
    assert shop.rows()[0]["item"] == "old"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"codec": "xml"}, "codec='xml' is unknown: give 'json', 'msgpack', 'protobuf', 'avro', or a content type"),
        ({"codec": "msgpack", "schema": None}, "codec='msgpack' needs a schema="),
        ({"schema": "id NUMBER"}, "bodies cannot become 'number': give another type of Spark"),
    ],
)
def test_what_cannot_be_decoded_is_refused_where_it_is_declared(
    shop: Shop, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SetupError) as caught:
        shop.app(**options)
    assert problem in caught.value.problem


async def test_a_codec_that_does_not_know_the_type_is_refused_as_the_app_starts(shop: Shop) -> None:
    with pytest.raises(SetupError, match="content-type 'application/avro' has no codec for it"):
        async with shop.app(codec="avro"):
            raise AssertionError("it started")
