"""Idempotency marks of rocketapp in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketapp_redis.plugin import RedisConfig, RedisPlugin

if TYPE_CHECKING:
    from rocketapp_redis.store import RedisStore

__all__ = ["RedisConfig", "RedisPlugin", "RedisStore"]


def __getattr__(name: str) -> Any:
    """What needs redis is imported when it is used: every app with the plugin imports this package."""
    if name == "RedisStore":
        from rocketapp_redis.store import RedisStore

        return RedisStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
