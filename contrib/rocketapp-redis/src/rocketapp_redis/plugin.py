"""The plugin: a table of settings, and the store that they describe."""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.plugin import IdempotencyStore, Surface, hookimpl, option


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConfig:
    """Where Redis is: table `[redis]`."""

    url: str = option("", "redis://, rediss:// or unix:// with host, port and database; empty: not used.", secret=True)
    prefix: str = option("rocketapp:", "In front of every key.")
    timeout: float = option(2.0, "Seconds for one answer; a call that takes longer has failed.", least=0.05)


class RedisPlugin:
    """Brings the store when `redis.url` is set."""

    @hookimpl
    def options(self) -> tuple[str, type[RedisConfig]]:
        return "redis", RedisConfig

    @hookimpl
    def idempotency_store(self, app: Surface) -> IdempotencyStore | None:
        config = app.options(RedisConfig)
        if not config.url:
            return None
        from rocketapp_redis.store import RedisStore  # slow, and only used with a url

        return RedisStore(config.url, prefix=config.prefix, timeout=config.timeout)
