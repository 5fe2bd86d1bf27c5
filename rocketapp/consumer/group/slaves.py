"""Slaves stand in for a master that cannot be reached: messages, members and offsets are read from them.

Nothing is written to a slave: an offset that it takes is replaced by its master's at the next synchronisation, and
locks are a master's alone. What a slave does not know is never read as "none": it may be behind.
"""

from __future__ import annotations

from rocketapp.client.instance import ClientInstance
from rocketapp.model.event import Observe, ReadFromSlave
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import MASTER_ID
from rocketapp.state import replicas
from rocketapp.transport.connection import Connection


class Slaves:
    """The slaves of a cluster, as one group reads them."""

    def __init__(self, *, group: str, client: ClientInstance, observe: Observe) -> None:
        self._group, self._client, self._observe = group, client, observe
        self._reading: dict[str, set[MessageQueue]] = {}
        self._stand_ins: dict[str, Connection] = {}
        """By broker what stood in for its master at the last look."""

    def __repr__(self) -> str:
        return f"<Slaves {self._group}: {', '.join(sorted(self._reading)) or 'not read'}>"

    def reader(self, broker_name: str, wanted: int) -> int:
        """The copy to pull from when a broker suggested `wanted`."""
        return replicas.reader(self._client.copies(broker_name).keys(), wanted)

    def instead(self, broker_name: str) -> int | None:
        """The slave to read while the master cannot be reached; None when no route names one."""
        return next(iter(self._ids(broker_name)), None)

    def connection(self, broker_name: str) -> Connection | None:
        """The connection to a slave, if the master is not connected and a slave is."""
        copies = self._client.copies(broker_name)
        master = copies.get(MASTER_ID)
        if master is not None and self._client.living_connection(master) is not None:
            return None
        living = (self._client.living_connection(copies[one]) for one in self._ids(broker_name))
        return next((connection for connection in living if connection is not None), None)

    def is_new_stand_in(self, broker_name: str) -> bool:
        """Whether a slave stands in that did not at the last call: it may not know all members yet."""
        connection, before = self.connection(broker_name), self._stand_ins.pop(broker_name, None)
        if connection is None:
            return False
        self._stand_ins[broker_name] = connection
        return connection is not before

    def of_lost_master(self, queue: MessageQueue) -> Connection | None:
        """The same, if the name server does not name the master any more either: it is away for longer."""
        route = self._client.routes.get(queue.topic)
        broker = None if route is None else route.broker(queue.broker_name)
        return None if broker is None or broker.master is not None else self.connection(queue.broker_name)

    def is_master_back(self, broker_name: str) -> bool:
        """Whether the master is connected (again)."""
        master = self._client.broker_address(broker_name)
        return master is not None and self._client.living_connection(master) is not None

    def begin(self, queue: MessageQueue, broker_id: int) -> None:
        """This queue is read from a slave. Told once per broker."""
        queues = self._reading.setdefault(queue.broker_name, set())
        if not queues:
            self._observe(ReadFromSlave(self._group, queue.broker_name, broker_id))
        queues.add(queue)

    def end(self, queue: MessageQueue) -> None:
        """This queue is not read from a slave any more."""
        queues = self._reading.get(queue.broker_name)
        if queues is None or queue not in queues:
            return
        queues.discard(queue)
        if not queues:
            del self._reading[queue.broker_name]
            self._observe(ReadFromSlave(self._group, queue.broker_name, MASTER_ID))

    def _ids(self, broker_name: str) -> list[int]:
        copies = self._client.copies(broker_name)
        connected = [one for one, address in copies.items() if self._client.living_connection(address) is not None]
        return replicas.slaves(copies.keys(), connected)
