from __future__ import annotations

import inspect
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rocketapp import ConfigError, RocketApp
from rocketapp.app.declare.phases import read_settings
from rocketapp.app.settings import Settings
from rocketapp.app.sources import load_settings
from rocketapp.config.option import option

ENVIRONMENTS = """
[app]
group = "plain"

[default.consumer]
pull_batch_size = 1
suspend = 2

[production.consumer]
pull_batch_size = 2

[staging.consumer]
pull_batch_size = 3
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """A plugin's table."""

    port: int = option(9100, "Where it serves.", least=1, most=65535)
    host: str | None = option(None, "On which address.")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(text: str | None = None, /, **more: Any) -> Settings:
    """Settings with this settings.toml in the current directory."""
    if text is not None:
        Path("settings.toml").write_text(text)
    arguments = {"overrides": {}, "environ": {}, "code": {}, **more}
    return load_settings(arguments.pop("file", None), **arguments)


def refused(text: str | None = None, /, **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        settings(text, **more)
    return str(caught.value)


# The order.


def test_each_source_covers_the_one_before(directory: Path) -> None:
    def sized(number: int) -> dict[str, dict[str, int]]:
        return {"consumer": {"pull_batch_size": number}}

    file, environ = "[consumer]\npull_batch_size = 3", {"ROCKETAPP_CONSUMER__PULL_BATCH_SIZE": "4"}
    found = [
        settings(),
        settings(code=sized(2)),
        settings(file, code=sized(2)),
        settings(file, code=sized(2), environ=environ),
        settings(file, code=sized(2), environ=environ, overrides=sized(5)),
    ]
    assert [one.consumer.pull_batch_size for one in found] == [32, 2, 3, 4, 5]
    assert [one.source_of("consumer", "pull_batch_size") for one in found] == [
        "default",
        "code",
        "settings.toml",
        "ROCKETAPP_CONSUMER__PULL_BATCH_SIZE",
        "command line",
    ]


def test_without_a_file_there_are_defaults(directory: Path) -> None:
    assert settings() == Settings()


def test_a_named_file_is_read_and_must_exist(directory: Path) -> None:
    Path("other.toml").write_text('[app]\ngroup = "other"')
    assert settings(file="other.toml").app.group == "other"
    assert refused(file="missing.toml") == "missing.toml: cannot be read: No such file or directory"
    assert refused(file="/dev/zero") == "/dev/zero: is longer than 1000000 characters: no settings are"


# The file.


def test_plain_tables_and_environments_live_side_by_side(directory: Path) -> None:
    in_production = settings(ENVIRONMENTS, environ={"ENV_FOR_DYNACONF": "production"})
    assert in_production.app.group == "plain"
    assert (in_production.consumer.pull_batch_size, in_production.consumer.suspend) == (2, 2.0)
    without = settings(ENVIRONMENTS)
    assert (without.consumer.pull_batch_size, without.consumer.suspend) == (1, 2.0)


@pytest.mark.parametrize("environment", ["development", "DEVELOPMENT"])
def test_development_is_the_environment_unless_another_is_named(directory: Path, environment: str) -> None:
    text = "[development.app]\ngroup = 'mine'"
    assert settings(text).app.group == "mine"
    assert settings(text, environ={"ENV_FOR_DYNACONF": environment}).app.group == "mine"
    both = text + "\n[production.app]\ngroup = 'ours'"
    assert settings(both, environ={"ENV_FOR_DYNACONF": "production"}).app.group == "ours"


@pytest.mark.parametrize(
    ("environment", "meant"),
    [
        ("prodution", "did you mean production?"),
        ("PRODUCTIVE", "did you mean production?"),
        ("qa", "known are production, staging"),
        ("app", "known are production, staging"),
    ],
)
def test_an_environment_that_no_table_has_is_refused(directory: Path, environment: str, meant: str) -> None:
    said = refused(ENVIRONMENTS, environ={"ENV_FOR_DYNACONF": environment})
    assert said == (
        f"settings.toml: has no table of the environment {environment.lower()!r} that ENV_FOR_DYNACONF names; {meant}"
    )


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ("[app]\ngroup = 'mine'", "production"),
        ("[default.app]", "production"),
        (ENVIRONMENTS, "development"),
        (None, "x"),
    ],
    ids=["plain tables only", "for all environments", "development needs no table", "no file"],
)
def test_an_environment_is_not_refused_where_it_can_be_meant(
    directory: Path, text: str | None, environment: str
) -> None:
    assert settings(text, environ={"ENV_FOR_DYNACONF": environment}).environment == environment


