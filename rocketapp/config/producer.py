"""Options of publishing: table `[producer]`."""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.config.option import option


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How messages are published."""

    group: str = option("", "Producer group; empty: the app's name.", java="producerGroup")
    send_timeout: float = option(
        3.0, "Seconds that a send may take in total, retries included.", java="sendMsgTimeout", least=0.05
    )
    retries: int = option(2, "Further attempts after a failed one.", java="retryTimesWhenSendFailed", least=0, most=16)
    compress_above_bytes: int = option(
        4096, "Bodies of this size or more are compressed.", java="compressMsgBodyOverHowmuch", least=1
    )
    compression: str = option("zlib", "How bodies are compressed.", choices=("none", "zlib", "lz4", "zstd"))
    compression_level: int = option(
        5, "Level of zlib compression.", java="rocketmq.message.compressLevel", least=0, most=9
    )
    max_message_bytes: int = option(4_194_304, "Largest body.", java="maxMessageSize", least=1)
    topic_queues: int = option(
        4, "Queues of a topic that a publish creates.", java="defaultTopicQueueNums", least=1, most=65535
    )
    max_in_flight: int = option(
        1024,
        "Most sends under way at once in a process, a batch counted as one; further ones wait. 0: without a limit.",
        java="backPressureForAsyncSendNum",
        least=0,
    )
    max_in_flight_bytes: int = option(
        33_554_432,
        "Most bytes of bodies under way at once in a process; further sends wait. 0: without a limit.",
        java="backPressureForAsyncSendSize",
        least=0,
    )
    avoid_slow_brokers: bool = option(
        False,
        "Whether brokers that answered sends slowly or not at all are passed over for a while.",
        java="sendLatencyFaultEnable",
    )
