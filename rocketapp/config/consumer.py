"""Options of consuming: table `[consumer]`."""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.config.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How one group pulls and handles messages."""

    pull_batch_size: int = option(32, "Most messages asked for in one pull.", java="pullBatchSize", least=1, most=1024)
    pull_batch_bytes: int = option(
        262_144, "Most bytes asked for in one pull.", java="pullBatchSizeInBytes", least=1024
    )
    long_poll: float = option(
        15.0, "Seconds that a broker holds an empty pull.", java="brokerSuspendMaxTimeMillis", least=0.0
    )
    pull_timeout: float = option(
        30.0,
        "Seconds until a held pull counts as lost; at least 10 more than `long_poll`.",
        java="consumerTimeoutMillisWhenSuspend",
        least=1.0,
    )
    pull_retry_delay: float = option(
        1.0,
        "Seconds until a failed pull is tried again.",
        java="pullTimeDelayMillsWhenException",
        least=0.01,
        most=60.0,
    )
    queue_max_messages: int = option(
        1000, "Unfinished messages of one queue that stop its pulls.", java="pullThresholdForQueue", least=1, most=65535
    )
    queue_max_bytes: int = option(
        104_857_600, "Unfinished bytes of one queue that stop its pulls.", java="pullThresholdSizeForQueue", least=1024
    )
    queue_max_span: int = option(
        2000,
        "Offsets from the lowest unfinished message to the highest pulled one that stop the pulls of a queue "
        "(not `orderly`).",
        java="consumeConcurrentlyMaxSpan",
        least=1,
        most=65535,
    )
    topic_max_messages: int = option(
        0,
        "Unfinished messages of one topic that stop its pulls, divided among its queues here; 0: no limit.",
        java="pullThresholdForTopic",
        least=0,
        most=6_553_500,
    )
    topic_max_bytes: int = option(
        0,
        "Unfinished bytes of one topic that stop its pulls, divided in the same way; 0: no limit.",
        java="pullThresholdSizeForTopic",
        least=0,
    )
    pull_interval: float = option(
        0.0,
        "Seconds between an answer with messages and the next pull of its queue.",
        java="pullInterval",
        least=0.0,
        most=65.535,
    )
    cache_max_bytes: int = option(
        134_217_728,
        "Bytes that all queues of the app hold at most, pulls under way included; one topic of a group at most half.",
        least=1024,
    )
    pop_batch_size: int = option(
        32, 'Most messages asked for in one pop (`mode="pop"`).', java="popBatchNums", least=1, most=32
    )
    pop_max_messages: int = option(
        96,
        "Messages of one topic and broker in flight that stop its pops.",
        java="popThresholdForQueue",
        least=1,
        most=65535,
    )
    pop_invisible_time: float = option(
        60.0,
        "Seconds for which popped messages are hidden from other members; renewed while they are in flight.",
        java="popInvisibleTime",
        least=5.0,
        most=300.0,
    )
    commit_interval: float = option(
        5.0, "Seconds between commits of finished offsets.", java="persistConsumerOffsetInterval", least=0.05
    )
    commit_timeout: float = option(5.0, "Seconds that a commit or an offset query may take.", least=0.1)
    rebalance_interval: float = option(
        20.0,
        "Seconds between rebalances without a notification.",
        java="rocketmq.client.rebalance.waitInterval",
        least=0.1,
        most=50.0,
    )
    allocation: str = option(
        "AVG",
        "Which queues of a topic each member gets: `AVG`, `AVG_BY_CIRCLE`, `CONSISTENT_HASH`, `CONFIG`, "
        "`MACHINE_ROOM`, `MACHINE_ROOM_NEARBY-` with one of the first three behind it, or the name of a plugin's "
        "strategy. All members of a group need the same.",
        java="allocateMessageQueueStrategy",
    )
    allocation_queues: tuple[str, ...] = option(
        (), "`CONFIG`: the queues of this process, `topic@broker:id`.", java="messageQueueList"
    )
    machine_rooms: tuple[str, ...] = option(
        (), "`MACHINE_ROOM`: rooms whose queues are consumed; brokers are named `room@broker`.", java="consumeridcs"
    )
    broker_room: str = option(
        "",
        "`MACHINE_ROOM_NEARBY-...`: a regular expression that finds the room in a broker's name: its first group, or "
        "all of it.",
        java="brokerDeployIn",
    )
    member_room: str = option(
        "", "`MACHINE_ROOM_NEARBY-...`: the same for a member's client id.", java="consumerDeployIn"
    )
    virtual_nodes: int = option(
        10,
        "`CONSISTENT_HASH`: places of a member on the ring; more of them make equal shares.",
        java="virtualNodeCnt",
        least=1,
        most=10_000,
    )
    send_back_timeout: float = option(5.0, "Seconds that handing a failed message back may take.", least=0.1)
    lock_renew_interval: float = option(
        20.0,
        "Seconds between renewals of queue locks (orderly).",
        java="rocketmq.client.rebalance.lockInterval",
        least=0.1,
    )
    lock_lease: float = option(
        30.0,
        "Seconds that the lease of a queue lock lasts after the broker confirmed it; the broker keeps the lock for 60.",
        java="rocketmq.client.rebalance.lockMaxLiveTime",
        least=1.0,
        most=59.0,
    )
    lock_timeout: float = option(1.0, "Seconds that locking and unlocking may take.", least=0.1)
    suspend: float = option(
        1.0,
        "Seconds until a failed orderly message is tried again in place.",
        java="suspendCurrentQueueTimeMillis",
        least=0.01,
        most=30.0,
    )
    concurrency: int = option(64, "Messages that one async handler has in flight at once.", least=1, most=65535)
    threads: int = option(20, "Threads of one sync handler.", java="consumeThreadMin", least=1, most=1000)
    concurrency_most: int = option(
        0,
        "Messages that one handler has in flight at once while much waits (concurrent); 0: always what is declared.",
        java="consumeThreadMax",
        least=0,
        most=65535,
    )
    adjust_backlog: int = option(
        100_000,
        "Messages of a group that wait for this process, from which on more and more handlers run at once, up to "
        "`concurrency_most`; below 80 % of it fewer and fewer.",
        java="adjustThreadPoolNumsThreshold",
        least=1,
    )
    retries: int = option(16, "Attempts after the first; then the message is dead.", java="maxReconsumeTimes", least=-1)
    handler_warning: float = option(
        900.0, "Seconds after which a running handler is warned about.", java="consumeTimeout", least=1.0
    )
    send_back_slow: bool = option(
        False,
        "Send messages back whose handler has run for `handler_warning` seconds: they block their queue no more, and "
        "the copy may be handled while that call still runs (concurrent).",
    )
    crash_dir: str = option(
        ".rocketapp/crashes",
        "Directory in which the processes of a machine note down what they have in flight; empty: nowhere.",
    )
    broadcast_dir: str = option(
        ".rocketapp/broadcast",
        "Directory in which each worker keeps the offsets of broadcast groups.",
        java="rocketmq.client.localOffsetStoreDir",
        least=1,
    )
    subscription_check: str = option(
        "roll-out",
        "What happens when other members of the group subscribe differently: `roll-out` pulls what any of them wants, "
        "and hands messages to members that want them; `warn` and `refuse` compare at the start; `off` asks no member.",
        choices=("roll-out", "warn", "refuse", "off"),
    )
    join_timeout: float = option(
        5.0, "Seconds that several workers wait for each other before the first pull.", least=0.0
    )
