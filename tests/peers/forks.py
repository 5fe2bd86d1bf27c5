"""`rocketapp` commands as forks of one process that has imported what most of them import: that is most of a start.

The process that forks is started by the first command of a test process, and ends with that. A command with other
variables of those that are read at the start, such as `PYTHONPATH`, is a fork of another such process. What is imported
by which command, and when, can be seen only where a test starts a process itself.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import multiprocessing.connection
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_THE_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC", "PYICEBERG_")
"""First letters of variables that the interpreter, or a module as it is imported, reads once."""
RUN = (
    *("dynaconf", "uvloop", "rocketapp.app.run.lifecycle", "rocketapp.cli.commands.run", "rocketapp.cli.loader"),
    *("rocketapp.cli.processes.broker", "rocketapp.cli.processes.run", "rocketapp.cli.processes.worker"),
    *("rocketapp.cli.main", "rocketapp.cli.cluster", "rocketapp.embedded.embedded"),
    *(f"rocketapp.plugins.{name}" for name in ("avro", "idempotency.plugin", "log_lines", "logs", "protobuf")),
    *("rocketapp.app.app", "rocketapp.plugins.failures", "rocketapp.plugins.telemetry.plugin"),
    *(f"{name}.plugin" for name in ("rocketapp_lake", "rocketapp_pyspark", "rocketapp_redis") if find_spec(name)),
)
"""With these comes nearly all that a broker has imported when it serves, and a plain app at its first message."""
_FORKING = Path(__file__).with_name("forking")
_STATUS = struct.Struct("i")
_one_at_a_time = threading.Lock()
"""Tests use threads."""


class Fork:
    """A command that was started: as `subprocess.Popen` is used."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str],
        out: IO[bytes],
        err: IO[bytes],
        new_session: bool = False,
        program: Sequence[str] = ("-m", "rocketapp"),
        imported: Sequence[str] = RUN,
    ) -> None:
        """Run `python PROGRAM ARGUMENTS` in a directory, with these variables and no others but a longer PYTHONPATH.

        The program finds the modules `imported` imported.
        """
        path = os.pathsep.join(filter(None, [str(_FORKING), environment.get("PYTHONPATH")]))
        environment = {**environment, "PYTHONPATH": path}
        self.args = [*program, *arguments]
        self.returncode: int | None = None
        self._ended, ended = os.pipe()
        try:
            request = {
                "arguments": list(arguments),
                "directory": str(directory),
                "environment": environment,
                "ignored": [number for number in HEARD if signal.getsignal(number) == signal.SIG_IGN],
                "new_session": new_session,
            }
            with _one_at_a_time:
                self.pid = _parent(environment, program, imported).fork(request, [out.fileno(), err.fileno(), ended])
        finally:
            os.close(ended)

    def __del__(self) -> None:
        os.close(self._ended)

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises `subprocess.TimeoutExpired`."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and multiprocessing.connection.wait([self._ended], seconds):
            with _one_at_a_time:
                if self.returncode is None:
                    told = os.read(self._ended, _STATUS.size)
                    assert told, "the process that forks has ended"
                    (self.returncode,) = _STATUS.unpack(told)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing happens when it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Parent:
    """The process that forks, seen from the tests. It ends when its socket is closed, and what it has forked too."""

    def __init__(self, environment: Mapping[str, str], program: Sequence[str], imported: Sequence[str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, *program],
            pass_fds=[theirs.fileno()],
            env={
                **environment,
                "ROCKETAPP_TESTS_FORK": str(theirs.fileno()),
                "ROCKETAPP_TESTS_IMPORT": " ".join(imported),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def fork(self, request: Mapping[str, Any], descriptors: list[int]) -> int:
        """The process id of a new command."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        answer = self._socket.recv(64)
        assert answer, f"the process that forks has ended with {self._process.wait(10)}"
        return int(answer)


_parents: dict[tuple[str, ...], _Parent] = {}
"""By the program, its imports, and the variables that an interpreter or its C library reads as it starts."""


def _parent(environment: Mapping[str, str], program: Sequence[str], imported: Sequence[str]) -> _Parent:
    read = (f"{name}={value}" for name, value in environment.items() if name.startswith(_AT_THE_START))
    key = (*program, *imported, *sorted(read))
    if key not in _parents:
        _parents[key] = _Parent(environment, program, imported)
    return _parents[key]
