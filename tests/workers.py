"""The processes of a test run are forks of one that has read all tests.

To read them takes 4 s, and to find them again in a fork 1 s.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from execnet import gateway_io

from tests.peers.forks import FORKING, Fork


def fork_workers(arguments: Sequence[str]) -> None:
    """From now on execnet forks where it would start an interpreter. `arguments`: of pytest."""

    class Forked(gateway_io.Popen2IOMaster):
        """A process as execnet talks with it."""

        def __init__(self, _: list[str], execmodel: Any) -> None:
            (read, told), (answered, written) = os.pipe(), os.pipe()
            with ExitStack() as stack:
                into, out, err = (
                    stack.enter_context(os.fdopen(number, mode))
                    for number, mode in ((read, "rb"), (written, "wb"), (os.dup(2), "wb"))
                )
                self.popen = Fork(
                    [],
                    directory=Path.cwd(),
                    environment={**os.environ},
                    into=into,
                    out=out,
                    err=err,
                    program=["-u", "-c", FORKING + gateway_io.popen_bootstrapline, *arguments],
                    imported=["tests.reading"],
                )
            gateway_io.Popen2IO.__init__(self, os.fdopen(told, "wb"), os.fdopen(answered, "rb"), execmodel)

    gateway_io.Popen2IOMaster = Forked
