"""`rocketapp plugins`: what it shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Here, Start

SOURCE = """
from rocketapp.plugin import hookimpl

class Audit:
    @hookimpl
    def message_filter(self, subscription): return None
    @hookimpl
    def app_startup(self, app): pass

app = RocketApp("shop", plugins=[Audit])
"""


def test_plugins_shows_name_version_hooks_order_and_what_is_disabled(
    here: Here, write_app: Callable[[str], None], folder: Path
) -> None:
    write_app(SOURCE)
    (folder / "extra.py").write_text("from rocketapp.plugin import hookimpl\n@hookimpl\ndef app_shutdown(): pass\n")
    (folder / "settings.toml").write_text('[app]\nplugins = ["extra"]\ndisabled_plugins = ["logs"]\n')
    shown = here("plugins", "app")
    shown.ends(0)
    lines = shown.out.splitlines()
    first = next(number for number, line in enumerate(lines) if "extra" in line)
    assert lines[first].split()[1:] == ["extra", "(extra;", "settings)"]
    assert lines[first + 1].split() == ["app_shutdown"]
    assert lines[first + 2].split()[1:] == ["app.Audit", "(app;", "code)"]
    assert lines[first + 3].strip() == "app_startup, message_filter"
    assert lines[-1].strip() == "-  logs  (rocketapp 0.1.0; entry point)  disabled"
    as_json = here("plugins", "app", "--json")
    as_json.ends(0)
    found = json.loads(as_json.out)["plugins"]
    audit = next(one for one in found if one["name"] == "app.Audit")
    assert (audit["hooks"], audit["origin"], audit["disabled"]) == (["app_startup", "message_filter"], "code", False)


LAYERED = """
from rocketapp.plugin import Wrapper, hookimpl

class Last:
    @hookimpl
    def handler_wrapper(self, subscription):
        return Wrapper(for_async=lambda call: call, for_sync=lambda call: call)

class First:
    @hookimpl
    def message_filter(self, subscription): return lambda message: True

app = RocketApp("shop", plugins=[Last, First])

@app.middleware
async def audit(message, call_next): ...

@app.exception_handler(KeyError)
def known(message, error): ...

@app.subscribe("orders", idempotent=True, timeout=2.5)
@app.publishes("bills")
async def settle(order: dict, message: Message): ...

@app.poll("stock", every=5)
async def count(pull: Pull): ...
"""


def test_plugins_shows_what_stands_around_each_handler(
    here: Here, write_app: Callable[[str], None], folder: Path
) -> None:
    write_app(LAYERED)
    (folder / "settings.toml").write_text("[app]\nlog_context = true\n")
    shown = here("plugins", "app")
    shown.ends(0)
    lines = shown.out.splitlines()
    at = lines.index("around app:settle, topic orders, group shop:")
    assert lines[at + 1 :] == [
        "  telemetry    log_context",
        "  filter       app.First",
        "  idempotency  idempotency",
        "  answer       publishes bills",
        "  exceptions   KeyError",
        "  middleware   app.Last, app:audit",
        "  arguments    order, message",
        "  timeout      2.5 s",
        "around app:count, topic stock, group shop:",
        "  telemetry    log_context",
        "  arguments    pull",
    ]
    as_json = here("plugins", "app", "--json")
    found = json.loads(as_json.out)["handlers"][1]
    assert found["layers"][-1] == {"layer": "arguments", "of": "pull"}


def test_a_plugin_that_fails_is_shown_and_the_others_too(here: Here, folder: Path) -> None:
    (folder / "settings.toml").write_text('[app]\nplugins = ["missing"]\n')
    shown = here("plugins")
    shown.ends(2)
    assert "FAILED: missing could not be loaded: ModuleNotFoundError" in shown.out
    assert "observe_events" in shown.out


BROKEN = """
from rocketapp.plugin import hookimpl

class Broken:
    @hookimpl
    def {hook}(self): raise KeyError("token")

app = RocketApp("shop", plugins=[Broken])

@app.subscribe("orders")
async def settle(message): ...

@app.on_startup
async def publish(): await app.publish("paid", b"1")
"""


def last_line(hook: str) -> str:
    return f"rocketapp: plugin app.Broken: {hook} raised KeyError: 'token'"


@pytest.mark.parametrize("hook", ["options", "observe_events", "handler_wrapper", "publish_wrapper"])
def test_a_hook_that_raises_before_anything_runs_is_wrong_configuration_and_named(
    start: Start, write_app: Callable[[str], None], hook: str
) -> None:
    write_app(BROKEN.format(hook=hook))
    run = start("run", "app:app", "--name-server", "127.0.0.1:1")
    run.ends(2)
    assert run.err.splitlines()[-1] == last_line(hook)


def test_a_startup_hook_that_raises_may_succeed_the_next_time(start: Start, write_app: Callable[[str], None]) -> None:
    write_app(BROKEN.format(hook="app_startup"))
    run = start("run", "app:app")
    run.ends(1)
    assert run.err.splitlines()[-1] == last_line("app_startup")
