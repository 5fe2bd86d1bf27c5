"""What the parent of workers has by the settings: a limit of the drain, an embedded broker, what `--http` serves.

The parent runs no code of the app, so what `RocketApp(settings=...)` says is told by a worker, and settings are read
again with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketapp.cli.logs import set_up_logging
from rocketapp.cli.processes.broker import names_of, parse_listen
from rocketapp.cli.processes.edits import Edits
from rocketapp.cli.processes.keeper import BrokerKeeper
from rocketapp.cli.processes.stop import SLACK, ProcessStop
from rocketapp.cli.settings import read_settings

if TYPE_CHECKING:
    from rocketapp.app.settings.settings import Settings
    from rocketapp.cli.processes.operation import ParentDesk, Served


class ParentParts:
    """Of one parent; for its event loop."""

    def __init__(
        self,
        app: str,
        settings: Settings,
        common: Mapping[str, Any],
        *,
        workers: int,
        presence: int,
        stop: ProcessStop,
        edits: Edits | None,
    ) -> None:
        """`common`: what every child is told, with the command line's settings among it.

        Raises CommandError for an address that cannot be used.
        """
        self._app, self._common, self._workers = app, common, workers
        self._presence, self._stop, self._edits = presence, stop, edits
        self._told, self._served = "", list["Served"]()
        self.drain_timeout: float
        self.desk: ParentDesk | None = None
        self.keeper: BrokerKeeper = make_keeper(common, settings, presence=presence)
        self._use(settings)

    def __repr__(self) -> str:
        return f"<ParentParts {self.keeper!r}{' with a desk' if self.desk else ''}>"

    def adopt(self, told: str, *, is_first: bool) -> None:
        """Go by what a worker tells of its app as well; `is_first`: no broker was asked for yet.

        Raises CommandError.
        """
        if not told or told == self._told:
            return
        self._told, code = told, json.loads(told)
        if not code["settings"]:
            return
        settings = read_settings(self._common["overrides"], file=self._common["settings"], code=code)
        set_up_logging(settings.app, file=self._common["log_config"])
        if is_first:
            self.keeper = make_keeper(self._common, settings, code=code, presence=self._presence)
        self._use(settings)

    def close(self) -> None:
        """When all processes have ended."""
        for served in self._served:
            served.close()

    def _use(self, settings: Settings) -> None:
        self.drain_timeout = settings.app.drain_timeout
        # Workers watch their own drain; the parent is watched for the case that it cannot end them.
        self._stop.drain_timeout = self.drain_timeout + 2 * SLACK
        if self._edits is not None:
            self._edits.drain_timeout = self.drain_timeout
        if settings.app.http and self.desk is None:
            from rocketapp.cli.processes.operation import ParentDesk, Served

            desk = ParentDesk(self._app, settings, self._workers, self._stop)
            served = Served(settings, desk)
            desk.viewed = served.started
            self._served.append(served)
            self.desk = desk


def make_keeper(
    common: Mapping[str, Any],
    settings: Settings,
    *,
    code: Mapping[str, Any] | None = None,
    presence: int | None = None,
) -> BrokerKeeper:
    """Of the embedded broker that these settings want; nothing is started yet. `code`: `code_of` the app."""
    names = names_of(settings, dir="--embedded", listen="broker.listen")
    parse_listen(settings.broker.listen, names["listen"])
    return BrokerKeeper(
        Path(settings.broker.dir),
        listen=settings.broker.listen,
        # An address that the user chose is meant; the usual one is a suggestion.
        or_free_port=settings.source_of("broker", "listen") == "default",
        spec={**common, "names": names, "code": code},
        timeout=settings.app.connect_timeout,
        environment=settings.environment,
        presence=presence,
    )
