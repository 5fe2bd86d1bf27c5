"""What redelivery needs of a producer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rocketapp.model.outgoing import SendResult


class RawSender(Protocol):
    """Sends a message exactly as told: the producer of the app does."""

    async def send_raw(
        self,
        topic: str,
        body: bytes,
        properties: Mapping[str, str],
        *,
        broker_name: str | None,
        reconsume_times: int,
        max_reconsume_times: int,
        sys_flag: int,
        flag: int,
        timeout: float | None,
    ) -> SendResult:
        """Stored when it returns; SendRefused, SendUnknown, TransportError, BrokerError or NoRouteError otherwise."""
        ...
