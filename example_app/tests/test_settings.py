"""Each environment holds what it needs, and a wrong one does not start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from example_app.app import app
from example_app.audit import AuditOptions
from example_app.options import ShopOptions
from rocketapp import ConfigError
from rocketapp.testing import TestApp

FILE = Path(__file__).parents[1] / "settings.toml"


def test_development_has_all_that_the_file_says() -> None:
    with TestApp(app, settings_file=str(FILE), settings={"app": {"http": ""}, "shop": {"console_spans": False}}):
        assert app.options(ShopOptions).demo_orders == 6
        assert app.options(AuditOptions).handlers == ("charge",)


@pytest.mark.parametrize(
    ("shop", "problem"),
    [
        ({"outside": "http"}, "set ROCKETAPP_SHOP__BANK_URL, ROCKETAPP_SHOP__BANK_KEY, ROCKETAPP_SHOP__CARRIER_URL"),
        ({"outside": "post"}, "'post' is not one of demo, http"),
        ({"timeout": 0}, "below the least"),
        ({"time_out": 5.0}, "did you mean timeout"),
    ],
    ids=["without what belongs to it", "none of the choices", "out of bounds", "misspelt"],
)
def test_a_wrong_setting_is_refused(shop: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem), TestApp(app, settings={"shop": shop}):
        pass


def config(**variables: str) -> tuple[int, str]:
    """What `rocketapp config` says in this environment: it reads the file as `rocketapp run` does."""
    command = [sys.executable, "-m", "rocketapp", "config", "example_app.app:app", "--settings", str(FILE)]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_production_needs_its_key_and_does_not_show_it() -> None:
    code, said = config(ENV_FOR_DYNACONF="production")
    assert (code, said.strip()) == (2, "rocketapp: shop.outside: 'http' needs bank_key: set ROCKETAPP_SHOP__BANK_KEY")
    code, said = config(ENV_FOR_DYNACONF="production", ROCKETAPP_SHOP__BANK_KEY="open sesame")
    assert code == 0
    assert 'shop.outside = "http"' in said
    assert "sesame" not in said
