from __future__ import annotations

from rocketapp.state.pauses import Pauses


def test_a_topic_goes_on_when_every_reason_was_lifted() -> None:
    pauses = Pauses()
    for reason in ("maintenance", "sink down", "maintenance"):
        pauses.pause("orders", reason)
    assert pauses.reason("orders") == "paused: maintenance, sink down"
    pauses.resume("orders", "maintenance")
    assert pauses.reason("orders") == "paused: sink down"
    pauses.resume("orders", "another one")
    pauses.resume("orders", "sink down")
    assert pauses.reason("orders") is None


def test_resuming_without_a_reason_lifts_all_of_that_topic() -> None:
    pauses = Pauses()
    for topic in ("orders", "stock"):
        pauses.pause(topic, "a")
        pauses.pause(topic, "b")
    pauses.resume("orders")
    assert (pauses.reason("orders"), pauses.reason("stock")) == (None, "paused: a, b")
    pauses.resume("orders")


def test_several_topics_are_paused_together_only_when_each_of_them_is() -> None:
    pauses = Pauses()
    pauses.pause("orders", "a")
    assert pauses.reason_of_all(["orders", "stock"]) is None
    pauses.pause("stock", "b")
    assert pauses.reason_of_all(["orders", "stock"]) == "paused: a, b"
    assert pauses.reason_of_all([]) is None
