"""docs/telemetry.md lists every metric that there is."""

from __future__ import annotations

import re

from rocketapp.model import conventions
from rocketapp.model.metrics import metrics_of
from rocketapp.model.snapshot import AppSnapshot
from rocketapp.plugins.counts import DISTRIBUTIONS, Counts, messages_by
from tests.docs.pages import ROOT

NOTHING = AppSnapshot(cache_limit_bytes=1, groups=())

TEXT = (ROOT / "docs/telemetry.md").read_text()


def test_every_metric_is_listed_with_its_kind_unit_and_meaning() -> None:
    listed = re.findall(r"^\| `([\w.]+)` \| (\w+) \| (\w+) \| (.*) \|$", TEXT, re.MULTILINE)
    figures = [
        (each.name, each.kind, each.unit.strip("{}"), each.meaning)
        for each in (*metrics_of(NOTHING), *messages_by(Counts()))
    ]
    assert listed == [*figures, *((each.name, "histogram", "s", each.meaning) for each in DISTRIBUTIONS)]


def test_every_attribute_is_listed() -> None:
    names = [value for name, value in vars(conventions).items() if name.isupper() and isinstance(value, str)]
    attributes = {name for name in names if "." in name and ":" not in name and not name.startswith("_")}
    metrics = {each.name for each in (*metrics_of(NOTHING), *messages_by(Counts()), *DISTRIBUTIONS)}
    assert {name for name in attributes - metrics if f"`{name}`" not in TEXT} == {"messaging.rocketmq"}
