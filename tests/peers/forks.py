"""`rocketapp` commands as forks of one process that has imported what most of them import: that is most of a start.

The process that forks is started by the first command of a test process, and ends with that. A command with other
variables of the interpreter (`PYTHONPATH` and the like) is a fork of another such process. What is imported by which
command, and when, can be seen only where a test starts a process itself.
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
from pathlib import Path
from typing import IO, Any

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OF_THE_INTERPRETER = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC")
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
    ) -> None:
        """Run `rocketapp ARGUMENTS` in a directory, with these variables and no others."""
        self.args = ["rocketapp", *arguments]
        self.returncode: int | None = None
        self._ended, ended = os.pipe()
        try:
            request = {
                "arguments": list(arguments),
                "directory": str(directory),
                "environment": dict(environment),
                "ignored": [number for number in HEARD if signal.getsignal(number) == signal.SIG_IGN],
                "new_session": new_session,
            }
            with _one_at_a_time:
                self.pid = _parent_for(environment).fork(request, [out.fileno(), err.fileno(), ended])
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

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join(filter(None, [str(_FORKING), environment.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rocketapp"],
            pass_fds=[theirs.fileno()],
            env={**environment, "PYTHONPATH": path, "ROCKETAPP_TESTS_FORK": str(theirs.fileno())},
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


_parents: dict[frozenset[tuple[str, str]], _Parent] = {}
"""By the variables that an interpreter or its C library reads as it starts."""


def _parent_for(environment: Mapping[str, str]) -> _Parent:
    key = frozenset(pair for pair in environment.items() if pair[0].startswith(_OF_THE_INTERPRETER))
    if key not in _parents:
        _parents[key] = _Parent(environment)
    return _parents[key]
