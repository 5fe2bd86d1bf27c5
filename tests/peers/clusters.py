"""The two brokers that everything is tested against, as processes: Apache RocketMQ, and our embedded one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import random
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from tests.peers import toolchain
from tests.peers.bare import GET_ROUTE, Bare
from tests.peers.forks import Fork
from tests.peers.waiting import wait_until


class Cluster(Protocol):
    """A running name server and broker."""

    @property
    def name(self) -> str:
        """`apache` or `embedded`."""
        ...

    @property
    def name_server(self) -> str:
        """`host:port` of the name server."""
        ...

    @property
    def broker_pid(self) -> int:
        """The process id of the broker, for its figures."""
        ...

    def stop(self) -> None:
        """End what was started."""
        ...

    def kill_broker(self) -> None:
        """`kill -9` of the broker; of the embedded one that is the name server as well."""
        ...

    def start_again(self) -> None:
        """Start the killed broker again: same directory, same address."""
        ...


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_port(*, around: tuple[int, ...] = (0,)) -> int:
    """A port whose neighbours `port + a for a in around` are free too, below the range that the kernel hands out."""
    chance = random.SystemRandom()
    for _ in range(500):
        port = chance.randrange(20_000, 30_000)
        if all(_is_free(port + offset) for offset in around):
            return port
    raise RuntimeError("no free port")


def _routes_to(name_server: str, address: str, tls: ssl.SSLContext | None) -> bool:
    """Whether the name server knows this broker."""
    with Bare(name_server, tls=tls) as asking:
        return f'"{address}"'.encode() in asking.ask(GET_ROUTE, topic="TBW102").body


class Apache:
    """Apache RocketMQ 5.5.0 from its published jars, in a directory of its own; its store may lie elsewhere."""

    name = "apache"

    def __init__(
        self,
        directory: Path,
        *,
        heap: str = "512m",
        store: Path | None = None,
        name_server: str = "",
        broker_name: str = "broker-a",
        conf: Sequence[str] = (),
        options: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
        lib: Path | None = None,
    ) -> None:
        """Start a name server and a broker; with `name_server`, only one more broker, which joins that cluster.

        `conf`: more lines of the broker's configuration. `options`: of java, for both. `tls`: how to speak to servers
        that were told to want it. `lib`: the jars of another version.
        """
        self.directory, self.store, self.broker_name = directory, store or directory / "store", broker_name
        self._tls, self._lib = tls, lib or toolchain.jars()
        self._port = free_port(around=(-2, -1, 0, 1))
        self.name_server = name_server or f"127.0.0.1:{self._port - 1}"
        self.broker_address = f"127.0.0.1:{self._port}"
        ns_port = self.name_server.rpartition(":")[2]
        self._environment = {**os.environ, "HEAP": heap, **({"STORE": str(store)} if store else {})}
        self._environment |= {"CONF": "\n".join(conf), "OPTIONS": " ".join(options)}
        if {*toolchain.BRIEF} <= {*options}:
            self._environment["SLACK"] = str(toolchain.SLACK)
        try:
            if name_server:
                self._script("join", str(self._lib), ns_port, str(self._port), broker_name)
            else:
                self._script("start", str(self._lib), ns_port, str(self._port))
            self.wait_for_routes()
        except BaseException:
            self.stop()  # what has started would stay, for its caller never gets it
            raise

    def wait_for_routes(self) -> None:
        """Wait until the name server routes to the broker; after a restart that may be 10 s after the broker serves."""
        wait_until(
            lambda: _routes_to(self.name_server, self.broker_address, self._tls),
            within=40,
            what="the name server routes to the broker",
            every=0.1,
        )

    def _script(self, verb: str, *arguments: str) -> None:
        command = [str(toolchain.CLUSTER_SCRIPT), verb, str(self.directory), *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")

    @property
    def broker_pid(self) -> int:
        return int((self.directory / "broker.pid").read_text())

    def stop(self) -> None:
        self._script("stop")

    def kill_broker(self) -> None:
        self._script("kill")

    def start_again(self) -> None:
        self._script("bounce", str(self._lib), "0")

    def bounce(self, seconds: float) -> None:
        """Stop the broker politely, leave it away for so long, start it again until it serves."""
        self._script("bounce", str(self._lib), f"{seconds:g}")

    def forget_old_files(self) -> None:
        """Restart the broker without its older files of messages, which it deletes by itself after hours."""
        self._script("forget", str(self._lib))
        self.wait_for_routes()

    def freeze(self) -> None:
        """The broker's process is there and answers nothing: its connections stay open."""
        os.kill(self.broker_pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.broker_pid, signal.SIGCONT)


