"""What a running `rocketapp run --http` answers."""

from __future__ import annotations

import http.client
import re
from typing import NamedTuple
from urllib.parse import urlencode

from prometheus_client.parser import text_string_to_metric_families

from tests.unit.cli.processes import LIMIT, Command, wait_until


class Answered(NamedTuple):
    """One answer."""

    status: int
    text: str


class Http:
    """One app, or one broker. Any port is taken, so the log says where it serves."""

    def __init__(self, run: Command, *, of: str = "app") -> None:
        self.address = run.says(rf"http://(127\.0\.0\.1:\d+) tells how the {of} does")[1]

    def get(self, path: str) -> Answered:
        return self._ask("GET", path)

    def post(self, path: str, **fields: str) -> Answered:
        return self._ask("POST", path, urlencode(fields))

    def becomes(self, path: str, status: int, pattern: str = "") -> Answered:
        """Wait for this status with this text."""
        answers: list[Answered] = []

        def look() -> bool:
            answers.append(self.get(path))
            return answers[-1].status == status and re.search(pattern, answers[-1].text) is not None

        wait_until(look, f"{path} with {status} and {pattern!r}: {answers[-1:]}", every=0.1)
        return answers[-1]

    def metrics(self) -> dict[str, float]:
        """The sum of each sample's name."""
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("/metrics").text):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found

    def _ask(self, method: str, path: str, body: str | None = None) -> Answered:
        connection = http.client.HTTPConnection(self.address, timeout=LIMIT)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return Answered(response.status, response.read().decode())
        finally:
            connection.close()
