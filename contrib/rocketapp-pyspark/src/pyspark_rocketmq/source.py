"""`format("rocketmq")`: what Spark asks for a reader or writer."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from pyspark_rocketmq.columns import ddl
from pyspark_rocketmq.options import columns_of, read_options


class RocketMQSource(DataSource):
    """RocketMQ topics for Spark."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        return ddl(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_rocketmq.reading import BatchReader

        return BatchReader(read_options(self.options, streaming=False))
