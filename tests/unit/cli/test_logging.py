"""What `rocketapp run` logs, and where: a configuration of one's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Start

WriteApp = Callable[[str], None]

APP = """
import logging

@app.subscribe("orders", start="first")
async def settle(message):
    logging.getLogger("shop.db").debug("asked")
    logging.getLogger("shop.web").debug("answered")

@app.on_startup
async def first():
    await app.publish("orders", "one")
"""
TABLE = """
[formatters.lines]
"()" = "rocketapp.plugins.log_format.make_formatter"
kind = "json"

[handlers.file]
class = "logging.FileHandler"
filename = "shop.log"
formatter = "lines"

[loggers."shop.db"]
level = "DEBUG"

[root]
handlers = ["file"]
level = "INFO"
"""
INI = """
[loggers]
keys = root
[handlers]
keys = file
[formatters]
keys = lines
[formatter_lines]
format = {"message": "%(message)s", "process": "%(processName)s"}
[handler_file]
class = FileHandler
args = ("shop.log",)
formatter = lines
[logger_root]
handlers = file
level = INFO
"""


@pytest.mark.parametrize(("name", "text"), [("log.toml", TABLE), ("log.ini", INI)])
def test_a_configuration_of_ones_own_holds_in_every_process(
    start: Start, write_app: WriteApp, folder: Path, name: str, text: str
) -> None:
    write_app(APP)
    (folder / name).write_text(text)
    run = start("run", "app:app", "--exit-when-idle", "0.5", "--workers", "2", "--log-config", name)
    run.ends(0)
    assert run.err == ""
    lines = [json.loads(line) for line in (folder / "shop.log").read_text().splitlines()]
    assert {"worker 1", "worker 2", "broker"} <= {line.get("process") for line in lines}
    messages = [line["message"] for line in lines]
    assert any("started, process" in message for message in messages)
    assert ("asked" in messages) == (name == "log.toml") and "answered" not in messages