def test_settings_tell_every_table_that_names_a_cluster(directory: Path) -> None:
    text = "[client]\nname_server = ''\n[default.client]\nname_server = 'a:1'\n[Production.CLIENT]\nNAME_SERVER = 'b:1'"
    assert settings(text).clusters == ("settings.toml [default.client]", "settings.toml [production.client]")
    assert settings("[client]\nname_server = 'a:1'").clusters == ("settings.toml [client]",)
    assert settings("[production.client]\nheartbeat_interval = 9").clusters == ()
    two_spellings = "[Production.client]\nname_server = 'a:1'\n[production.app]\ngroup = 'ours'"
    assert settings(two_spellings).clusters == ("settings.toml [production.client]",)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[consumer]\npull_batch_sise = 1", "unknown key {table}.pull_batch_sise; did you mean pull_batch_size?"),
        ("[consumer]\npull-batch-size = 1", "unknown key {table}.pull-batch-size; did you mean pull_batch_size?"),
        ("[consumr]\npull_batch_size = 1", "unknown table [consumr]; did you mean consumer?"),
        ("[consumr]\n[consumer]", None),
        ("[staging.consumer]\nthreads = 2", None),
        ("[stage.consumr]\nthreads = 2", "unknown table [stage]; known are app, broker, client, consumer, producer"),
        ("[default.consumr]\npull_batch_size = 1", "unknown table [consumr]; did you mean consumer?"),
        ("pull_batch_size = 1", "key pull_batch_size stands outside of any table: write it below [consumer]"),
        ("[[consumer]]\nthreads = 2", "[[consumer]] is a list of tables: write [consumer] once"),
        ("[default]\nconsumer = 1", "consumer is not a table: write [consumer] and the options below it"),
        ("[consumer]\npull_batch_size = '32'", "{size}: '32' is text, not a whole number"),
        ("[consumer]\npull_batch_size = true", "{size}: True is true or false, not a whole number"),
        ("[consumer]\npull_batch_size = 32.0", "{size}: 32.0 is a number, not a whole number"),
        ("[consumer]\npull_batch_size = 0", "{size}: 0 is below the least, 1"),
        ("[consumer]\npull_batch_size = 1025", "{size}: 1025 is above the most, 1024"),
        ("[consumer]\nsuspend = 'x'", "consumer.suspend: 'x' is text, not a number"),
        ("[consumer]\nsuspend = nan", "consumer.suspend: nan is not a number up to 1000000000"),
        ("[consumer]\nsuspend = 1e308", "consumer.suspend: 1e+308 is not a number up to 1000000000"),
        (f"[consumer]\nsuspend = {10**50}", f"consumer.suspend: {10**50} is not a number up to 1000000000"),
        ('[consumer]\ncrash_dir = "a\\u0000b"', "consumer.crash_dir: no text with a NUL is taken"),
        ("[broker]\ndir = ''", "broker.dir: '' is empty: leave it out, or give it a value"),
        ("[consumer]\nbroadcast_dir = ''", "consumer.broadcast_dir: '' is empty: leave it out, or give it a value"),
        ("[app]\nlog_format = 'xml'", "app.log_format: 'xml' is not one of text, json"),
        ("[app]\ngroup = 7", "app.group: 7 is a whole number, not text"),
        ("[broker]\nauto_create_topics = 1", "broker.auto_create_topics: 1 is a whole number, not true or false"),
    ],
)  # fmt: skip
def test_what_a_file_says_wrongly_names_file_and_key(directory: Path, text: str, error: str | None) -> None:
    if error is None:
        # An empty table belongs to an environment that was not chosen.
        assert settings(text) == Settings()
    else:
        said = error.format(size="consumer.pull_batch_size", table="consumer")
        assert refused(text) == f"settings.toml: {said}"


@pytest.mark.parametrize("key", ["client.name_server", "broker.name_server"])
@pytest.mark.parametrize("value", ["mq", "ftp://mq/x", "mq;h:1"])
def test_name_servers_that_cannot_be_are_told_with_file_and_key(directory: Path, key: str, value: str) -> None:
    table, option = key.split(".")
    assert refused(f"[{table}]\n{option} = '{value}'").startswith(f"settings.toml: {key}: '{value.partition(';')[0]}'")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[app]\ngroup =\n", "at line 2, column 8"),
        ("[app\n", "at line 1, column 5"),
        ("[app]\n[app]\n", "at line 2, column 5"),
        ('a = "', "at end of document"),
        (f"a = {'9' * 5000}", "5000 digits"),
    ],
)
def test_broken_toml_names_its_line(directory: Path, text: str, where: str) -> None:
    assert refused(text).startswith("settings.toml: is not TOML: ")
    assert where in refused(text)


@pytest.mark.parametrize("key", ["consumer.suspend", "consumer.pull_batch_size", "app.group", "app.plugins"])
def test_a_number_that_cannot_be_shown_names_its_key(directory: Path, key: str) -> None:
    table, option = key.split(".")
    assert refused(f"[{table}]\n{option} = 0x{'f' * 5000}").startswith(f"settings.toml: {key}: Exceeds the limit")


