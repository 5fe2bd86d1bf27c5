"""Where settings come from: defaults < arguments in code < file < environment < command line.

dynaconf reads the file with its environments and interprets the variables; what it
found is then checked against the declared options. An option that is unknown, of the wrong
type or out of bounds is an error that names the file or variable, and the key meant.
dynaconf is imported only when there is something to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketapp.app.settings import DEVELOPMENT, TABLES, OptionField, Settings, checked, fields_of, nearest
from rocketapp.errors import ConfigError
from rocketapp.model.names import group_problem

PREFIX: Final = "ROCKETAPP_"
CODE: Final = "code"
"""Where options come from that an app was made with."""
DEFAULT_FILE: Final = "settings.toml"

_LONGEST_FILE = 1_000_000
"""Characters of a settings file: what is longer is something else, perhaps without an end."""
_GROUPS = (("app", "group"), ("producer", "group"))
_NAME_SERVERS = (("client", "name_server"), ("broker", "name_server"))

Tables = Mapping[str, type[Any]]
_Layers = Mapping[str, Mapping[str, Any]]
"""The tables of a file by what stands before their names: `production.`, or nothing."""


class Given(NamedTuple):
    """One option as it was found.

    place: the file or variable, for messages and `source_of`.
    as_text: what a variable really holds, for options that are text.
    written_at: `file:line` of what code gives, for errors.
    """

    table: str
    key: str
    value: Any
    place: str
    as_text: str | None = None
    written_at: str = ""

    def wrong(self, problem: str) -> ConfigError:
        return ConfigError(self.written_at or self.place, problem)


class _File(NamedTuple):
    """A settings file that was read."""

    place: str
    text: str
    raw: dict[str, Any]


def load_settings(
    file: str | None,
    overrides: Mapping[str, Mapping[str, Any]],
    environ: Mapping[str, str],
    code: Mapping[str, Mapping[str, Any]],
    *,
    tables: Tables | None = None,
    only_known: bool = False,
    passed_over: Set[str] = frozenset(),
    code_place: str = CODE,
) -> Settings:
    """Read, layer and check all settings. Raises ConfigError with place and key.

    file: None is ./settings.toml, if there is one; a named file must exist.
    overrides: the command line's. code: the app's. tables: those of plugins, by name;
    with `only_known`, for commands without an app, other tables are passed over.
    passed_over: tables that are, in any case: those of disabled plugins.
    code_place: `file:line` of the app, for errors.
    """
    known: dict[str, type[Any]] = {**TABLES, **(tables or {})}
    environment = environment_of(environ)
    read = _read_file(file)
    layers = {} if read is None else _layers(read.raw, environment, known)
    given = [
        *_from_mapping(code, CODE, code_place),
        *([] if read is None else _from_file(read, layers, environment, known)),
        *_from_environment(environ, known),
        *_from_mapping(overrides, "command line"),
    ]
    skipped = {one.table for one in given if one.table not in known} if only_known else passed_over
    made, sources = _made(given, known, skipped)
    own = {table: made.pop(table) for table in TABLES}
    place = Path(file or DEFAULT_FILE)
    clusters = [f"{place} [{name}client]" for name, tables in layers.items() if _names_cluster(tables)]
    return Settings(**own, plugins=made, sources=sources, environment=environment, clusters=tuple(clusters))


def settings_in_code(code: Mapping[str, Mapping[str, Any]], place: str) -> Settings:
    """The settings that code gives, and else defaults: no file and no variable is read. Raises ConfigError."""
    made, sources = _made(_from_mapping(code, CODE, place), TABLES, frozenset())
    return Settings(**made, sources=sources)


def _made(
    given: Iterable[Given], known: Tables, skipped: Set[str]
) -> tuple[dict[str, Any], dict[tuple[str, str], str]]:
    """Every table by name, and where its options come from. Later ones win; tables in `skipped` are passed over."""
    values: dict[str, dict[str, Any]] = {table: {} for table in known}
    sources: dict[tuple[str, str], str] = {}
    for one in given:
        if one.table not in known:
            if one.table in skipped:
                continue
            raise one.wrong(f"unknown table [{one.table}]; {nearest(one.table, known)}")
        if one.key:  # otherwise it is an empty table
            values[one.table][one.key] = _checked(one, fields_of(known[one.table]))
            sources[one.table, one.key] = one.place
    return {table: kind(**values[table]) for table, kind in known.items()}, sources


def _checked(one: Given, fields: Mapping[str, OptionField]) -> Any:
    if one.key not in fields:
        raise one.wrong(f"unknown key {one.table}.{one.key}; {nearest(one.key, fields)}")
    try:
        value, problem = checked(fields[one.key], one.value, one.as_text)
    except ValueError as error:  # a number of thousands of digits cannot be shown
        raise one.wrong(f"{one.table}.{one.key}: {error}") from error
    if problem is None and value:
        problem = _text_problem(one, value)
    if problem is not None:
        raise one.wrong(f"{one.table}.{one.key}: {problem}")
    return value


def _text_problem(one: Given, value: Any) -> str | None:
    """Why this text is no name of a group, or no name servers, where the option holds that; or None."""
    if (one.table, one.key) in _GROUPS:
        return group_problem(value)
    if (one.table, one.key) in _NAME_SERVERS:
        from rocketapp.client.name_servers import name_server_problem  # `import rocketapp` does without

        return name_server_problem(value)
    return None


def _from_mapping(tables: Mapping[str, Mapping[str, Any]], place: str, written_at: str = "") -> Iterator[Given]:
    for table, options in tables.items():
        if not options:
            yield Given(table, "", None, place, written_at=written_at)
        for key, value in options.items():
            yield Given(table, key, value, place, written_at=written_at)


def _read_file(file: str | None) -> _File | None:
    path = Path(DEFAULT_FILE if file is None else file)
    if file is None and not path.exists() and not path.is_symlink():  # a link that leads nowhere was meant to be read
        return None
    if file is None and path.is_fifo():  # which may have no writer. One that is named, as `<(...)`, is read
        raise ConfigError(DEFAULT_FILE, "is a pipe: name it with --settings, or put a file there")
    import tomllib

    try:
        with path.open(encoding="utf-8-sig") as opened:  # editors of Windows put a mark in front
            text = opened.read(_LONGEST_FILE + 1)
        if len(text) > _LONGEST_FILE:
            raise ConfigError(str(path), f"is longer than {_LONGEST_FILE} characters: no settings are")
        return _File(str(path), text, tomllib.loads(text))
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from error
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # which says the line, unless it is about a number of thousands of digits
        raise ConfigError(str(path), f"is not TOML: {error}") from error


def _from_file(file: _File, layers: _Layers, environment: str, known: Tables) -> Iterator[Given]:
    """Plain tables first, then those of the environments: `[default]`, `[global]` and the chosen one."""
    for name, content in file.raw.items():
        if isinstance(content, list) and name in known:
            raise ConfigError(file.place, f"[[{name}]] is a list of tables: write [{name}] once")
        if not isinstance(content, dict):
            having = [table for table, kind in known.items() if name in fields_of(kind)]
            mend = f"write it below {' or '.join(f'[{table}]' for table in having or known)}"
            raise ConfigError(file.place, f"key {name} stands outside of any table: {mend}")
    # `development` needs no table: without the variable it is the environment of every file.
    others = {name.removesuffix(".") for name in layers} - {"", *_FOR_ALL}
    if others and environment not in (DEVELOPMENT, *_FOR_ALL, *others):
        problem = f"has no table of the environment {environment!r} that {SWITCHER} names"
        raise ConfigError(file.place, f"{problem}; {nearest(environment, others)}")
    of_chosen = {table for name in (*_FOR_ALL, environment) for table in layers.get(f"{name}.", ())}
    for wanted, chosen in ((layers[""].keys(), None), (of_chosen, environment)):
        if wanted:
            with _evaluating(file.place):
                found = _dynaconf(file.text, chosen)
            yield from _of_tables(found, wanted, file.place)


def _of_tables(found: Mapping[str, Any], tables: Set[str], place: str) -> Iterator[Given]:
    for table in sorted(tables):
        if not isinstance(found.get(table), dict):
            raise ConfigError(place, f"{table} is not a table: write [{table}] and the options below it")
    yield from _from_mapping({table: found[table] for table in sorted(tables)}, place)


def _dynaconf(text: str, environment: str | None) -> dict[str, Any]:
    """What dynaconf makes of this text: with an environment the tables below it, without one those at the top.

    The text is given, not the file's name: dynaconf would also read neighbours of the
    file (`settings.local.toml`, `.secrets.toml`, `dynaconf_hooks.py`), which the user did not name.
    """
    from dynaconf import Dynaconf
    from dynaconf.loaders import toml_loader

    settings = Dynaconf(
        settings_files=[],
        core_loaders=[],
        loaders=[],
        preload=[],
        includes=[],
        secrets=None,
        load_dotenv=False,
        merge_enabled=True,
        environments=environment is not None,
        env=environment or "main",
    )
    toml_loader.load(settings, env=environment or "main", silent=True, filename=[text + "\n"])
    return {table.lower(): content for table, content in settings.as_dict().items()}


def _from_environment(environ: Mapping[str, str], known: Tables) -> Iterator[Given]:
    """What variables set: `ROCKETAPP_CONSUMER__PULL_BATCH_SIZE=64` is for consumer.pull_batch_size."""
    for name in sorted(environ):
        if not name.startswith(PREFIX):
            continue
        table, separator, key = name.removeprefix(PREFIX).lower().partition("__")
        if separator and not key:
            raise ConfigError(name, f"names no option: write {PREFIX}{table.upper() or 'TABLE'}__ and an option's name")
        if separator:
            with _evaluating(name):
                value = _interpreted(environ[name])
            yield Given(table, key, value, name, environ[name])
        else:
            _refuse_single_underscore(name, table, known)


def _refuse_single_underscore(name: str, rest: str, known: Tables) -> None:
    """Other variables with our prefix are not settings, but this one was meant to be."""
    if rest in known:
        raise ConfigError(name, f"is a table and no option: write {name}__ and one of its options")
    meant = [
        f"{PREFIX}{table}__{key}".upper()
        for table, kind in known.items()
        for key in fields_of(kind)
        if rest in (key, f"{table}_{key}")
    ]
    if meant:
        raise ConfigError(name, f"sets nothing: write {' or '.join(meant)}, with two underscores behind the table")


def _interpreted(text: str) -> Any:
    from dynaconf.utils.parse_conf import Lazy, boolean_fix, parse_conf_data

    value = parse_conf_data(boolean_fix(text), tomlfy=True)
    if isinstance(value, Lazy):
        raise ValueError(f"{text.split(maxsplit=1)[0]} is for files: write the value itself")
    return value


@contextmanager
def _evaluating(place: str) -> Iterator[None]:
    """dynaconf evaluates values that begin with `@`, and raises what it likes."""
    try:
        yield
    except Exception as error:
        raise ConfigError(place, f"a value that begins with @ cannot be evaluated: {error}") from error


SWITCHER: Final = "ENV_FOR_DYNACONF"
"""The variable that chooses the file's environment; `development` without it."""
_FOR_ALL = ("default", "global")
"""Environments that hold whichever one was chosen."""


