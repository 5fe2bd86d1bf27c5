"""Queue locks for orderly consumers: codes LOCK_BATCH_MQ 41, UNLOCK_BATCH_MQ 42 (Java: RebalanceLockManager)."""

from __future__ import annotations

from rocketapp.broker.core import Core
from rocketapp.broker.dispatch import Process
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.locks import LockBody, encode_locked


class LockProcessor:
    """Grants and takes back locks."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def table(self) -> dict[int, Process]:
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, connection: Connection, command: Command) -> Command:
        wanted = LockBody.decode(command.body)
        granted = self._core.locks.lock(wanted.group, wanted.queues, wanted.client_id, self._core.monotonic())
        return Command.response(command, ResponseCode.SUCCESS, body=encode_locked(granted))

    def unlock(self, connection: Connection, command: Command) -> Command:
        given_up = LockBody.decode(command.body)
        self._core.locks.unlock(given_up.group, given_up.queues, given_up.client_id)
        return Command.response(command, ResponseCode.SUCCESS)
