from __future__ import annotations

import subprocess
import sys
from typing import Any

from rocketapp_redis import RedisConfig, RedisPlugin, RedisStore


class App:
    """As much of an app as the plugin asks for."""

    def __init__(self, config: RedisConfig) -> None:
        self._config = config

    def options(self, _table: type[Any]) -> RedisConfig:
        return self._config


def test_without_a_url_it_declines() -> None:
    assert RedisPlugin().idempotency_store(App(RedisConfig())) is None  # type: ignore[arg-type]


def test_with_a_url_it_brings_the_store() -> None:
    store = RedisPlugin().idempotency_store(App(RedisConfig(url="redis://user:secret@cache:6379/1")))  # type: ignore[arg-type]
    assert isinstance(store, RedisStore)
    assert repr(store) == "<RedisStore cache>"  # errors and logs name it: the password stays out


def test_an_app_without_a_url_does_not_wait_for_the_import_of_redis() -> None:
    program = "import sys, rocketapp_redis; print('redis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "False\n"
