"""A topic and a table of its own for each test."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from sink_shop import Shop

_numbers = itertools.count()


@pytest.fixture
def shop(rocketapp_broker: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shop:
    """On the broker of the tests."""
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", rocketapp_broker)
    monkeypatch.setenv("ROCKETAPP_CONSUMER__CRASH_DIR", "")
    monkeypatch.setenv("ROCKETAPP_CONSUMER__JOIN_TIMEOUT", "0")
    # Broker and app share this process: on a busy machine a short timeout stores bad rows twice.
    monkeypatch.setenv("ROCKETAPP_PRODUCER__SEND_TIMEOUT", "60")
    return Shop(f"orders-{next(_numbers)}", tmp_path / "table")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """The files and directories that were forced to the disk."""
    found, fsync = set[Path](), os.fsync

    def noted(handle: int) -> None:
        found.add(Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    return found
