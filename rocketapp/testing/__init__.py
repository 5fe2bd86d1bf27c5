"""What a test of handlers needs: an app in virtual time, messages, calls. The public names and nothing else.

Each name is imported at its first use, so that pytest, which imports this room with the plugin, starts as fast as
without it.
"""

from typing import TYPE_CHECKING, Any

from rocketapp.lazy_names import imported

if TYPE_CHECKING:
    from rocketapp.testing.app import AsyncTestedApp, StartTestApp, TestApp, TestedApp
    from rocketapp.testing.calling import call, call_sync, make_message
    from rocketapp.testing.contracts import check_allocation, check_codec, check_idempotency_store, check_offset_store
    from rocketapp.testing.faults import Faults
    from rocketapp.testing.records import Dead, Done, Dropped, Handled, Published, Retried
    from rocketapp.testing.virtual_time import StandstillError

_HOMES = {
    "rocketapp.testing.app": "AsyncTestedApp StartTestApp TestApp TestedApp",
    "rocketapp.testing.calling": "call call_sync make_message",
    "rocketapp.testing.contracts": "check_allocation check_codec check_idempotency_store check_offset_store",
    "rocketapp.testing.faults": "Faults",
    "rocketapp.testing.records": "Dead Done Dropped Handled Published Retried",
    "rocketapp.testing.virtual_time": "StandstillError",
}
"""By module the names that it is the home of."""

__all__ = [
    "AsyncTestedApp",
    "Dead",
    "Done",
    "Dropped",
    "Faults",
    "Handled",
    "Published",
    "Retried",
    "StandstillError",
    "StartTestApp",
    "TestApp",
    "TestedApp",
    "call",
    "call_sync",
    "check_allocation",
    "check_codec",
    "check_idempotency_store",
    "check_offset_store",
    "make_message",
]


def __getattr__(name: str) -> Any:
    return imported(__name__, globals(), _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
