"""Which brokers are passed over for a while because sends to them took long or failed.

The table is Java's (MQFaultStrategy). A broker that is passed over is still used when all others are, too.
"""

from __future__ import annotations

_TABLE = ((15.0, 30.0), (5.0, 10.0), (3.0, 6.0), (1.8, 5.0), (0.55, 2.0))
"""Seconds that a send took at least: seconds for which its broker is passed over. The largest comes first."""
FAILED = 10.0
"""Seconds that a failed send counts as."""


def pause_after(latency: float) -> float:
    """Seconds for which a broker is passed over after a send of `latency` seconds."""
    return next((pause for least, pause in _TABLE if latency >= least), 0.0)


class BrokerLatency:
    """The brokers that one producer avoids for a while, because they were slow or failed."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        """When each may be used again; brokers that may be used now are left out as they are found."""

    def sent(self, broker_name: str, latency: float, now: float) -> None:
        """A send was answered after `latency` seconds."""
        pause = pause_after(latency)
        if pause:
            self._until[broker_name] = now + pause
        else:
            self._until.pop(broker_name, None)

    def failed(self, broker_name: str, now: float) -> None:
        """A send got no answer, or a refusal that another broker may not give."""
        self._until[broker_name] = now + pause_after(FAILED)

    def is_available(self, broker_name: str, now: float) -> bool:
        """Whether this broker is not avoided now."""
        until = self._until.get(broker_name)
        if until is None:
            return True
        if until > now:
            return False
        del self._until[broker_name]
        return True
