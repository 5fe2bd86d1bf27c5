"""Delayed messages come at their time: never early, not much later."""

from __future__ import annotations

from tests.conformance.long_waits import DELAYS, LongWaits
from tests.conformance.test_send_back import latest


def test_what_java_delays_comes_in_time(waits: LongWaits) -> None:
    events = waits.attempts("delay-java", len(DELAYS), within=50)
    assert sorted(int(event["text"]) for event in events) == sorted(DELAYS.values())
    for event in events:
        seconds = int(event["text"])
        assert seconds - 0.1 <= event["stored_at"] - event["born_at"] <= latest(seconds), event


def test_what_ours_delays_comes_in_time(waits: LongWaits) -> None:
    events = waits.attempts("delay-ours", len(DELAYS), within=50)
    sent = {event["seconds"]: event for event in waits.app.events("sent")}
    assert sorted(int(event["text"]) for event in events) == sorted(DELAYS.values())
    for event in events:
        seconds = int(event["text"])
        assert event["id"] == sent[seconds]["id"]
        # Early by the clocks of producer and broker; late as the app saw it.
        assert event["stored_at"] - event["born_at"] >= seconds - 0.1, event
        assert event["at"] - sent[seconds]["at"] <= latest(seconds), event
