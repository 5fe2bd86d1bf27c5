"""The exporter of the page sends what the app counts, to a real socket."""

from __future__ import annotations

import re
import socket
import types
from collections import Counter

from rocketapp import DeadLetter, Message, RocketApp
from rocketapp.model.metrics import metrics_of
from rocketapp.model.snapshot import AppSnapshot
from rocketapp.testing import TestApp
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/how-to/statsd.md").read_text()


def the_plugin() -> types.ModuleType:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    page = types.ModuleType("statsd")
    exec(compile(source, "docs/how-to/statsd.md", "exec"), vars(page))
    return page


def test_counters_are_told_by_what_is_new_and_gauges_as_they_are() -> None:
    page = the_plugin()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(1.0)
        app = RocketApp("shop", plugins=[page.StatsD(server.getsockname())])

        @app.subscribe("orders")
        async def settle(message: Message) -> None:
            if message.text() == "bad":
                raise DeadLetter("hopeless")

        with TestApp(app) as t:
            for text in ("a", "bad", "b"):
                t.publish("orders", text)
            t.advance(25)
            t.publish("orders", "c")
            t.advance(25)
        lines = received(server)
    counted = Counter[str]()
    for line in lines:
        name, value, kind = re.fullmatch(r"([\w.]+):(\S+)\|([cg])\|#.*", line).groups()  # type: ignore[union-attr]
        if kind == "c":
            counted[name] += int(value)
    assert counted["rocketapp.handler.done"] == 3
    assert counted["rocketapp.handler.dead_letters"] == 1
    done = [line for line in lines if line.startswith("rocketapp.handler.done")]
    assert "messaging.destination.name:orders" in done[0]
    assert "rocketapp.handler:" in done[0]
    gauges = {line.partition(":")[0] for line in lines if "|g|" in line}
    assert gauges >= {
        one.name
        for one in metrics_of(AppSnapshot(cache_limit_bytes=1, groups=()))
        if one.kind == "gauge" and ".queue." not in one.name
    }


def received(server: socket.socket) -> list[str]:
    lines: list[str] = []
    server.setblocking(False)
    while True:
        try:
            packet = server.recv(65_536)
        except BlockingIOError:
            return lines
        assert len(packet) <= 1400
        lines += packet.decode().splitlines()
