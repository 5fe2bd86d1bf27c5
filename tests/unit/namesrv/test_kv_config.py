"""Texts that administrators keep in the name server."""

from __future__ import annotations

import msgspec

from rocketapp.wire.codes import RequestCode, ResponseCode
from tests.unit.broker.asking import running
from tests.unit.scripted import in_virtual_time


@in_virtual_time
async def test_a_text_is_kept_over_a_kill_shown_and_deleted() -> None:
    async with running() as broker:
        client = await broker.client()
        place = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
        assert (await client.ask(RequestCode.GET_KV_CONFIG, place)).code == ResponseCode.QUERY_NOT_FOUND
        answer = await client.ask(RequestCode.PUT_KV_CONFIG, {**place, "value": "broker-a:4"})
        assert answer.code == ResponseCode.SUCCESS
        await broker.restart(killed=True)
        client = await broker.client()
        assert (await client.ask(RequestCode.GET_KV_CONFIG, place)).fields == {"value": "broker-a:4"}
        answer = await client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"})
        assert msgspec.json.decode(answer.body) == {"table": {"orders": "broker-a:4"}}
        assert (await client.ask(RequestCode.DELETE_KV_CONFIG, place)).code == ResponseCode.SUCCESS
        assert (await client.ask(RequestCode.GET_KV_CONFIG, place)).code == ResponseCode.QUERY_NOT_FOUND
        answer = await client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"})
        assert answer.code == ResponseCode.QUERY_NOT_FOUND


@in_virtual_time
async def test_they_have_a_bound() -> None:
    async with running() as broker:
        client = await broker.client()
        large = {"namespace": "space", "value": "x" * 250_000}
        for key in "abcd":
            assert (await client.ask(RequestCode.PUT_KV_CONFIG, {**large, "key": key})).code == ResponseCode.SUCCESS
        answer = await client.ask(RequestCode.PUT_KV_CONFIG, {**large, "key": "e"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        answer = await client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "space"})
        assert list(msgspec.json.decode(answer.body)["table"]) == ["a", "b", "c", "d"]
