"""Queue locks for orderly consumers: codes LOCK_BATCH_MQ 41, UNLOCK_BATCH_MQ 42 (Java: RebalanceLockManager).

A lock that is granted to a new owner is on disk before the answer is sent, so a restart does not lose it.
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

    def lock(self, connection: Connection, command: Command) -> Command:
        wanted = LockBody.decode(command.body)
        core, now = self._core, self._core.monotonic()
        known = {queue for queue in wanted.queues if core.locks.owner(wanted.group, queue, now) == wanted.client_id}
        granted = core.locks.lock(wanted.group, wanted.queues, wanted.client_id, now)
        try:
            core.save_locks()
        except StoreError:
            # A renewal may be granted all the same: the saved lock outlives its holder's trust for a while, and
            # the next renewal saves again.
            if taken := [queue for queue in granted if queue not in known]:
                core.locks.unlock(wanted.group, taken, wanted.client_id)
                raise
        return Command.response(command, ResponseCode.SUCCESS, body=encode_locked(granted))

    def unlock(self, connection: Connection, command: Command) -> Command:
        given_up = LockBody.decode(command.body)
        self._core.locks.unlock(given_up.group, given_up.queues, given_up.client_id)
        self._core.save_locks_soon()
        return Command.response(command, ResponseCode.SUCCESS)
