"""The pytest plugin: what it gives to tests, and that it is not there for others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOP = """
from rocketapp import Message, RocketApp

def shop():
    app = RocketApp("shop")

    @app.subscribe("orders")
    async def settle(message: Message) -> None: ...

    return app
"""


PLUGINS = ("-p", "no:cacheprovider", "-p", "no:randomly")


def pytest_run(folder: Path, test: str, *options: str) -> str:
    """What pytest says of this file, in a folder of its own and with warnings as errors."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "test_shop.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-vv", "-W", "error", *PLUGINS, *options]
    root = Path(__file__).parents[3]
    environ = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{folder}"}
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environ)
    return run.stdout + run.stderr


WITHOUT_A_LOOP = """
import asyncio
import socket
import sys

def test_nothing_is_imported():
    found = [name for name in sys.modules if name.startswith("rocketapp.")]
    assert set(found) == {"rocketapp.lazy_names", "rocketapp.testing", "rocketapp.testing.pytest_plugin"}

def test_app_runs(test_app):
    from shop import shop
    t = test_app(shop(), settings={"consumer": {"retries": 1}})
    t.publish("orders", b"1")
    t.settle()
    assert len(t.handled) == 1

def test_broker_serves(rocketapp_broker):
    host, port = rocketapp_broker.split(":")
    socket.create_connection((host, int(port))).close()

def test_by_hand():
    from rocketapp.testing import TestApp
    from shop import shop

    async def app_runs():
        async with TestApp(shop()) as t:
            await t.publish("orders", b"1")
            await t.settle()
            assert len(t.handled) == 1

    asyncio.run(app_runs())
"""
WITH_A_LOOP = """
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


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one run says of the tests that need no loop of pytest's."""
    options = ("-p", "rocketapp.testing.pytest_plugin", "-p", "no:asyncio")
    return pytest_run(tmp_path_factory.mktemp("shop"), WITHOUT_A_LOOP, *options)


def test_fixtures_give_an_app_under_test_and_a_broker(said: str) -> None:
    assert "::test_app_runs PASSED" in said
    assert "::test_broker_serves PASSED" in said


def test_the_async_form_runs_in_a_loop_that_no_plugin_made(said: str) -> None:
    assert "::test_by_hand PASSED" in said


def test_who_uses_none_of_it_imports_none_of_it(said: str) -> None:
    assert "::test_nothing_is_imported PASSED" in said


@pytest.mark.parametrize(("mode", "mark"), [("auto", ""), ("strict", "@pytest.mark.asyncio")])
def test_the_async_form_runs_with_pytest_asyncio(mode: str, mark: str, tmp_path: Path) -> None:
    scope = ("-o", "asyncio_default_fixture_loop_scope=function")
    assert "1 passed" in pytest_run(tmp_path, WITH_A_LOOP.format(mark=mark), "-o", f"asyncio_mode={mode}", *scope)
