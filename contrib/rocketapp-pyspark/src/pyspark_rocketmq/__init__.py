"""A data source for Spark that reads and writes RocketMQ topics."""
