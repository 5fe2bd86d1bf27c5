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
from pyspark_rocketmq.options import ReadOptions, columns_of, read_options, write_options
from pyspark_rocketmq.problems import OptionError


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
        _check(schema, options)
        return FilteringReader(options) if options.pushdown else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from pyspark_rocketmq.streaming import StreamReader

        options = read_options(self.options, streaming=True)
        _check(schema, options)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_rocketmq.writing import BatchWriter

        return BatchWriter(write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from pyspark_rocketmq.writing import StreamWriter

        return StreamWriter(write_options(self.options), schema, overwrite)


def _check(schema: StructType, options: ReadOptions) -> None:
    """Spark takes any schema that a read is given, and finds in its tasks that the rows are others."""
    if tuple(schema.fieldNames()) != options.columns:
        raise OptionError("the columns of topics are fixed: leave out schema(), and name those you want by columns")
