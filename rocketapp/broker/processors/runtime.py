"""Statistics of the broker, single messages by position, and all offsets.

Codes GET_BROKER_CONFIG 26, GET_BROKER_RUNTIME_INFO 28, VIEW_MESSAGE_BY_ID 33, GET_ALL_CONSUMER_OFFSET 43 (Java:
AdminBrokerProcessor, QueryMessageProcessor). The configuration is shown without the paths on this machine; the request
to change it (25) is refused on purpose.
"""

from __future__ import annotations

import msgspec

from rocketapp.broker.core import Core
from rocketapp.broker.store.config_files import DataVersion
from rocketapp.broker.timers import LONGEST_MS
from rocketapp.config.properties import encode, to_java
from rocketapp.errors import BrokerError
from rocketapp.transport.answers import KEYS_ARE_ENOUGH, READ_TOPIC, Answer, answers
from rocketapp.transport.connection import Connection
from rocketapp.wire import fields as read
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import VERSION, VERSION_NAME, Command
from rocketapp.wire.requests.admin import encode_kv_table

_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""DELAY_SECONDS, as Apache RocketMQ writes them."""

_NOT_COUNTED = (
    "msgPutTotalTodayMorning msgPutTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalYesterdayMorning "
    "pageCacheLockTimeMills timerReadBehind timerOffsetBehind timerCongestNum"
)
"""What Apache's tools look for and is not counted here."""


class RuntimeProcessor:
    """Answers requests for the broker's state."""

    def __init__(self, core: Core, started: float) -> None:
        self._core, self._started = core, started
        self._version = DataVersion(timestamp=core.now_ms())

    @answers(RequestCode.GET_BROKER_CONFIG, needs=KEYS_ARE_ENOUGH)
    def config(self, connection: Connection, command: Command) -> Answer:
        """The options, and what is fixed here and an option there."""
        host, _, port = self._core.address.rpartition(":")
        shown = {
            **to_java(self._core.config),
            "brokerId": str(self._core.broker_id),
            "brokerIP1": host.strip("[]"),
            "enablePropertyFilter": "true",
            "listenPort": port,
            "messageDelayLevel": _LEVELS,
            "recallMessageEnable": "true",
            "timerMaxDelaySec": str(LONGEST_MS // 1000),
            "timerWheelEnable": "true",
            "useServerSideResetOffset": "true",
        }
        version = msgspec.json.encode(self._version.to_json()).decode()
        return Command.response(command, ResponseCode.SUCCESS, fields={"version": version}, body=encode(shown))

    @answers(RequestCode.GET_BROKER_RUNTIME_INFO, needs=KEYS_ARE_ENOUGH)
    def runtime_info(self, connection: Connection, command: Command) -> Answer:
        core = self._core
        now = core.monotonic()
        now_ms = core.now_ms()
        put, got = core.traffic.put_rates(now), core.traffic.got_rates(now)
        table = {
            **dict.fromkeys(_NOT_COUNTED.split(), "0"),
            "brokerVersionDesc": VERSION_NAME,
            "brokerVersion": str(VERSION),
            "brokerActive": "true",
            "brokerRole": core.config.role.upper(),
            "bootTimestamp": str(now_ms - int((now - self._started) * 1000)),
            "runtime": f"[ {int(now - self._started)} s ]",
            "putTps": " ".join(f"{rate:.2f}" for rate in put),
            "getTransferredTps": " ".join(f"{rate:.2f}" for rate in got),
            "msgPutTotalTodayNow": str(core.traffic.put),
            "msgGetTotalTodayNow": str(core.traffic.got),
            "earliestMessageTimeStamp": str(core.store.first_stored_ms() or now_ms),
            "commitLogMinOffset": str(core.store.begin_position),
            "commitLogDiskRatio": f"{core.store.files.used():.2f}",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }
        for name in ("send", "pull", "query", "ack"):
            table |= dict.fromkeys((f"{name}ThreadPoolQueueSize", f"{name}ThreadPoolQueueHeadWaitTimeMills"), "0")
        return encode_kv_table(table)

    @answers(RequestCode.VIEW_MESSAGE_BY_ID, needs=READ_TOPIC)
    def message_at(self, connection: Connection, command: Command) -> Answer:
        offset = read.int64(command.fields, "offset")
        record = self._core.store.record_at(offset)
        if record is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return record

    @answers(RequestCode.GET_ALL_CONSUMER_OFFSET, needs=KEYS_ARE_ENOUGH)
    def all_offsets(self, connection: Connection, command: Command) -> Answer:
        return msgspec.json.encode(self._core.offsets.to_json())
