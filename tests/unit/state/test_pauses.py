from __future__ import annotations

from rocketapp.model.snapshot import HandlerStats
from rocketapp.state.pauses import Pauses, Probe


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


def test_one_message_may_start_when_every_reason_lets_one_through() -> None:
    pauses, stats = Pauses(), HandlerStats()
    a, b = Probe("settle", stats), Probe("ship", stats)
    pauses.pause("orders", "a")
    assert not pauses.may_probe("orders", "settle")
    pauses.probe("orders", "a", a)
    pauses.pause("orders", "b")
    assert not pauses.may_probe("orders", "settle")
    pauses.probe("orders", "b", b)
    handlers = ["other", "ship", "ship", "settle", "settle"]
    assert [pauses.may_probe("orders", name) for name in handlers] == [False, True, False, True, False]
    assert a.is_taken
    assert not a.was_of_use
    stats.handled += 1
    assert a.was_of_use


def test_a_reason_that_is_gone_or_new_lets_nothing_through() -> None:
    pauses = Pauses()
    pauses.probe("orders", "a", Probe("settle", HandlerStats()))
    pauses.pause("orders", "a")
    assert not pauses.may_probe("orders", "settle")
    pauses.probe("orders", "a", Probe("settle", HandlerStats()))
    pauses.resume("orders")
    pauses.pause("orders", "a")
    assert not pauses.may_probe("orders", "settle")
    assert pauses.has("orders", "a")
    assert not pauses.has("orders", "b")
