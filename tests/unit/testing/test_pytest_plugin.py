"""The pytest plugin: what it gives to tests, and that it is not there for others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SHOP = """
from rocketapp import Message, RocketApp

def shop():
    app = RocketApp("shop")

    @app.subscribe("orders")
    async def settle(message: Message) -> None: ...

    return app
"""


def pytest_run(folder: Path, test: str, *options: str) -> str:
    """What pytest says of this file, in a folder of its own and with warnings as errors."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "test_shop.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *options]
    root = Path(__file__).parents[3]
    environ = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{folder}"}
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environ)
    return run.stdout + run.stderr


PLUGIN = ("-p", "rocketapp.testing.pytest_plugin", "-p", "no:asyncio")


def test_fixtures_give_an_app_under_test_and_a_broker(tmp_path: Path) -> None:
    test = """
from shop import shop

def test_app_runs(test_app):
    t = test_app(shop(), settings={"consumer": {"retries": 1}})
    t.publish("orders", b"1")
    t.settle()
    assert len(t.handled) == 1

def test_broker_serves(rocketapp_broker):
    import socket
    host, port = rocketapp_broker.split(":")
    socket.create_connection((host, int(port))).close()
"""
    assert "2 passed" in pytest_run(tmp_path, test, *PLUGIN)


ASYNC = """
import pytest
from rocketapp.testing import TestApp
from shop import shop

{mark}
async def test_app_runs():
    async with TestApp(shop()) as t:
        await t.publish("orders", b"1")
        await t.settle()
        assert len(t.handled) == 1
"""


def test_the_async_form_runs_with_pytest_asyncio_in_both_modes(tmp_path: Path) -> None:
    marked = ASYNC.format(mark="@pytest.mark.asyncio")
    scope = ("-o", "asyncio_default_fixture_loop_scope=function")
    assert "1 passed" in pytest_run(tmp_path, ASYNC.format(mark=""), "-o", "asyncio_mode=auto", *scope)
    assert "1 passed" in pytest_run(tmp_path, marked, "-o", "asyncio_mode=strict", *scope)


def test_the_async_form_runs_in_a_loop_that_no_plugin_made(tmp_path: Path) -> None:
    test = ASYNC.format(mark="") + "\ndef test_by_hand():\n    import asyncio\n    asyncio.run(test_app_runs())\n"
    assert "1 passed" in pytest_run(tmp_path, test, "-p", "no:asyncio", "-k", "by_hand")


def test_who_uses_none_of_it_imports_none_of_it(tmp_path: Path) -> None:
    test = """
import sys

def test_nothing_is_imported():
    found = [name for name in sys.modules if name.startswith("rocketapp.")]
    assert set(found) == {"rocketapp.lazy_names", "rocketapp.testing", "rocketapp.testing.pytest_plugin"}
"""
    assert "1 passed" in pytest_run(tmp_path, test, *PLUGIN)
