"""Options of the embedded broker: table `[broker]`."""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.config.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """How the embedded broker serves and stores."""

    listen: str = option(
        "127.0.0.1:9876", "Address to serve on. One that others reach needs `authentication`.", java="listenPort"
    )
    host: str = option(
        "", "Host that clients are told, where others reach the broker; empty: that of `listen`.", java="brokerIP1"
    )
    http: str = option(
        "", "Where `/health`, `/ready`, `/metrics` and a page of the broker are served, host:port. Empty: nowhere."
    )
    name_server: str = option(
        "",
        "Name servers of Apache RocketMQ where the broker registers, host:port;host:port. Empty: it is its own alone.",
        java="namesrvAddr",
    )
    register_interval: float = option(
        30.0, "Seconds between two registrations there.", java="registerNameServerPeriod", least=10.0, most=60.0
    )
    registrations: bool = option(
        False, "Brokers of other names may register with its name server, as Apache RocketMQ's do with theirs."
    )
    ha_port: int = option(
        0,
        "Port where slaves of Apache RocketMQ copy the log, on the host of `listen`. 0: there are none.",
        java="haListenPort",
        least=0,
        most=65535,
    )
    role: str = option(
        "async_master",
        "When a send is answered: before a slave has its bytes, or after (needs `ha_port`). A `slave` takes no sends.",
        java="brokerRole",
        choices=("async_master", "sync_master", "slave"),
    )
    id: int = option(0, "Number of a slave among those of its master, from 1 on.", java="brokerId", least=0)
    master: str = option("", "Where a slave finds its master, host:port. Empty: the name servers say where.")
    slave_timeout: float = option(
        3.0,
        "Seconds that an answer of a `sync_master` waits for a slave; then its code says that none has it.",
        java="slaveTimeout",
        least=0.001,
    )
    dir: str = option(".rocketapp", "Directory of the store.", java="storePathRootDir", least=1)
    cluster: str = option("DefaultCluster", "Name of the cluster.", java="brokerClusterName", least=1)
    name: str = option("broker-a", "Name of the broker.", java="brokerName", least=1)
    auto_create_topics: bool = option(
        True, "A send or subscription to an unknown topic creates it.", java="autoCreateTopicEnable"
    )
    topic_queues: int = option(
        8, "Most queues of an auto-created topic.", java="defaultTopicQueueNums", least=1, most=65535
    )
    segment_bytes: int = option(
        1_073_741_824,
        "Size of a commit-log file, sparse. Apache RocketMQ loads a log only when its own size equals it.",
        java="mappedFileSizeCommitLog",
        least=65_536,
    )
    index_slots: int = option(
        5_000_000, "Slots of a file of the key index.", java="maxHashSlotNum", least=1, most=500_000_000
    )
    index_items: int = option(
        20_000_000, "Keys of a file of the key index, sparse.", java="maxIndexNum", least=4, most=2_000_000_000
    )
    max_message_bytes: int = option(4_194_304, "Largest body that is stored.", java="maxMessageSize", least=1)
    flush: str = option(
        "async",
        "When a send is answered: before or after its bytes are forced to disk.",
        java="flushDiskType",
        choices=("async", "sync"),
    )
    flush_interval: float = option(
        0.5, "Seconds between flushes of the commit log.", java="flushIntervalCommitLog", least=0.01
    )
    offsets_flush_interval: float = option(
        5.0, "Seconds between writes of consumer offsets.", java="flushConsumerOffsetInterval", least=0.05
    )
    reserved_hours: float = option(
        72.0,
        "Hours that messages are kept, read or not. Whole files leave, when all their messages are older.",
        java="fileReservedTime",
        least=0.0,
    )
    delete_when: str = option(
        "04", "Hours of the day (0 to 23, separated by `;`) in which old files are deleted.", java="deleteWhen"
    )
    clean_interval: float = option(
        10.0, "Seconds between two looks for old files and at the disk.", java="cleanResourceInterval", least=0.01
    )
    disk_used_percent: int = option(
        75,
        "Percentage of the disk above which old files are deleted at any hour.",
        java="diskMaxUsedSpaceRatio",
        least=1,
        most=100,
    )
    disk_forced_percent: int = option(
        95,
        "Percentage of the disk above which the oldest file is deleted, however young.",
        java="diskSpaceCleanForciblyRatio",
        least=1,
        most=100,
    )
    disk_full_percent: int = option(
        98,
        "Percentage of the disk above which no message is taken. Reads and acknowledgements go on.",
        java="diskSpaceWarningLevelRatio",
        least=1,
        most=100,
    )
    scrub_rate: int = option(
        2_097_152, "Bytes of the log that are read again each second in search of damage; 0: no search.", least=0
    )
    scrub_interval: float = option(
        604_800.0, "Seconds between the end of one search for damage and the next one.", least=1.0
    )
    client_expiry: float = option(
        120.0, "Seconds without a heartbeat after which a client is forgotten.", java="channelExpiredTimeout", least=1.0
    )
    lock_expiry: float = option(
        60.0,
        "Seconds that a queue lock lives without renewal.",
        java="rocketmq.broker.rebalance.lockMaxLiveTime",
        least=1.0,
    )
    transaction_timeout: float = option(
        6.0,
        "Seconds after which the producer of an open transaction is asked how it ended.",
        java="transactionTimeOut",
        least=0.1,
    )
    transaction_check_interval: float = option(
        10.0, "Seconds between two questions about an open transaction.", java="transactionCheckInterval", least=0.1
    )
    authentication: bool = option(
        False, "Every request must be signed with the access keys of a user.", java="authenticationEnabled"
    )
    authorization: bool = option(
        False, "A user may do what its policies in `config/access.json` allow.", java="authorizationEnabled"
    )
    admin_user: str = option(
        "",
        "A user that may do everything, as JSON: username and password. The file of users wins over it.",
        java="initAuthenticationUser",
        secret=True,
    )
    credentials: str = option(
        "",
        "Access keys with which it asks its master and name servers, as JSON: accessKey and secretKey.",
        java="innerClientAuthenticationCredentials",
        secret=True,
    )
    tls: str = option(
        "permissive",
        "With `cert_file`: whether connections may be encrypted, or must be.",
        java="tls.server.mode",
        choices=("disabled", "permissive", "enforcing"),
    )
    cert_file: str = option("", "PEM file of the certificate; empty: no TLS.", java="tls.server.certPath")
    key_file: str = option("", "PEM file of its key; empty: the key is in `cert_file`.", java="tls.server.keyPath")
    key_password: str = option("", "Password that opens the key.", java="tls.server.keyPassword", secret=True)
