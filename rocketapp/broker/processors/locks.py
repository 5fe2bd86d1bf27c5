"""Queue locks for orderly consumers: codes LOCK_BATCH_MQ 41, UNLOCK_BATCH_MQ 42 (Java: RebalanceLockManager).

A lock that is granted to a new owner is on disk before the answer is sent, so a restart does not lose it.
A renewal is answered at once while the saved lock outlives its holder's trust; the next round of saving writes it.
"""

from __future__ import annotations

from rocketapp.broker.core import Core
from rocketapp.broker.permissions import of_locks
from rocketapp.errors import StoreError
from rocketapp.transport.answers import DONE, REFUSES, Answer, answers, response_of
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.locks import LockBody, encode_locked


class LockProcessor:
    """Grants and takes back locks."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @answers(RequestCode.LOCK_BATCH_MQ, needs=of_locks, slave=REFUSES)
    def lock(self, connection: Connection, command: Command) -> Answer:
        core, wanted = self._core, LockBody.decode(command.body)
        group, client_id, now = wanted.group, wanted.client_id, core.monotonic()
        known = {queue for queue in wanted.queues if core.locks.owner(group, queue, now) == client_id}
        granted = core.locks.lock(group, wanted.queues, client_id, now)
        if not core.locks.unsafe(group, granted, client_id, now):
            return encode_locked(granted)

        def saved(error: StoreError | None) -> None:
            unsafe = set(core.locks.unsafe(group, granted, client_id, now))
            core.locks.unlock(group, unsafe - known, client_id)
            safe = [queue for queue in granted if queue not in unsafe]
            found = encode_locked(safe) if safe or error is None else error
            connection.reply(response_of(command, found))

        core.save_locks(saved)
        return None

    @answers(RequestCode.UNLOCK_BATCH_MQ, needs=of_locks, reads=LockBody.decode)
    def unlock(self, given_up: LockBody) -> Answer:
        self._core.locks.unlock(given_up.group, given_up.queues, given_up.client_id)
        self._core.save_locks(None)
        return DONE
