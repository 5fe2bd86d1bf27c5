"""A real PostgreSQL and a real MariaDB, one server each for all tests, and SQLite in a file; each test has a database
of its own. The tests with MariaDB are there where the system has a server, and its drivers are installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from rocketapp_sqlalchemy import Database
from tests.peers import databases

DATABASES = ["sqlite", "postgresql", *(["mariadb"] if databases.HAS_MARIADB else [])]


class Urls(NamedTuple):
    """One empty database."""

    sync: str
    asynchronous: str


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with databases.postgresql() as url:
        yield url


@pytest.fixture(scope="session")
def mariadb() -> Iterator[str]:
    with databases.mariadb() as url:
        yield url


@pytest.fixture(params=DATABASES)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Urls:
    if request.param == "sqlite":
        # A writer waits for others: on a busy machine for longer than the usual five seconds.
        place = f"{tmp_path / 'shop.db'}?timeout=60"
        return Urls(f"sqlite:///{place}", f"sqlite+aiosqlite:///{place}")
    if request.param == "mariadb":
        url = databases.create_database(request.getfixturevalue("mariadb"))
        return Urls(url, url.partition("?")[0].replace("+pymysql:", "+asyncmy:", 1))
    url = databases.create_database(request.getfixturevalue("postgres"))
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


@pytest.fixture
def database(engine: Engine, async_engine: AsyncEngine) -> Database:
    return Database(engine, async_engine)
