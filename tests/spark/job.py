"""The job that is submitted: a topic into Parquet files. Of the project it has only what was shipped with it.

    job.py batch|stream NAME_SERVER TOPIC TARGET OFFSETS_OF_A_TASK

Prints one JSON object: where the workers of Spark have the source from.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from pyspark_rocketmq import DefaultSource


def read_batch(spark: SparkSession, options: dict[str, str], target: str) -> None:
    spark.read.format("rocketmq").options(**options).load().write.parquet(target)


def read_stream(spark: SparkSession, options: dict[str, str], target: str) -> None:
    """What the file sink committed is in its own log: `rows` has just that, for readers without Spark."""
    limit = str(int(options["maxRecordsPerPartition"]) * 8)
    more = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": limit}
    query = (
        spark.readStream.format("rocketmq")
        .options(**options, **more)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{target}.checkpoint")
        .trigger(availableNow=True)
        .start(f"{target}.stream")
    )
    query.awaitTermination()
    spark.read.parquet(f"{target}.stream").coalesce(1).write.parquet(target)


def places(spark: SparkSession) -> list[str]:
    """Where each worker imported the source from."""

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        import pyspark_rocketmq

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"place": [str(pyspark_rocketmq.__file__)]})

    found = spark.range(0, 4, 1, 4).mapInArrow(look, "place string").distinct().collect()
    return sorted(row.place for row in found)


def main() -> None:
    kind, name_server, topic, target, size = sys.argv[1:]
    spark = SparkSession.builder.appName(f"{kind} {topic}").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # Spark finds by its name what is installed, and not what --py-files brings.
    spark.dataSource.register(DefaultSource)
    options = {"nameServer": name_server, "subscribe": topic, "maxRecordsPerPartition": size}
    {"batch": read_batch, "stream": read_stream}[kind](spark, options, target)
    print(json.dumps({"places": places(spark)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
