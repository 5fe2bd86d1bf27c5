"""Cuts, a stall and a slow link between an embedded master and a slave of Apache RocketMQ, and 50 MB behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import need_java
from tests.faults.conftest import Tell
from tests.faults.links import links

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_what_happens_on_the_way_to_a_slave_changes_no_byte(tmp_path: Path, tell: Tell) -> None:
    need_java()
    figures = tell(links(tmp_path, faults=3, heads=1, megabytes=50))
    assert figures["equal_bytes"] == figures["log_bytes"]
