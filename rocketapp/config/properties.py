"""The broker's options in Apache RocketMQ's words: its `broker.conf`, and what `getBrokerConfig` shows.

Each option of `BrokerConfig` names its Java twin. There, times are milliseconds, and an address is two options.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from rocketapp.config.broker import BrokerConfig
from rocketapp.config.option import info_of
from rocketapp.errors import ConfigError

_PATHS = frozenset({"dir", "cert_file", "key_file"})
_LISTEN, _HOST, _FLUSH, _ROLE = "listenPort", "bindAddress", "flushDiskType", "brokerRole"
_IGNORED = frozenset(
    {"enablePropertyFilter", "storePathCommitLog", "authenticationMetadataProvider", "authorizationMetadataProvider"}
)
"""What a `broker.conf` for the same folder says, and what is so here anyway, or what only several brokers need."""


def to_java(config: BrokerConfig) -> dict[str, str]:
    """The options by their names in Java, without secrets and paths, which are nobody's business elsewhere."""
    shown = {}
    for field, name in _twins():
        value = getattr(config, field.name)
        if name == _LISTEN:
            host, _, port = value.rpartition(":")
            shown[_HOST], shown[_LISTEN] = host.strip("[]"), port
        elif name == _FLUSH:
            shown[name] = f"{value.upper()}_FLUSH"
        elif name == _ROLE:
            shown[name] = value.upper()
        elif field.name not in _PATHS and not info_of(field).secret:
            shown[name] = _text(value, _units(field))
    return shown


def from_java(text: str, place: str) -> dict[str, Any]:
    """The options that a file in Java's words sets. ConfigError names a line that is none, and the nearest name."""
    twins = {name: field for field, name in _twins()}
    found: dict[str, Any] = {}
    listen: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.strip()[0] in "#!":
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        where = f"{place}:{number}"
        if not equals:
            raise ConfigError(where, f"{line.strip()[:60]!r} is not name=value")
        if name in (_HOST, _LISTEN):
            listen[name] = f"[{value}]" if ":" in value else value
        elif name in twins:
            found[twins[name].name] = _value(twins[name], value, where, name)
        elif name not in _IGNORED:
            near = difflib.get_close_matches(name, [*twins, _HOST, *_IGNORED], 1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise ConfigError(where, f"the embedded broker has no option {name[:60]}{hint}")
    if listen:
        host, _, port = BrokerConfig().listen.rpartition(":")
        found["listen"] = f"{listen.get(_HOST, host)}:{listen.get(_LISTEN, port)}"
    return found


def _twins() -> Iterator[tuple[dataclasses.Field[Any], str]]:
    for field in dataclasses.fields(BrokerConfig):
        name = info_of(field).java
        if name is not None:
            yield field, name


def _units(field: dataclasses.Field[Any]) -> int:
    """How many of Java's units make one of ours."""
    return 1 if field.name.endswith("_hours") else 1000


def _text(value: object, units: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value * units)) if isinstance(value, float) else str(value)


def _value(field: dataclasses.Field[Any], text: str, where: str, name: str) -> Any:
    kind: Any = type(field.default)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is float:
            return int(text) / _units(field)
        if info_of(field).java == _FLUSH:
            return {"ASYNC_FLUSH": "async", "SYNC_FLUSH": "sync"}[text.upper()]
        if info_of(field).java == _ROLE:
            return {"ASYNC_MASTER": "async_master", "SYNC_MASTER": "sync_master", "SLAVE": "slave"}[text.upper()]
        return kind(text)
    except (KeyError, ValueError):
        raise ConfigError(where, f"{name}={text[:60]!r} is not a value of it") from None


def encode(options: Mapping[str, str]) -> bytes:
    """A Java properties file."""
    return "".join(f"{name}={value}\n" for name, value in options.items()).encode()
