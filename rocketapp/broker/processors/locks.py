"""Queue locks for orderly consumers: codes LOCK_BATCH_MQ 41, UNLOCK_BATCH_MQ 42 (Java: RebalanceLockManager).

A lock that is granted to a new owner is on disk before the answer is sent, so a restart does not lose it.
A renewal is answered at once while the saved lock outlives its holder's trust; the next round of saving writes it.
"""

from __future__ import annotations

from rocketapp.broker.core import Core
from rocketapp.broker.request_dispatch import Process
from rocketapp.errors import StoreError
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

    def lock(self, connection: Connection, command: Command) -> Command | None:
        core, wanted = self._core, LockBody.decode(command.body)
        group, client_id, now = wanted.group, wanted.client_id, core.monotonic()
        known = {queue for queue in wanted.queues if core.locks.owner(group, queue, now) == client_id}
        granted = core.locks.lock(group, wanted.queues, client_id, now)
        if not core.locks.unsafe(group, granted, client_id, now):
            return Command.response(command, ResponseCode.SUCCESS, body=encode_locked(granted))

        def saved(error: StoreError | None) -> None:
            unsafe = set(core.locks.unsafe(group, granted, client_id, now))
            core.locks.unlock(group, unsafe - known, client_id)
            safe = [queue for queue in granted if queue not in unsafe]
            if error is not None and not safe:
                code = ResponseCode.SERVICE_NOT_AVAILABLE
                connection.reply(Command.response(command, code, fields={}, remark=str(error)))
            else:
                connection.reply(Command.response(command, ResponseCode.SUCCESS, body=encode_locked(safe)))

        core.save_locks(saved)
        return None

    def unlock(self, connection: Connection, command: Command) -> Command:
        given_up = LockBody.decode(command.body)
        self._core.locks.unlock(given_up.group, given_up.queues, given_up.client_id)
        self._core.save_locks(None)
        return Command.response(command, ResponseCode.SUCCESS)
