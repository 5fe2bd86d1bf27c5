"""Lock queues for one client of a group, for orderly consumption."""

from __future__ import annotations

from collections.abc import Iterable

from rocketapp.client.calls.ask import ask
from rocketapp.model.message_queue import MessageQueue
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.requests.locks import LockBody, decode_locked


async def lock(
    connection: Connection, group: str, client_id: str, queues: Iterable[MessageQueue], timeout: float
) -> set[MessageQueue]:
    """Lock these queues or renew their locks; return the ones that this client holds now."""
    body = LockBody(group, client_id, list(queues)).encode()
    return decode_locked((await ask(connection, RequestCode.LOCK_BATCH_MQ, timeout, body=body)).body)


async def unlock(
    connection: Connection, group: str, client_id: str, queues: Iterable[MessageQueue], timeout: float
) -> None:
    body = LockBody(group, client_id, list(queues)).encode()
    await ask(connection, RequestCode.UNLOCK_BATCH_MQ, timeout, body=body)
