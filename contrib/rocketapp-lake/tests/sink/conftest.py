"""What tests of sinks share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sink_shop import shop

__all__ = ["shop", "synced"]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """The files and directories that were forced to the disk."""
    found, fsync = set[Path](), os.fsync

    def noted(handle: int) -> None:
        found.add(Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    return found
