"""Settings: the options of every table, frozen, where each came from, and whether a value fits its option.

Types are exact, bounds come from the declaration. A file and the code say `32` or `"32"` and mean it. A variable has no
types: dynaconf has interpreted it already, and an option that is text takes it as it stands.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

from rocketapp.config.app import AppConfig
from rocketapp.config.broker import BrokerConfig
from rocketapp.config.client import ClientConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.config.option import OptionInfo, bounds_problem, info_of
from rocketapp.config.producer import ProducerConfig
from rocketapp.errors import SetupError
from rocketapp.model.numbers import MOST_SECONDS

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
EMBEDDED: Final = "embedded broker"
"""The source of a name server that nothing names."""
DEVELOPMENT: Final = "development"
"""The environment of a settings file that is chosen when nothing chooses one, as dynaconf has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an app runs with: nothing in it changes after the start.

    plugins: the tables of plugins by name.
    environment: the file's environment that was chosen.
    clusters: every table of the file that names a cluster, those of other environments included: `settings.toml
        [client]`.
    sources: (table, key) -> where it was set; what is not in it has its default.
    """

    app: AppConfig = field(default_factory=AppConfig)
    client: ClientConfig = field(default_factory=ClientConfig)
    producer: ProducerConfig = field(default_factory=ProducerConfig)
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    plugins: Mapping[str, Any] = field(default_factory=dict)
    environment: str = DEVELOPMENT
    clusters: tuple[str, ...] = ()
    sources: Mapping[tuple[str, str], str] = field(default_factory=dict)

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
    sources = {**settings.sources, ("client", "name_server"): EMBEDDED}
    return replace(settings, client=replace(settings.client, name_server=address), sources=sources)


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", tuple: "a list of texts"}


_FLAGS = {"1": True, "yes": True, "on": True, "true": True, "0": False, "no": False, "off": False, "false": False}
"""What a variable says for true and false, in upper or lower case."""


class OptionField(NamedTuple):
    """One option of a table."""

    name: str
    kind: type[Any]
    may_be_none: bool
    default: Any
    info: OptionInfo


def fields_of(table: type[Any]) -> Mapping[str, OptionField]:
    """The options of a table by name. Raises TypeError for a field that is not an option of a simple type."""
    hints = typing.get_type_hints(table)
    return {field.name: _option_field(table, field, hints[field.name]) for field in dataclasses.fields(table)}


def checked(option: OptionField, value: Any, as_text: str | None = None) -> tuple[Any, str | None]:
    """The value for the option, and why it cannot be one (or None).

    `as_text` is what a variable holds, when the value was read from one.
    """
    if option.kind is str and as_text is not None and not as_text.startswith("@"):
        value = as_text
    if value is None and option.may_be_none:
        return None, None
    if option.kind is tuple:
        return _listed(value)
    if option.kind is bool and as_text is not None:
        value = _FLAGS.get(as_text.strip().lower(), value)
    if option.info.choices and isinstance(value, str):
        # Choices differ in more than their case: `info` can only mean INFO.
        value = next((choice for choice in option.info.choices if choice.lower() == value.lower()), value)
    if option.kind is float and type(value) in (int, float):
        if not abs(value) <= MOST_SECONDS:
            return value, f"{value!r} is not a number up to {MOST_SECONDS}"
        value = float(value)
    if type(value) is not option.kind:
        said = "the value" if option.info.secret else repr(value)
        return value, f"{said} is {_WORDS.get(type(value), f'a {type(value).__name__}')}, not {_WORDS[option.kind]}"
    return value, bounds_problem(option.info, value)


def _listed(value: Any) -> tuple[Any, str | None]:
    """A list of texts: one text may hold several with commas between, as a variable does."""
    if isinstance(value, str):
        value = [part for one in value.split(",") if (part := one.strip())]
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        return value, f"{value!r} is not a list of texts"
    return tuple(value), None


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: what was probably meant, or what there is."""
    known = sorted(names)
    meant = name.lower().replace("-", "_")
    from difflib import get_close_matches

    close = get_close_matches(meant, known, n=1, cutoff=0.6)
    close = close or [one for one in known if meant and one.startswith(meant)]
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"


def _option_field(table: type[Any], field: dataclasses.Field[Any], hint: Any) -> OptionField:
    kinds = [hint]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    kind: Any = tuple if kinds[0] == tuple[str, ...] else kinds[0]
    if len(kinds) != 1 or kinds[0] is tuple or kind not in _WORDS:
        raise TypeError(
            f"{table.__qualname__}.{field.name}: an option is int, float, bool, str or tuple[str, ...], not {hint}"
        )
    try:
        info = info_of(field)
    except KeyError:
        raise TypeError(f"{table.__qualname__}.{field.name}: declare it with option(default, meaning)") from None
    return OptionField(field.name, kind, kinds[0] is not hint, field.default, info)


def check_tables(settings: object, place: str) -> None:
    """Raises SetupError for settings in code that are something else than tables of options."""
    if not isinstance(settings, Mapping) or not all(isinstance(table, Mapping) for table in settings.values()):
        raise SetupError(place, f"settings={settings!r}: give options by table, {{'consumer': {{'threads': 40}}}}")