def test_a_file_that_cannot_be_read_says_why(directory: Path) -> None:
    Path("settings.toml").mkdir()
    assert refused() == "settings.toml: cannot be read: Is a directory"
    Path("latin.toml").write_bytes(b'[app]\ngroup = "\xfc"')
    assert refused(file="latin.toml") == "latin.toml: is not UTF-8: byte 15 is 0xfc"


def test_a_pipe_that_nobody_named_is_not_waited_for(directory: Path) -> None:
    os.mkfifo("settings.toml")
    assert refused() == "settings.toml: is a pipe: name it with --settings, or put a file there"


def test_a_file_may_begin_with_a_byte_order_mark_and_say_a_choice_in_lower_case(directory: Path) -> None:
    Path("settings.toml").write_bytes(b'\xef\xbb\xbf[app]\nlog_level = "debug"\n')
    assert load_settings(None, {}, {}, {}).app.log_level == "DEBUG"


def test_a_whole_number_is_a_number_as_well(directory: Path) -> None:
    suspend = settings("[consumer]\nsuspend = 2").consumer.suspend
    assert (type(suspend), suspend) == (float, 2.0)


def test_dynaconf_reads_no_file_that_is_not_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoy = '[app]\ngroup = "decoy"\n[default.app]\ngroup = "decoy"'
    for name in ("settings.local.toml", ".secrets.toml", "settings.default.toml", "decoy.toml"):
        Path(name).write_text(decoy)
    Path(".env").write_text("ROCKETAPP_APP__GROUP=decoy\n")
    Path("dynaconf_hooks.py").write_text("def post(settings):\n    return {'APP': {'group': 'decoy'}}\n")
    for variable in (
        "SETTINGS_FILE_FOR_DYNACONF",
        "INCLUDES_FOR_DYNACONF",
        "PRELOAD_FOR_DYNACONF",
        "SECRETS_FOR_DYNACONF",
    ):
        monkeypatch.setenv(variable, "decoy.toml")
    monkeypatch.setenv("LOAD_DOTENV_FOR_DYNACONF", "true")
    assert settings('[client]\nname_server = "h:1"\n[default.broker]\nname = "b"').app.group == ""


# The environment.


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("CONSUMER__PULL_BATCH_SIZE", "64", 64),
        ("consumer__pull_batch_size", "64", 64),
        ("CONSUMER__SUSPEND", "2", 2.0),
        ("CONSUMER__SUSPEND", "0.5", 0.5),
        ("BROKER__AUTO_CREATE_TOPICS", "false", False),
        ("BROKER__AUTO_CREATE_TOPICS", "False", False),
        ("BROKER__AUTO_CREATE_TOPICS", "0", False),
        ("BROKER__AUTO_CREATE_TOPICS", "1", True),
        ("BROKER__AUTO_CREATE_TOPICS", "Yes", True),
        ("BROKER__AUTO_CREATE_TOPICS", "off", False),
        ("APP__LOG_LEVEL", "info", "INFO"),
        ("APP__LOG_LEVEL", "Warning", "WARNING"),
        ("CLIENT__NAME_SERVER", "h:1;h:2", "h:1;h:2"),
        ("APP__GROUP", "007", "007"),
        ("APP__GROUP", "true", "true"),
        ("APP__GROUP", "", ""),
    ],
)
def test_a_variable_sets_an_option(directory: Path, name: str, text: str, value: object) -> None:
    found = settings(environ={f"ROCKETAPP_{name}": text})
    table, key = name.lower().split("__")
    assert (type(getattr(getattr(found, table), key)), getattr(getattr(found, table), key)) == (type(value), value)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("CONSUMER__PULL_BATCH_SIZE", "many", "consumer.pull_batch_size: 'many' is text, not a whole number"),
        ("CONSUMER__PULL_BATCH_SIZE", "2000", "consumer.pull_batch_size: 2000 is above the most, 1024"),
        ("CONSUMER__PULL_BATCH_SISE", "2", "unknown key consumer.pull_batch_sise; did you mean pull_batch_size?"),
        ("CONSUMR__PULL_BATCH_SIZE", "2", "unknown table [consumr]; did you mean consumer?"),
        ("BROKER__AUTO_CREATE_TOPICS", "2", "broker.auto_create_topics: 2 is a whole number, not true or false"),
        ("THREADS", "2", "sets nothing: write ROCKETAPP_CONSUMER__THREADS, with two underscores behind the table"),
        ("CONSUMER", "2", "is a table and no option: write ROCKETAPP_CONSUMER__ and one of its options"),
        ("CONSUMER__", "2", "names no option: write ROCKETAPP_CONSUMER__ and an option's name"),
        ("__", "2", "names no option: write ROCKETAPP_TABLE__ and an option's name"),
        (
            "CONSUMER_PULL_BATCH_SIZE",
            "2",
            "sets nothing: write ROCKETAPP_CONSUMER__PULL_BATCH_SIZE, with two underscores behind the table",
        ),
    ],
)
def test_a_wrong_variable_is_named(directory: Path, name: str, text: str, error: str) -> None:
    assert refused(environ={f"ROCKETAPP_{name}": text}) == f"ROCKETAPP_{name}: {error}"


