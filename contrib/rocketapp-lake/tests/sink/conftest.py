"""What tests of sinks share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import s3
from sink_shop import landing, shop

__all__ = ["endpoint", "landing", "shop", "synced"]


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """The address of an S3 server, whose start takes a second: each test has a folder of its own in its bucket."""
    with s3.serving() as address:
        yield address


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """The files and directories that were forced to the disk."""
    found, fsync = set[Path](), os.fsync

    def noted(handle: int) -> None:
        found.add(Path(f"/proc/self/fd/{handle}").readlink())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    return found
