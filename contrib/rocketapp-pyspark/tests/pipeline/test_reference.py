"""The tables of options say what the declarations say, and every command and link on the pages leads somewhere."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from page_walk import FOLDER, PAGES, blocks, commands, text_of

from pyspark_rocketmq import columns
from pyspark_rocketmq.option_table import OPTIONS, Option
from rocketapp import RocketApp
from rocketapp.cli.main import cli
from rocketapp_lake import LakeConfig, SinkOptions
from rocketapp_lake.assembly import MOST_BAD
from rocketapp_lake.commands import command as sink_command
from rocketapp_pyspark import SparkConfig
from tests.cases import cases

Table = list[list[str]]
MIB = 1024 * 1024


def tables(page: str, header: str) -> Iterator[Table]:
    """The cells of every table with this header."""
    found: Table | None = None
    for line in text_of(page).splitlines():
        if line == header:
            found = []
        elif found is not None and line.startswith("| ") and not line.startswith("| ---"):
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif found is not None and not line.startswith("|"):
            yield found
            found = None


# Sinks.

STANDS_FOR = {
    "table": "required",
    "name": "`app/topic`",
    "group": "`app-sink-topic`",
    "bad_rows_topic": "`<table name>-bad`",
    "bad_rows_max_ratio": str(MOST_BAD),
    "partition_by": "None",
    "sort_by": "None",
    "merge_on": "None",
    "options": "None",
}
"""What a default that is worked out, or is empty, is shown as."""


def arguments() -> dict[str, Any]:
    """Every keyword of `app.sink` with its default."""
    return {one.name: one.default for one in dataclasses.fields(SinkOptions)}


def shown(value: Any) -> str:
    if value is dataclasses.MISSING:
        return "required"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, tuple):
        return f"({', '.join(f'{part:g}' for part in value)})"
    if isinstance(value, int) and value % MIB == 0 and value:
        return f"{value // MIB} MiB"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def test_every_argument_of_a_sink_is_on_its_page_with_its_default() -> None:
    listed = [row for table in tables("SINK.md", "| Argument | Default | Means |") for row in table]
    defaults = {name.strip("`"): default for name, default, _ in listed}
    assert defaults == {name: STANDS_FOR.get(name, shown(value)) for name, value in arguments().items()}
    assert {row[0] for row in listed if not row[2]} == set()


@pytest.mark.parametrize(("page", "config"), [("SINK.md", LakeConfig), (str(FOLDER / "README.md"), SparkConfig)])
def test_the_settings_are_on_the_page_with_what_they_mean(page: str, config: Any) -> None:
    (table,) = tables(page, "| Key | Default | Means |")
    declared = [(field, field.metadata["rocketapp.option"]) for field in dataclasses.fields(config)]
    assert table == [
        [f"`{field.name}`", f"`{field.default}`" if field.default else "none", info.meaning] for field, info in declared
    ]


def test_every_option_of_the_commands_is_on_the_page() -> None:
    (table,) = tables("SINK.md", "| Command | Options | Does |")
    found = {name.split()[2]: set(re.findall(r"`(--[\w-]+)`", options)) for name, options, _ in table}
    assert found == {
        name: {option.opts[0] for option in one.params if isinstance(option, click.Option)}
        for name, one in sink_command.commands.items()
    }


# The data source.

SOURCE_DEFAULTS = {
    "nameServer": "required",
    "subscribe": "one of the three",
    "endingOffsets": "latest",
    "columns": "seven",
    "consumerGroup": "<prefix>-source",
    "tls.caFile": "the system's",
    "maxTriggerDelay": "15m",
}
"""Those that are worked out, or are shown in another form."""


def default_of(option: Option) -> str:
    value = option.default
    text = str(value).lower() if isinstance(value, bool) else "" if value in (None, "") else str(value)
    return SOURCE_DEFAULTS.get(option.name, text)


def test_every_option_of_the_data_source_is_on_its_page_with_its_default() -> None:
    listed = [row for table in tables(str(FOLDER / "README.md"), "| Option | Default | Means |") for row in table]
    found = dict[str, set[str]]()
    for cell, default, _ in listed:
        names = re.findall(r"`([\w.]+)`", cell)
        values = [default] if "but" in default else re.findall(r"`([^`]+)`", default) or [default]
        assert len(values) in (1, len(names)), cell
        for name, value in zip(names, values * len(names), strict=False):
            found.setdefault(name, set()).add(value)
    assert found.pop("startingOffsets") == {"earliest", "latest"}  # of a batch read, and of a stream
    assert found == {option.name: {default_of(option)} for option in OPTIONS if option.name != "startingOffsets"}


def test_the_columns_of_the_data_source_are_on_its_page() -> None:
    page = (FOLDER / "README.md").read_text()
    pattern = r"^Seven columns: (.*?)\. By name: (.*?)\. Compressed"
    usual, others = re.findall(pattern, page, re.MULTILINE | re.DOTALL)[0]
    assert tuple(re.findall(r"`(\w+)`", usual)) == columns.USUAL
    assert re.findall(r"`(\w+)`", others) == [name for name in columns.TYPES if name not in columns.USUAL]
    (written,) = tables(str(FOLDER / "README.md"), "| Column | Type | Means |")
    assert {name for cell, _, _ in written for name in re.findall(r"`(\w+)`", cell)} == set(columns.COLUMNS)


# All pages.


@cases("page", PAGES)
def test_commands_are_such_and_links_lead_somewhere(page: Path) -> None:
    for _, line in commands(str(page)):
        words = shlex.split(line, comments=True)
        if words[0] == "rocketapp":
            parse(words[1:])
    text = page.read_text()
    lost = [target for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text) if not leads(page, target)]
    assert lost == []
    assert [line for line in text.splitlines() if len(line) > 130 and not line.startswith("|")] == []


def parse(words: list[str]) -> None:
    """As the command line would, short of running it."""
    context = click.Context(cli, info_name="rocketapp")
    one = cli.get_command(context, words[0])
    while isinstance(one, click.Group):
        words = words[1:]
        one = one.get_command(context, words[0])
    assert one is not None, words
    one.make_context(words[0], words[1:], parent=context)


def leads(page: Path, target: str) -> bool:
    """Whether the file is there, and the heading in it."""
    name, _, heading = target.partition("#")
    file = page.parent / name if name else page
    if not heading or file.suffix != ".md":
        return file.exists()
    titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(("heading", "number"), blocks("SINK.md", "python"), ids=str)
def test_what_the_page_of_sinks_shows_can_be_declared(
    heading: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    shown = blocks("SINK.md", "python")
    # What the page has above: a type; and an app that has no sink of this topic yet.
    before = RocketApp("shop")
    names: dict[str, Any] = {"__name__": __name__, "app": before, "Order": _order(shown)}
    exec(compile(shown[heading, number], f"SINK.md, {heading}", "exec", dont_inherit=True), names)
    assert names["app"].name == "shop"


def _order(shown: dict[tuple[str, int], str]) -> Any:
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(shown["From a topic into a table", 0], "SINK.md", "exec", dont_inherit=True), names)
    return names["Order"]
