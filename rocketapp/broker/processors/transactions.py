"""Ends of transactions, and the questions how they have ended.

Codes END_TRANSACTION 37, and to a producer CHECK_TRANSACTION_STATE 39 (Java: EndTransactionProcessor,
AbstractTransactionalMessageCheckListener). A half message arrives as a send: see `processors.send`.
"""

from __future__ import annotations

import asyncio
import contextlib

from rocketapp.broker.core import Core
from rocketapp.errors import ConnectionLostError
from rocketapp.model.names import HALF_TOPIC
from rocketapp.transport.answers import DONE, Answer, answers, on_topic
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import encode_record
from rocketapp.wire.requests.transactions import CheckTransaction, EndTransaction

MOST_PER_TURN = 16
"""Questions that are asked before other requests have their turn, some 0.3 ms."""

_END = (on_topic("Pub", optional=True),)


class TransactionProcessor:
    """Ends transactions, and sends checks for open ones."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @answers(RequestCode.END_TRANSACTION, needs=_END, reads=EndTransaction, slave=ResponseCode.SLAVE_NOT_AVAILABLE)
    def end(self, request: EndTransaction) -> Answer:
        self._core.halves.end(request)
        return DONE

    async def check(self) -> None:
        """Ask one member of each producer group about what it has left open, some in each turn of the loop."""
        core, members = self._core, self._core.producers.members
        due = core.halves.due(core.now_ms(), members)
        for number, (half, record) in enumerate(due, 1):
            if number % MOST_PER_TURN == 0:
                await asyncio.sleep(0)
            question = CheckTransaction(
                half_offset=half.offset,
                physical_offset=half.physical,
                message_id=half.message_id,
                transaction_id=half.message_id,
                topic=HALF_TOPIC,
                broker_name=core.config.name,
            )
            body = encode_record(record._replace(queue_offset=half.offset, physical_offset=half.physical))
            channels = list(members(half.group))
            if not channels:
                continue
            # In turn: one that does not know the topic leaves it to the next.
            channel = channels[half.checks % len(channels)]
            with contextlib.suppress(ConnectionLostError):
                channel.send_one_way(Command(RequestCode.CHECK_TRANSACTION_STATE, question.to_fields(), body))
