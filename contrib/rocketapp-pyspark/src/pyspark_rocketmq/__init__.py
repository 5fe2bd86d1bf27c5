"""A data source for Spark that reads and writes RocketMQ topics: `format("rocketmq")`.

Spark finds `DefaultSource` by the name of this package.
"""

from pyspark_rocketmq.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
