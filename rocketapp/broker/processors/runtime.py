"""Statistics of the broker, single messages by position, and all offsets.

Codes GET_BROKER_RUNTIME_INFO 28, VIEW_MESSAGE_BY_ID 33, GET_ALL_CONSUMER_OFFSET 43 (Java: AdminBrokerProcessor,
QueryMessageProcessor). The requests to change the broker's configuration (25) and to read it, with its paths (26), are
refused on purpose.
"""

from __future__ import annotations

import msgspec

from rocketapp.broker.core import Core
from rocketapp.broker.request_dispatch import Process
from rocketapp.errors import BrokerError
from rocketapp.transport.connection import Connection
from rocketapp.wire import fields as read
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import VERSION, VERSION_NAME, Command
from rocketapp.wire.requests.admin import encode_kv_table


class RuntimeProcessor:
    """Answers requests for the broker's state."""

    def __init__(self, core: Core, started: float) -> None:
        self._core, self._started = core, started

    def table(self) -> dict[int, Process]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.VIEW_MESSAGE_BY_ID: self.message_at,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.all_offsets,
        }

    def runtime_info(self, connection: Connection, command: Command) -> Command:
        core = self._core
        now = core.monotonic()
        now_ms = int(core.clock.now() * 1000)
        put, got = core.traffic.put_rates(now), core.traffic.got_rates(now)
        queues = dict.fromkeys(("send", "pull", "query", "ack"), "0")
        table = {
            "brokerVersionDesc": VERSION_NAME,
            "brokerVersion": str(VERSION),
            "brokerActive": "true",
            "brokerRole": "ASYNC_MASTER",
            "bootTimestamp": str(now_ms - int((now - self._started) * 1000)),
            "runtime": f"[ {int(now - self._started)} s ]",
            "putTps": " ".join(f"{rate:.2f}" for rate in put),
            "getTransferredTps": " ".join(f"{rate:.2f}" for rate in got),
            "msgPutTotalTodayNow": str(core.traffic.put),
            "msgPutTotalTodayMorning": "0",
            "msgPutTotalYesterdayMorning": "0",
            "msgGetTotalTodayNow": str(core.traffic.got),
            "msgGetTotalTodayMorning": "0",
            "msgGetTotalYesterdayMorning": "0",
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(core.store.first_stored_ms() or now_ms),
            "commitLogDiskRatio": "0.0",
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }
        for name, size in queues.items():
            table[f"{name}ThreadPoolQueueSize"] = size
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return Command.response(command, ResponseCode.SUCCESS, body=encode_kv_table(table))

    def message_at(self, connection: Connection, command: Command) -> Command:
        offset = read.int64(command.fields, "offset")
        record = self._core.store.record_at(offset)
        if record is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return Command.response(command, ResponseCode.SUCCESS, fields={}, body=record)

    def all_offsets(self, connection: Connection, command: Command) -> Command:
        body = msgspec.json.encode(self._core.offsets.to_json())
        return Command.response(command, ResponseCode.SUCCESS, body=body)
