"""The recorded frames by name: what the Java client asked, and what Apache RocketMQ 5.5.0 answered."""

from __future__ import annotations

import json
from pathlib import Path

from rocketapp.wire.command import Command
from rocketapp.wire.frame import FrameReader

_ALL: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("frames.json").read_text())
NAMES = tuple((name, side) for name, exchange in sorted(_ALL.items()) for side in sorted(exchange))


def frame(name: str, side: str) -> bytes:
    """The bytes of one recorded frame; side is `request` or `response`."""
    return bytes.fromhex(_ALL[name][side])


def read(data: bytes) -> Command:
    """One frame as our reader cuts it."""
    (command,) = FrameReader(16_777_216).feed(data)
    return command


def request(name: str) -> Command:
    return read(frame(name, "request"))


def response(name: str) -> Command:
    return read(frame(name, "response"))
