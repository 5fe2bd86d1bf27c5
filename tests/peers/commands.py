"""`rocketapp` commands that run in this process: a process of its own for each takes most of a second."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any, NamedTuple

from rocketapp.cli.main import run_command


class Said(NamedTuple):
    """What a command printed."""

    out: str
    err: str


class Commands:
    """Commands on one cluster."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server

    def run(self, *arguments: str, code: int | None = 0) -> Said:
        """Run one that ends with this exit code; None takes any."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            ended = run_command([*arguments, "--name-server", self._name_server])
        assert code is None or ended == code, (arguments, ended, out.getvalue(), err.getvalue())
        return Said(out.getvalue(), err.getvalue())

    def json(self, *arguments: str) -> Any:
        """The document that it prints."""
        return json.loads(self.run(*arguments, "--json").out)
