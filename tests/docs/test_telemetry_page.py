"""docs/telemetry.md lists every metric that there is."""

from __future__ import annotations

import re

from rocketapp.plugins.figures import DISTRIBUTIONS, FIGURES
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs/telemetry.md").read_text()


def test_every_metric_is_listed_with_its_kind_unit_and_meaning() -> None:
    listed = re.findall(r"^\| `([\w.]+)` \| (\w+) \| (\w+) \| (.*) \|$", TEXT, re.MULTILINE)
    figures = [(each.name, each.kind, each.unit.strip("{}"), each.meaning) for each in FIGURES]
    assert listed == [*figures, *((each.name, "histogram", "s", each.meaning) for each in DISTRIBUTIONS)]
