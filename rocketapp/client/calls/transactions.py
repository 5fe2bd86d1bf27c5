"""Tell a broker how a transaction has ended."""

from __future__ import annotations

from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.transactions import EndTransaction


def end(connection: Connection, request: EndTransaction) -> None:
    """Write it; brokers do not answer. Raises ConnectionLostError when it did not leave.

    A broker that does not get it asks for it later.
    """
    connection.send_one_way(Command(RequestCode.END_TRANSACTION, request.to_fields()))
