"""Idempotency marks of rocketapp in Redis."""

from rocketapp_redis.plugin import RedisConfig, RedisPlugin
from rocketapp_redis.store import RedisStore

__all__ = ["RedisConfig", "RedisPlugin", "RedisStore"]