LOCK_EXPIRY = 40
"""Seconds that the lock of a member that died lives, instead of 60. Members renew theirs every 20 s, and Java's believe
in one for 30 s."""


def of_tests(directory: Path) -> Apache:
    """Start one as tests need it."""
    options = (*toolchain.BRIEF, f"-Drocketmq.broker.rebalance.lockMaxLiveTime={LOCK_EXPIRY * 1000}")
    return Apache(directory, options=options)


class Share:
    """The share of this process in one broker for all that name the same directory.

    The first one starts it. The one that gives the last share back stops it: an idle broker needs a tenth of a core.
    """

    def __init__(self) -> None:
        self._held: tuple[Path, Apache] | None = None

    def take(self, directory: Path) -> Apache:
        """The broker; a share that is there is kept."""
        if self._held is None:
            with _users(directory) as file:
                broker, count = pickle.loads(file.read_bytes()) if file.exists() else (None, 0)
                broker = broker or of_tests(Path(tempfile.mkdtemp(prefix="apache-", dir=directory)))
                file.write_bytes(pickle.dumps((broker, count + 1)))
            self._held = directory, broker
        return self._held[1]

    def give_back(self) -> None:
        """Nothing happens without a share."""
        if self._held is None:
            return
        (directory, broker), self._held = self._held, None
        with _users(directory) as file:
            _, count = pickle.loads(file.read_bytes())
            file.write_bytes(pickle.dumps((broker, count - 1)))
            if count == 1:
                file.unlink()
                broker.stop()


@contextlib.contextmanager
def _users(directory: Path) -> Iterator[Path]:
    """The file with the broker and the number of its users, for this process alone."""
    with (directory / "apache.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory / "apache-and-its-users"


SHARE = Share()


class Embedded:
    """`rocketapp broker` as a process of its own: see `forks`."""

    name = "embedded"

    def __init__(
        self,
        directory: Path,
        *,
        broker_name: str = "broker-a",
        options: Mapping[str, object] = MappingProxyType({}),
        listen: str = "127.0.0.1:0",
    ) -> None:
        """options: of the table `[broker]`."""
        self.directory, self.store, self.broker_name = directory, directory / "data", broker_name
        self._environment = {f"ROCKETAPP_BROKER__{name.upper()}": str(value) for name, value in options.items()}
        self._environment["ROCKETAPP_BROKER__NAME"] = broker_name
        self._process: Fork | None = None
        self.seconds_to_serve = 0.0
        directory.mkdir(parents=True, exist_ok=True)
        self.name_server = self._start(listen)
        self.broker_address = self.name_server

    def _start(self, listen: str) -> str:
        started = time.monotonic()
        out = self.directory / "stdout.txt"
        with out.open("wb") as stdout, (self.directory / "stderr.txt").open("ab") as stderr:
            self._process = Fork(
                ["broker", "--dir", str(self.store), "--listen", listen],
                directory=Path.cwd(),
                environment={**os.environ, **self._environment},
                out=stdout,
                err=stderr,
                new_session=True,
            )
        line = wait_until(
            lambda: self._first_line(out),
            within=20,
            what=lambda: f"the broker serves\n{self.log()}",
            every=0.005,
        )
        self.seconds_to_serve = time.monotonic() - started
        assert line.startswith("serving on "), line
        return line.removeprefix("serving on ").strip()

    def _first_line(self, out: Path) -> str:
        assert self._process is not None
        assert self._process.poll() is None, f"the broker ended with {self._process.returncode}\n{self.log()}"
        text = out.read_text()
        return text.splitlines()[0] if "\n" in text else ""

    def log(self) -> str:
        """The end of what the broker logged."""
        return (self.directory / "stderr.txt").read_text()[-4000:]

    @property
    def broker_pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
            raise AssertionError(f"the broker did not end within 60 s of SIGTERM\n{self.log()}") from None

    def kill_broker(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def start_again(self) -> None:
        self._start(self.name_server)
