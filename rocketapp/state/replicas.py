"""Which replica of a broker is read: the master, the slave that it suggested, or a slave in place of the master."""

from __future__ import annotations

from collections.abc import Collection

from rocketapp.model.route import MASTER_ID


def reader(known: Collection[int], wanted: int) -> int:
    """The id of the copy to pull from when a broker suggested `wanted`, among the copies that are known.

    As Java's client chooses: the one that was suggested, the one after it, or any. The master when none is known.
    """
    if wanted in known:
        return wanted
    if wanted != MASTER_ID and wanted + 1 in known:
        return wanted + 1
    return min(known, default=MASTER_ID)


def slaves(known: Collection[int], connected: Collection[int]) -> list[int]:
    """The slaves that may replace the master, best first: connected ones, then by id."""
    return sorted((one for one in known if one != MASTER_ID), key=lambda one: (one not in connected, one))
