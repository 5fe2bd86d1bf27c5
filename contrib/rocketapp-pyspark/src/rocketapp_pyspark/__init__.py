"""Spark for apps: tables of rocketapp-lake that it writes, and its settings."""

from rocketapp_pyspark.settings import SparkConfig

__all__ = ["SparkConfig"]