def test_other_variables_are_not_ours(directory: Path) -> None:
    environ = {"ROCKETAPP_COLOUR": "4", "rocketapp_app__group": "x", "APP__GROUP": "x", "ROCKETAPPS__A": "1"}
    assert settings(environ=environ) == Settings()


# Code, command line, plugins.


def test_code_and_command_line_are_checked_alike(directory: Path) -> None:
    assert refused(code={"app": {"drain_timeout": "30"}}) == "code: app.drain_timeout: '30' is text, not a number"
    assert refused(overrides={"app": {"drain": 3}}).startswith(
        "command line: unknown key app.drain; did you mean drain_timeout?"
    )


def test_an_empty_table_in_code_is_checked_too(directory: Path) -> None:
    assert refused(code={"nope": {}}).startswith("code: unknown table [nope]")
    assert settings(code={"app": {}}) == Settings()


def test_a_wrong_option_in_code_names_the_line_of_the_app(directory: Path) -> None:
    app = RocketApp("shop", settings={"consumer": {"thread": 4}})
    with pytest.raises(ConfigError, match=r"unknown key consumer\.thread; did you mean threads") as caught:
        read_settings(app, {})
    assert caught.value.place == f"{__file__}:{inspect.currentframe().f_lineno - 3}"  # type: ignore[union-attr]


@pytest.mark.parametrize("table", ["app", "producer"])
def test_a_group_that_is_no_name_is_refused_where_it_is_set(directory: Path, table: str) -> None:
    text = refused(f'[{table}]\ngroup = "a b"')
    assert text.startswith(f"settings.toml: {table}.group: group 'a b': only letters")


def test_tables_of_plugins_are_checked_like_ours(directory: Path) -> None:
    tables = {"metrics": MetricsConfig}
    found = settings('[metrics]\nport = 1\nhost = "h"', tables=tables, environ={"ROCKETAPP_METRICS__PORT": "2"})
    assert found.plugins["metrics"] == MetricsConfig(port=2, host="h")
    assert found.options(MetricsConfig) is found.plugins["metrics"]
    assert refused("[metrics]\nport = 0", tables=tables) == "settings.toml: metrics.port: 0 is below the least, 1"
    assert (
        refused("[metrics]\nport = 1")
        == "settings.toml: unknown table [metrics]; known are app, broker, client, consumer, producer"
    )
    with pytest.raises(LookupError, match="no table of settings is a MetricsConfig"):
        Settings().options(MetricsConfig)


def test_a_command_without_an_app_passes_over_tables_of_plugins(directory: Path) -> None:
    assert settings("[metrics]\nport = 1\n[app]\ngroup = 'g'", only_known=True).app.group == "g"
    assert "unknown key app.grop" in refused("[app]\ngrop = 1", only_known=True)


def test_dynaconf_is_imported_only_when_there_is_something_to_read(directory: Path) -> None:
    program = (
        "import sys; from rocketapp.app.sources import load_settings; load_settings(None, {}, {}, {});"
        "print('dynaconf' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("value", "problem"),
    [("@int x", "Cannot convert 'x'"), ("@format {env[NOWHERE]}", "NOWHERE"), ("@get nowhere", "nowhere")],
)
def test_what_dynaconf_cannot_evaluate_is_told_with_its_file(directory: Path, value: str, problem: str) -> None:
    text = refused(f'[app]\nversion = "{value}"\n')
    assert text.startswith("settings.toml: ")
    assert problem in text


@pytest.mark.parametrize(
    ("value", "problem"), [("@int x", "Cannot convert 'x'"), ("@format {env[HOME]}", "@format is for files")]
)
def test_what_dynaconf_cannot_evaluate_is_told_with_its_variable(directory: Path, value: str, problem: str) -> None:
    text = refused(environ={"ROCKETAPP_APP__VERSION": value})
    assert text.startswith("ROCKETAPP_APP__VERSION: ")
    assert problem in text


def test_a_settings_file_that_is_a_link_to_nowhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("settings.toml").symlink_to("nowhere.toml")
    with pytest.raises(ConfigError, match=r"settings\.toml: cannot be read: No such file"):
        load_settings(None, {}, {}, {}, code_place="app.py:1")
