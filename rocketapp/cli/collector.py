"""How Python's garbage collector is set in a process of ours."""

from __future__ import annotations

import gc

_THRESHOLDS = (10_000, 20, 50)
"""Python looks for cycles after 700 new objects; a pull of 32 messages makes that many by itself, and none of them
is a cycle. Imports make a hundred times as many. Ten times rarer costs a few MiB at most."""


def collect_rarely() -> None:
    """At the begin of a process."""
    gc.set_threshold(*_THRESHOLDS)


def settle() -> None:
    """After the start: what is there now stays, so the collector need not look at it again."""
    gc.collect()
    gc.freeze()
