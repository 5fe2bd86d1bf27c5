"""What a slave refuses: everything that stores a message or changes a table, which only its master does.

What is read is answered, and offsets may be committed while the master is away (Java: PullMessageProcessor,
SendMessageProcessor, EndTransactionProcessor, AdminBrokerProcessor).
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketapp.broker.request_dispatch import SENDS, Process
from rocketapp.errors import BrokerError
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command

_REFUSED: Mapping[int, ResponseCode] = {
    **dict.fromkeys(SENDS, ResponseCode.SYSTEM_BUSY),
    RequestCode.END_TRANSACTION: ResponseCode.SLAVE_NOT_AVAILABLE,
    **dict.fromkeys(
        (
            RequestCode.CONSUMER_SEND_MSG_BACK,
            RequestCode.RECALL_MESSAGE,
            RequestCode.POP_MESSAGE,
            RequestCode.ACK_MESSAGE,
            RequestCode.BATCH_ACK_MESSAGE,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            RequestCode.LOCK_BATCH_MQ,
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            RequestCode.DELETE_TOPIC_IN_BROKER,
            RequestCode.CLEAN_UNUSED_TOPIC,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            RequestCode.SET_MESSAGE_REQUEST_MODE,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        ),
        ResponseCode.SYSTEM_ERROR,
    ),
}


def of_slave(table: Mapping[int, Process]) -> dict[int, Process]:
    """The processors of a slave."""
    return {code: _refuse if code in _REFUSED else process for code, process in table.items()}


def _refuse(connection: Connection, command: Command) -> Command:
    raise BrokerError(_REFUSED[command.code], "[REJECTREQUEST]this broker is a slave: ask its master")
