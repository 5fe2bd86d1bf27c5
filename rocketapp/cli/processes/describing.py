"""What `--http` serves as `/docs` and `/asyncapi.json`: made when it is asked for, in a process that has the app.

A parent has no app: it asks one of its workers, which answers from a thread of its own, so that its event loop and its
lifeline go on. The answer is kept until a worker is started anew, perhaps with another app.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketapp.cli.failure import describe
from rocketapp.cli.processes.reports import Report
from rocketapp.errors import RocketAppError, SetupError

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.app.settings.settings import Settings

PATIENCE = 4.0
"""Seconds that a request waits for a worker; a request as a whole has 5."""


def description_of(app: RocketApp, settings: Settings) -> bytes:
    """The AsyncAPI document, as JSON. Raises SetupError and PluginError as a start would."""
    from rocketapp.asyncapi.document import document_of
    from rocketapp.asyncapi.text import encoded

    return encoded(document_of(app, settings), "json").encode()


class Description:
    """What a worker says of the app; for any thread."""

    def __init__(self) -> None:
        self._is_there = threading.Event()
        self._text, self._problem = b"", ""

    def get(self, ask: Callable[[], None]) -> bytes:
        """The document; `ask` asks a worker for it. Raises SetupError when none answers, or it has none."""
        if not self._is_there.is_set():
            ask()
        if not self._is_there.wait(PATIENCE):
            raise SetupError("", "no worker has described the app yet: ask again")
        if self._problem:
            raise SetupError("", self._problem)
        return self._text

    def hear(self, report: Report) -> None:
        """The answer of a worker."""
        self._text, self._problem = report.said.encode(), report.error
        self._is_there.set()

    def forget(self) -> None:
        self._is_there.clear()


def tell_description(app: RocketApp, settings: Settings, tell_parent: Callable[[Report], None]) -> None:
    """Answer the parent, from a thread of its own."""

    def tell() -> None:
        try:
            report = Report("described", said=description_of(app, settings).decode())
        except RocketAppError as error:
            report = Report("described", error=str(error))
        except Exception as error:  # the parent waits for an answer
            report = Report("described", error=describe(error))
        tell_parent(report)

    threading.Thread(target=tell, name="rocketapp-describing", daemon=True).start()
