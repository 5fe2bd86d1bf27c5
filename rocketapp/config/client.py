"""Options of the connection to a cluster: table `[client]`."""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.config.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How one process talks to one cluster."""

    name_server: str = option("", "Addresses of the name servers, host:port, separated by `;`.", java="namesrvAddr")
    instance_name: str = option(
        "", "Name in the client id: ip@name#pid#digits; empty: ip@pid#digits. Ids stay unique.", java="instanceName"
    )
    poll_name_server_interval: float = option(
        30.0, "Seconds between route polls.", java="pollNameServerInterval", least=0.1
    )
    heartbeat_interval: float = option(
        30.0, "Seconds between heartbeats to every broker.", java="heartbeatBrokerInterval", least=0.1
    )
    request_timeout: float = option(
        3.0,
        "Seconds that routes, heartbeats, member lists and offset queries may take.",
        java="mqClientApiTimeout",
        least=0.1,
    )
    dial_timeout: float = option(3.0, "Seconds that connecting may take.", java="connectTimeoutMillis", least=0.1)
    max_frame_bytes: int = option(
        16_777_216, "Largest frame that is accepted, or sent.", java="com.rocketmq.remoting.frameMaxLength", least=1024
    )
    max_inflated_bytes: int = option(16_777_216, "Largest body that a compressed message may inflate to.", least=1024)
