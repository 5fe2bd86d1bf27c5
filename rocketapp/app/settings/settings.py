"""Settings: the options of every table, frozen, and where each came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from rocketapp.app.settings.file import DEVELOPMENT
from rocketapp.config.app import AppConfig
from rocketapp.config.broker import BrokerConfig
from rocketapp.config.client import ClientConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.config.producer import ProducerConfig

T = TypeVar("T")

TABLES: Final[Mapping[str, type[Any]]] = {
    "app": AppConfig,
    "client": ClientConfig,
    "producer": ProducerConfig,
    "consumer": ConsumerConfig,
    "broker": BrokerConfig,
}
"""Our own tables; plugins add theirs."""
DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an app runs with: nothing in it changes after the start."""

    app: AppConfig = field(default_factory=AppConfig)
    client: ClientConfig = field(default_factory=ClientConfig)
    producer: ProducerConfig = field(default_factory=ProducerConfig)
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    plugins: Mapping[str, Any] = field(default_factory=dict)
    """The tables of plugins by name."""
    environment: str = DEVELOPMENT
    """The file's environment that was chosen."""
    clusters: tuple[str, ...] = ()
    """Every table of the file that names a cluster, those of other environments included: `settings.toml [client]`."""
    sources: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(table, key) -> where it was set; what is not in it has its default."""

    def source_of(self, table: str, key: str) -> str:
        """Where an option was set: a file, a variable, `command line`, `code` or `default`."""
        return self.sources.get((table, key), DEFAULT)

    def tables(self) -> dict[str, Any]:
        """Every table by name, plugins' tables last."""
        return {**{name: getattr(self, name) for name in TABLES}, **self.plugins}

    def options(self, kind: type[T]) -> T:
        """The table that is an instance of this class. Raises LookupError when there is none."""
        for table in self.tables().values():
            if type(table) is kind:
                return table
        raise LookupError(f"no table of settings is a {kind.__qualname__}: give it to RocketApp(options=...)")


def with_name_server(settings: Settings, address: str) -> Settings:
    """The same settings on the embedded broker at this address."""
    sources = {**settings.sources, ("client", "name_server"): "embedded broker"}
    return replace(settings, client=replace(settings.client, name_server=address), sources=sources)