def environment_of(environ: Mapping[str, str]) -> str:
    """The chosen environment, in small letters as dynaconf compares them."""
    return (environ.get(SWITCHER) or DEVELOPMENT).lower()


def _layers(raw: Mapping[str, Any], chosen: str, known: Tables) -> _Layers:
    """What stands at the top of a file: tables of options below an empty name, those of environments below theirs."""
    found: dict[str, dict[str, Any]] = {"": {}}
    for name, content in raw.items():
        if not isinstance(content, dict):
            continue  # refused later
        tables, layer = {table.lower(): options for table, options in content.items()}, name.lower()
        if layer in _FOR_ALL or (layer not in known and (layer == chosen or _is_environment(tables, known))):
            found.setdefault(f"{layer}.", {}).update(tables)
        else:
            found[""][layer] = content
    return found


def _names_cluster(tables: Mapping[str, Any]) -> bool:
    """Whether one of them is `client`, and names a cluster."""
    client = tables.get("client")
    return isinstance(client, dict) and any(key.lower() == "name_server" and value for key, value in client.items())


def _is_environment(content: Mapping[str, Any], known: Tables) -> bool:
    """A table of tables, one of which we know."""
    are_tables = all(isinstance(table, dict) for table in content.values())
    return are_tables and (not content or not known.keys().isdisjoint(content))
