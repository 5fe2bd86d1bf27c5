"""Texts that administrators keep in the name server: by namespace and key.

Codes PUT_KV_CONFIG 100, GET_KV_CONFIG 101, DELETE_KV_CONFIG 102, GET_KVLIST_BY_NAMESPACE 219 (Java: KVConfigManager).
Each change is on disk before it is answered, in the form of Java's kvConfig.json. One is made after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from rocketapp.errors import BrokerError, StoreError
from rocketapp.transport.answers import CHANGE_CLUSTER, DONE, SEE_CLUSTER, Answer, answers
from rocketapp.transport.connection import Connection
from rocketapp.wire import fields as read
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command

MOST_BYTES = 1_048_576
"""Most bytes of all namespaces, keys and values together: each change writes them all."""


class KvConfig:
    """The namespaces with their keys and values."""

    def __init__(self, saved: Mapping[str, Any], save: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        """`save`: writes the saved form, where the event loop does not wait for the disk."""
        self._save = save
        self._is_changing = asyncio.Lock()
        self._table = {
            str(space): {str(key): str(value) for key, value in keys.items()}
            for space, keys in (saved.get("configTable") or {}).items()
        }

    def __repr__(self) -> str:
        return f"<KvConfig of {len(self._table)} namespaces>"

    @answers(RequestCode.PUT_KV_CONFIG, needs=CHANGE_CLUSTER)
    def put(self, connection: Connection, command: Command) -> Answer:
        return self._change(*_place(command), read.text(command.fields, "value"))

    @answers(RequestCode.GET_KV_CONFIG, needs=SEE_CLUSTER)
    def get(self, connection: Connection, command: Command) -> Answer:
        space, key = _place(command)
        value = self._table.get(space, {}).get(key)
        if value is None:
            raise BrokerError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {space} Key: {key}")
        return {"value": value}

    @answers(RequestCode.DELETE_KV_CONFIG, needs=CHANGE_CLUSTER)
    def delete(self, connection: Connection, command: Command) -> Answer:
        return self._change(*_place(command), None)

    @answers(RequestCode.GET_KVLIST_BY_NAMESPACE, needs=SEE_CLUSTER)
    def all_of(self, connection: Connection, command: Command) -> Answer:
        space = read.text(command.fields, "namespace")
        if space not in self._table:
            raise BrokerError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {space}")
        return msgspec.json.encode({"table": self._table[space]})

    async def _change(self, space: str, key: str, value: str | None) -> bytes:
        """Let this key have that value, or none."""
        async with self._is_changing:
            keys = {**self._table.get(space, {}), key: value}
            changed = {name: text for name, text in keys.items() if text is not None}
            table = {name: texts for name, texts in {**self._table, space: changed}.items() if texts}
            if len(msgspec.json.encode(table)) > MOST_BYTES:
                raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the name server keeps {MOST_BYTES} bytes of such texts")
            try:
                await self._save({"configTable": table})
            except OSError as error:
                raise StoreError(f"kvConfig.json cannot be written: {error}") from error
            self._table = table
        return DONE


def _place(command: Command) -> tuple[str, str]:
    return read.text(command.fields, "namespace"), read.text(command.fields, "key")
