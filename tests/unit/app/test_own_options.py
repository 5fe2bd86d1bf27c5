"""An app's own table of settings: `RocketApp(options=ShopOptions)`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rocketapp import ConfigError, Message, RocketApp, SetupError
from rocketapp.app.declare.phases import read_settings
from rocketapp.plugin import ConsumerConfig, option
from rocketapp.testing import TestApp
from tests.unit.app.parts import Diary, container_of, lifecycle_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopOptions:
    currency: str = option("EUR", "What prices are in.", choices=("EUR", "USD"))
    limit: float = option(100.0, "Most of one order.", least=0.0)


@dataclass
class Thawed:
    currency: str = option("EUR", "What prices are in.")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_the_table_is_read_from_everywhere_and_reaches_the_app_and_its_handlers(folder: Path) -> None:
    (folder / "settings.toml").write_text('[client]\nname_server = "h:1"\n[my_shop]\ncurrency = "USD"\n')
    app = RocketApp("my-shop", options=ShopOptions, container=container_of(Diary()))
    seen: list[ShopOptions] = []

    @app.subscribe("orders")
    def settle(message: Message, options: ShopOptions) -> None: ...

    app.on_startup(lambda: seen.append(app.options(ShopOptions)))
    settings = read_settings(app, {"ROCKETAPP_MY_SHOP__LIMIT": "5"})
    lifecycle = lifecycle_of(app, settings=settings)
    await lifecycle.start()
    assert seen == [ShopOptions(currency="USD", limit=5.0)]
    assert app.options(ConsumerConfig) == settings.consumer
    await lifecycle.stop(asyncio.Event())
    with pytest.raises(SetupError, match="its settings are read when it starts"):
        app.options(ShopOptions)


async def test_an_argument_of_its_type_gets_the_values() -> None:
    app = RocketApp("shop", options=ShopOptions)
    seen: list[ShopOptions] = []

    @app.subscribe("orders")
    async def settle(message: Message, options: ShopOptions) -> None:
        seen.append(options)

    async with TestApp(app, settings={"shop": {"limit": 7.0}}) as t:
        await t.publish("orders", "1")
        await t.settle()
    assert seen == [ShopOptions(limit=7.0)]


def test_a_value_that_does_not_fit_is_refused_as_everywhere(folder: Path) -> None:
    app = RocketApp("shop", options=("money", ShopOptions))
    for table, problem in [
        ({"currency": "GBP"}, "'GBP' is not one of EUR, USD"),
        ({"limit": "5"}, "not a number"),
        ({"curency": "EUR"}, "unknown key money.curency; did you mean currency?"),
    ]:
        with pytest.raises(ConfigError, match=problem):
            read_settings(app, {}, overrides={"money": table})


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("consumer", ShopOptions, r"table \[consumer\] is taken"),
        ("shop", ("my table", ShopOptions), "'my table' is not a table's name"),
        ("shop", Thawed, "the options are a frozen dataclass"),
        ("shop", 5, "the options are a frozen dataclass"),
    ],
)
def test_what_is_no_table_is_refused_where_the_app_is_made(name: str, options: Any, problem: str) -> None:
    with pytest.raises(SetupError, match=problem) as caught:
        RocketApp(name, options=options)
    assert caught.value.place.startswith(__file__)
