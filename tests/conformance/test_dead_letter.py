"""Messages whose handler fails every time end in `%DLQ%group`, once, with the reason."""

from __future__ import annotations

from tests.conformance.long_waits import LongWaits
from tests.conformance.test_send_back import by_text, check_gaps
from tests.peers.java_client import texts


def reason_of(message: dict[str, object]) -> str:
    """All properties of a dead letter as one text."""
    return " | ".join(f"{key}={value}" for key, value in dict(message["properties"]).items())  # type: ignore[call-overload]


def dead_letters(waits: LongWaits, story: str, count: int) -> list[dict[str, object]]:
    return waits.java.dead_letters(waits.group(story), least=count)


def test_two_retries_make_three_attempts_and_one_dead_letter(waits: LongWaits) -> None:
    messages = by_text(waits.attempts("dead-two", 8, within=60))
    poison = messages.pop("poison")
    assert [event["attempt"] for event in poison] == [1, 2, 3]
    check_gaps([event["at"] for event in poison], (10, 30), "poison")
    assert {text: len(attempts) for text, attempts in messages.items()} == {f"good {n}": 1 for n in range(5)}
    (dead,) = dead_letters(waits, "dead-two", 1)
    assert dead["body"] == b"poison"
    reason = reason_of(dead)
    assert "ZeroDivisionError" in reason
    assert "always poison" in reason
    assert "dead_two" in reason
    assert "1.2.3" in reason
    waits.app.wait_for(
        lambda: waits.java.lag(waits.topic("dead-two"), waits.group("dead-two")) == 0,
        within=10,
        what="offsets are committed",
    )


def test_without_retries_the_first_failure_is_the_last(waits: LongWaits) -> None:
    assert [event["attempt"] for event in waits.attempts("dead-none", 3, within=20)] == [1, 1, 1]
    dead = dead_letters(waits, "dead-none", 3)
    assert sorted(texts(dead)) == [f"dead-none {n}" for n in range(3)]
    assert all("RuntimeError" in reason_of(message) for message in dead)


def test_a_dead_letter_outcome_goes_there_at_once_with_its_reason(waits: LongWaits) -> None:
    waits.attempts("dead-letter", 3, within=20)
    dead = dead_letters(waits, "dead-letter", 3)
    assert len(dead) == 3
    assert all("thrown away on purpose" in reason_of(message) for message in dead)


def test_an_undecodable_payload_goes_there_at_once(waits: LongWaits) -> None:
    (fine,) = waits.attempts("undecodable", 1, within=20)
    assert fine["text"] == '{"fine": 1}'
    (dead,) = dead_letters(waits, "undecodable", 1)
    assert dead["body"] == b"{not json"


def test_the_admin_tool_sees_dead_letters(waits: LongWaits) -> None:
    waits.attempts("dead-none", 3, within=20)
    dead_letters(waits, "dead-none", 3)
    topic = f"%DLQ%{waits.group('dead-none')}"
    status = waits.java.admin("topicStatus", "-t", topic)
    rows = [line.split() for line in status.splitlines() if line.startswith("broker-a")]
    assert [(row[1], row[2], row[3]) for row in rows] == [("0", "0", "3")]
    printed = waits.java.admin("printMsg", "-t", topic, "-d", "true")
    assert all(f"dead-none {n}" in printed for n in range(3))
