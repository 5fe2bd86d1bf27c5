"""Spark's daemon of Python workers, which has imported what every worker of these tests needs: each is a fork of it.

A worker of Spark's own daemon imports it anew for each plan of a read, which takes longer than the read.
"""

from importlib import import_module

from pyspark.daemon import manager

for name in ("pandas", "pyarrow", "pyspark.sql.worker.plan_data_source_read", "pyspark_rocketmq.streaming"):
    import_module(name)

if __name__ == "__main__":
    manager()
