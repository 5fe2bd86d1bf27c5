"""Take back messages that wait for a broker's timer.

The broker stores the recall as a message of its own, and drops both when the time has come. A recall may be repeated.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rocketapp.client.calls.recall import recall
from rocketapp.client.instance import ClientInstance
from rocketapp.errors import BrokerError, ConnectError, NoRouteError, NotRecalled, ProtocolError, TransportError
from rocketapp.producer.targets import Targets
from rocketapp.transport.connection import Connection
from rocketapp.wire.requests.recall import RecallHandle, RecallRequest

if TYPE_CHECKING:
    from rocketapp.producer.trace_writer import TraceWriter


class Recalls:
    """The recalls of one producer group."""

    def __init__(
        self, client: ClientInstance, targets: Targets, *, group: str, tracing: TraceWriter | None = None
    ) -> None:
        self._client, self._targets, self._group, self._tracing = client, targets, group, tracing

    async def recall(self, topic: str, handle: str, timeout: float) -> str:
        """The id of the message that does not come. Raises NotRecalled."""
        try:
            said = RecallHandle.decode(handle)
        except ProtocolError as error:
            raise NotRecalled(topic, str(error)) from None
        # In a namespace brokers know it by its longer name.
        if said.topic != topic and not said.topic.endswith(f"%{topic}"):
            raise NotRecalled(topic, f"the handle is that of a message of topic {said.topic}")
        end = asyncio.get_running_loop().time() + timeout
        connection = await self._connection(topic, said.broker_name, end)
        left = max(end - asyncio.get_running_loop().time(), 0.001)
        try:
            await recall(connection, RecallRequest(topic, handle, self._group, said.broker_name), left)
        except (BrokerError, ConnectError) as error:
            if isinstance(error, BrokerError):
                self._told(topic, said.message_id, success=False)
            raise NotRecalled(topic, str(error)) from None
        except (TransportError, ProtocolError) as error:
            raise NotRecalled(topic, str(error), perhaps=True) from None
        self._told(topic, said.message_id, success=True)
        return said.message_id

    def _told(self, topic: str, message_id: str, *, success: bool) -> None:
        if self._tracing is not None:
            self._tracing.recalled(topic, message_id, success=success)

    async def _connection(self, topic: str, broker_name: str, end: float) -> Connection:
        try:
            async with asyncio.timeout_at(end):
                await self._targets.queues(topic)
                address = self._client.broker_address(broker_name)
                if address is None:
                    raise NotRecalled(topic, f"broker {broker_name}, which holds it, has no master")
                return await self._client.connection(address)
        except (NoRouteError, TransportError) as error:
            raise NotRecalled(topic, str(error)) from None
        except TimeoutError:
            raise NotRecalled(topic, f"broker {broker_name} was not reached in time") from None
