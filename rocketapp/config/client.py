"""Options of the connection to a cluster: table `[client]`."""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.config.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How one process talks to one cluster."""

    name_server: str = option(
        "",
        "Addresses of the name servers, host:port, separated by `;`; or the URL of an address server that names them.",
        java="namesrvAddr",
    )
    instance_name: str = option(
        "", "Name in the client id: ip@name#pid#digits; empty: ip@pid#digits. Ids stay unique.", java="instanceName"
    )
    poll_name_server_interval: float = option(
        30.0, "Seconds between route polls.", java="pollNameServerInterval", least=0.1
    )
    heartbeat_interval: float = option(
        30.0, "Seconds between heartbeats to every broker.", java="heartbeatBrokerInterval", least=0.1, most=60.0
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
    tls: bool = option(False, "Encrypt every connection, and check who the servers are.", java="tls.enable")
    ca_file: str = option(
        "",
        "PEM file of the authorities that may have issued the servers' certificates; empty: those of the system.",
        java="tls.client.trustCertPath",
    )
    tls_server_name: str = option(
        "", "Name that the certificates of all servers carry; empty: each the host of its address."
    )
    tls_verify: bool = option(
        True,
        "Check the certificates of servers. False trusts any server: for a test cluster whose certificate is random.",
        java="tls.client.authServer",
    )
    cert_file: str = option("", "PEM file of this client's own certificate.", java="tls.client.certPath")
    key_file: str = option("", "PEM file of its key; empty: the key is in `cert_file`.", java="tls.client.keyPath")
    key_password: str = option("", "Password that opens the key.", java="tls.client.keyPassword", secret=True)
    access_key: str = option("", "Name that requests are signed in; empty: they are not signed.", java="accessKey")
    secret_key: str = option("", "Secret that requests are signed with.", java="secretKey", secret=True)
    namespace: str = option(
        "", "Namespace of all topics and groups: brokers know them as `NAMESPACE%name`.", java="namespace"
    )
    security_token: str = option(
        "", "Token of temporary access keys, sent with every request.", java="securityToken", secret=True
    )
    message_trace: bool = option(
        False, "Write message trace: what is sent and handled, for `queryMsgTraceById`.", java="enableMsgTrace"
    )
    trace_topic: str = option(
        "", "Topic that message trace is written to; empty: RMQ_SYS_TRACE_TOPIC.", java="traceTopic"
    )
