"""`format("rocketmq")`: what Spark asks for a reader or writer."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_rocketmq.columns import ddl
from pyspark_rocketmq.options import columns_of, read_options, write_options


class RocketMQSource(DataSource):
    """RocketMQ topics for Spark."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        return ddl(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_rocketmq.reading import BatchReader, FilteringReader

        options = read_options(self.options, streaming=False)
        return FilteringReader(options) if options.pushdown else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from pyspark_rocketmq.streaming import StreamReader

        return StreamReader(read_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_rocketmq.writing import BatchWriter

        return BatchWriter(write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from pyspark_rocketmq.writing import StreamWriter

        return StreamWriter(write_options(self.options), schema, overwrite)
