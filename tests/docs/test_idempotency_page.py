"""docs/idempotency.md lists every option with its default."""

from __future__ import annotations

import re
from dataclasses import fields

from rocketapp.plugins.idempotency.config import IdempotencyConfig
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs/idempotency.md").read_text()


def test_every_option_is_listed_with_its_default() -> None:
    table = TEXT.partition("## Options")[2].partition("## ")[0]
    config = IdempotencyConfig()
    told = re.findall(r"^\| `(\w+)` \| `(.*?)` \|", table, re.MULTILINE)
    values = [(field.name, getattr(config, field.name)) for field in fields(config)]
    assert told == [(name, f'"{value}"' if isinstance(value, str) else str(value)) for name, value in values]
