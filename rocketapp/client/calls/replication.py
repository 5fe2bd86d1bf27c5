"""What a broker and its copies have: how far the log, the offsets and the delayed messages are."""

from __future__ import annotations

from rocketapp.client.calls.ask import answer_to
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.requests.admin import decode_topic_configs
from rocketapp.wire.requests.replication import (
    HaStatus,
    decode_delay_offsets,
    decode_ha_status,
    decode_log_begin,
    decode_offsets,
    decode_timer_checkpoint,
)


async def ha_status(connection: Connection, timeout: float) -> HaStatus:
    """Where the log of this broker ends, and who copies it."""
    return decode_ha_status(await answer_to(connection, RequestCode.GET_BROKER_HA_STATUS, timeout))


async def log_begin(connection: Connection, timeout: float) -> int:
    """Where the log of this broker begins."""
    return decode_log_begin(await answer_to(connection, RequestCode.GET_BROKER_RUNTIME_INFO, timeout))


async def topics_kept(connection: Connection, timeout: float) -> frozenset[str]:
    """The names of the topics that this broker keeps."""
    return frozenset(decode_topic_configs(await answer_to(connection, RequestCode.GET_ALL_TOPIC_CONFIG, timeout)))


async def all_offsets(connection: Connection, timeout: float) -> dict[tuple[str, int], int]:
    """The offset that each group has committed, by `topic@group` and queue."""
    return decode_offsets(await answer_to(connection, RequestCode.GET_ALL_CONSUMER_OFFSET, timeout))


async def delay_offsets(connection: Connection, timeout: float) -> dict[int, int]:
    """How many messages of each delay level were delivered."""
    return decode_delay_offsets(await answer_to(connection, RequestCode.GET_ALL_DELAY_OFFSET, timeout))


async def timer_progress(connection: Connection, timeout: float) -> tuple[int, int]:
    """Up to when timers were delivered, in milliseconds since 1970, and up to where their queue was read."""
    return decode_timer_checkpoint(await answer_to(connection, RequestCode.GET_TIMER_CHECK_POINT, timeout))
