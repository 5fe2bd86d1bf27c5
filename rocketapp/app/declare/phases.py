"""The two phases of an app: first everything is declared, then it runs. This is what a run knows of its app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from rocketapp.app.declare.adjusting import LimitChange
from rocketapp.app.declare.declared import Declared
from rocketapp.app.declare.pausing import PauseChange
from rocketapp.app.places import place_of_call
from rocketapp.app.publish.publishing import Publishing, Running
from rocketapp.errors import SetupError

K = TypeVar("K")


class RunningApp(Running, Protocol):
    """The running half of an app: there between start and stop."""

    def change_pauses(self, change: PauseChange) -> None:
        """Pause or resume. Raises SetupError for unknown names. May be called from any thread."""
        ...

    def adjust(self, change: LimitChange) -> None:
        """Change limits. Raises SetupError for what cannot be changed. May be called from any thread."""
        ...


class TwoPhases:
    """What an app declared, and its run while there is one."""

    def __init__(self, declared: Declared) -> None:
        self.name: str = declared.name
        self._declared = declared
        self._pause_changes: list[PauseChange] = []
        """Calls of `pause` and `resume` before the start, in order."""
        self._running: RunningApp | None = None
        self._kept: dict[type[Any], Any] = {}
        self._publishing = Publishing(self._must_run, payloads=declared.payloads)

    def _check_complete(self) -> None:
        """Raise SetupError for a declaration that lacks its other half."""

    def _alive(self) -> RunningApp | None:
        """The run, unless its event loop was closed under it: then nothing of it can ever end in order."""
        running = self._running
        return None if running is None or running.loop.is_closed() else running

    def _change_pauses(self, change: PauseChange) -> None:
        running = self._alive()
        if running is None:
            self._pause_changes.append(change)
        else:
            running.change_pauses(change)

    def _adjust(self, change: LimitChange) -> None:
        running = self._alive()
        if running is None:
            change.refuse(
                f"app {self.name!r} is not running: set limits in the settings, or at subscribe, before it starts"
            )
        else:
            running.adjust(change)

    def _refuse_when_running(self, what: str) -> None:
        if self._alive() is not None:
            raise SetupError(
                place_of_call(), f"{what} came when app {self.name!r} had started: declare everything before it runs"
            )

    def _must_run(self) -> RunningApp:
        running = self._alive()
        if running is None:
            raise SetupError(
                place_of_call(),
                f"app {self.name!r} is not running: publish from handlers, on_startup or on_shutdown functions, "
                "or inside `async with app:`",
            )
        return running


def declared_of(app: TwoPhases) -> Declared:
    """What was declared on an app: for lifecycle, the command line and the kit, not for users."""
    return app._declared


def pauses_of(app: TwoPhases) -> Sequence[PauseChange]:
    """The calls of `pause` and `resume` before the start, in order."""
    return tuple(app._pause_changes)


def kept(app: TwoPhases, kind: type[K]) -> K:
    """The one object of this class that belongs to the app; made at the first call."""
    found: K = app._kept.setdefault(kind, kind())
    return found


def is_running(app: TwoPhases) -> bool:
    """Whether it has begun and not ended."""
    return app._running is not None


def begin(app: TwoPhases, running: RunningApp) -> None:
    """From now on publishing works and nothing more is declared.

    A run whose event loop was closed is over.

    Raises SetupError when the app runs already, and for a declaration that lacks its other half.
    """
    if app._alive() is not None:
        raise SetupError(place_of_call(), f"app {app.name!r} is running already: stop it first")
    app._check_complete()
    app._running = running


def end(app: TwoPhases) -> None:
    """Nothing runs any more."""
    app._running = None
