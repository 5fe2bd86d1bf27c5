"""Runs of the data source that are too long for every test run: on a cluster, and on each version of Spark."""
