"""Tells an embedded broker when the last worker has ended, also when their parent was killed.

A pipe: each worker holds its writing end, and writes nothing. The broker reads its end when the
parent and every worker are gone, however they ended. Until then workers that drain commit.
"""

from __future__ import annotations

import os
import select


class Presence:
    """The parent's pipe: workers are started with `writing`, the broker with `reading`."""

    def __init__(self) -> None:
        self.reading: int
        self.writing: int
        self.reading, self.writing = os.pipe()

    def close(self) -> None:
        """When all children have ended."""
        os.close(self.reading)
        os.close(self.writing)


def hold(writing: int) -> None:
    """In a worker: what user code starts does not count as a worker."""
    os.set_inheritable(writing, False)


def await_absence(reading: int, timeout: float) -> None:
    """In the broker: wait until all holders have ended, for `timeout` seconds at most."""
    select.select([reading], [], [], timeout)
