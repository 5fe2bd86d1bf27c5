"""The base class for a user's container that replaces parts of rocketapp.

Imported only for apps that have a container: dependency_injector takes a sixth of the start time.
"""

from __future__ import annotations

from dependency_injector import containers, providers

from rocketapp.clock import Clock
from rocketapp.consumer.offsets.stores import OffsetStore


class Container(containers.DeclarativeContainer):
    """Derive from it and redeclare what shall be yours. A provider that gives None leaves it to us.

    clock: tells the time of day. offset_store: keeps the offsets of all groups, in place of brokers and plugins.
    """

    clock: providers.Provider[Clock | None] = providers.Object(None)
    offset_store: providers.Provider[OffsetStore | None] = providers.Object(None)
