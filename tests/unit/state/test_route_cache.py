"""What is known of the cluster, and when it is asked for again."""

from __future__ import annotations

import pytest

from rocketapp.model.route import BrokerData, QueueData, TopicRoute
from rocketapp.state.route_cache import RouteCache


def route(*names: str, host: str = "10.0.0.1", queues: int = 4, order_conf: str = "") -> TopicRoute:
    return TopicRoute(
        tuple(QueueData(name, queues, queues, 6) for name in names),
        tuple(BrokerData("C", name, {0: f"{host}:{10 + number}"}) for number, name in enumerate(names)),
        order_conf,
    )


def test_a_watched_topic_is_due_at_once_and_then_every_interval() -> None:
    cache = RouteCache(30.0)
    assert cache.next_due() is None
    cache.watch("t", 5.0)
    assert (cache.due(5.0), cache.next_due()) == (["t"], 5.0)
    assert cache.found("t", route("a"), 5.0)
    assert cache.due(34.9) == []
    assert cache.due(35.0) == ["t"]


def test_a_missing_topic_is_asked_for_every_second_backing_off_to_the_interval() -> None:
    cache = RouteCache(30.0)
    cache.watch("t", 0.0)
    now, waits = 0.0, []
    for _ in range(8):
        cache.missing("t", now)
        due = cache.next_due()
        assert due is not None
        waits.append(due - now)
        now = due
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_hint_asks_at_once_and_soon_again() -> None:
    cache = RouteCache(30.0)
    cache.watch("t", 0.0)
    cache.missing("t", 0.0)
    cache.soon("t", 0.3)
    assert cache.due(0.3) == ["t"]
    cache.missing("t", 0.3)
    assert cache.next_due() == pytest.approx(0.4)
    cache.missing("t", 0.4)
    assert cache.next_due() == pytest.approx(0.6)
    cache.soon("not watched", 0.6)
    assert cache.get("not watched") is None


@pytest.mark.parametrize("is_known", [False, True])
def test_hints_in_swarms_ask_for_a_topic_ten_times_a_second_at_most(is_known: bool) -> None:
    cache = RouteCache(30.0)
    cache.watch("t", 5.0)
    if is_known:
        cache.found("t", route("a"), 5.0)
    else:
        cache.missing("t", 5.0)
    for hint in (5.01, 5.02, 5.03):
        cache.soon("t", hint)
        assert cache.due(hint) == []
    assert cache.next_due() == pytest.approx(5.1)


def test_only_what_differs_is_a_change_and_order_does_not_differ() -> None:
    cache = RouteCache(30.0)
    assert cache.found("t", route("a", "b"), 0.0)
    told = route("a", "b")
    assert not cache.found("t", TopicRoute(told.queues[::-1], told.brokers[::-1]), 1.0)
    assert cache.found("t", route("a", "b", queues=8), 2.0)
    assert cache.found("t", route("a", "b", queues=8, order_conf="a:8"), 3.0)
    assert cache.found("t", route("a", "b", queues=8, order_conf="a:8", host="10.0.0.2"), 4.0)
    assert cache.found("t", route("a"), 5.0)


def test_brokers_are_those_of_all_routes_and_the_last_word_on_an_address_counts() -> None:
    cache = RouteCache(30.0)
    cache.watch("old", 0.0)
    cache.watch("new", 0.0)
    cache.found("old", route("a", "b"), 1.0)
    cache.found("new", route("a", host="10.0.0.9"), 2.0)
    assert cache.address("a", 0) == "10.0.0.9:10"
    assert cache.address("b", 0) == "10.0.0.1:11"
    assert cache.address("b", 1) is cache.address("c", 0) is None
    cache.missing("old", 3.0)
    cache.found("new", route("a", host="10.0.0.8"), 3.0)
    assert cache.address("a", 0) == "10.0.0.8:10"
    cache.found("old", route("a"), 4.0)
    assert sorted(cache.brokers()) == ["a"]


def test_a_route_that_disappears_is_kept_and_asked_for_more_often() -> None:
    cache = RouteCache(30.0)
    cache.watch("t", 0.0)
    cache.found("t", route("a"), 0.0)
    cache.missing("t", 30.0)
    assert cache.get("t") == route("a")
    assert cache.address("a", 0) is not None
    assert cache.next_due() == 31.0
    assert not cache.found("t", route("a"), 31.0)
    assert cache.next_due() == 61.0


def test_what_is_not_watched_any_more_is_forgotten_with_its_brokers() -> None:
    cache = RouteCache(30.0)
    cache.watch("kept", 0.0)
    cache.found("kept", route("a"), 0.0)
    cache.watch("left", 0.0)
    cache.watch("left", 0.0)
    cache.found("left", route("b"), 10.0)
    cache.unwatch("left")
    assert cache.due(40.0) == ["kept", "left"], "one of two watchers is still there"
    cache.unwatch("left")
    cache.unwatch("left")
    assert cache.due(40.0) == ["kept"]
    cache.forget_unused(69.9)
    assert cache.get("left") is not None
    cache.forget_unused(70.0)
    assert cache.get("left") is None
    assert sorted(cache.brokers()) == ["a"]
    cache.watch("left", 71.0)
    assert cache.due(71.0) == ["kept", "left"]


def test_a_held_broker_keeps_its_addresses_until_its_last_release() -> None:
    cache = RouteCache(30.0)
    cache.watch("t", 0.0)
    cache.hold_broker("b")
    cache.hold_broker("b")
    cache.found("t", route("a", "b"), 0.0)
    cache.found("t", route("a"), 1.0)
    assert cache.address("b", 0) == "10.0.0.1:11"
    cache.release_broker("b")
    cache.found("t", route("a", host="10.0.0.2"), 2.0)
    assert cache.address("b", 0) == "10.0.0.1:11"
    cache.release_broker("b")
    assert cache.address("b", 0) is None
    assert sorted(cache.brokers()) == ["a"]


def test_a_newer_address_of_a_held_broker_counts_and_a_slave_alone_does_not_hide_its_master() -> None:
    cache = RouteCache(30.0)
    cache.watch("t", 0.0)
    cache.hold_broker("a")
    cache.found("t", route("a"), 0.0)
    cache.found("t", route("a", host="10.0.0.9"), 1.0)
    assert cache.address("a", 0) == "10.0.0.9:10"
    cache.found("t", TopicRoute((QueueData("a", 4, 4, 6),), (BrokerData("C", "a", {1: "10.0.0.10:10"}),)), 2.0)
    assert dict(cache.brokers()["a"]) == {0: "10.0.0.9:10", 1: "10.0.0.10:10"}
    cache.release_broker("a")
    assert dict(cache.brokers()["a"]) == {1: "10.0.0.10:10"}


def test_a_route_that_lost_a_broker_is_asked_for_again_after_one_two_and_four_seconds() -> None:
    cache = RouteCache(30.0)
    cache.watch("t", 0.0)
    cache.found("t", route("a", "b"), 0.0)
    now, waits = 30.0, []
    for _ in range(5):
        cache.found("t", route("a"), now)
        due = cache.next_due()
        assert due is not None
        waits.append(due - now)
        now = due
    assert waits == [1, 2, 4, 30, 30]


def test_the_routes_of_a_broker_that_cannot_be_reached_are_asked_for_at_most_every_five_seconds() -> None:
    cache = RouteCache(30.0)
    for topic, name in (("t", "a"), ("u", "b")):
        cache.watch(topic, 0.0)
        cache.found(topic, route(name, host=f"10.0.0.{name}"), 0.0)
    cache.unreachable("10.0.0.a:10", 1.0)
    assert (cache.next_due(), cache.due(5.0)) == (5.0, ["t"])
    cache.unreachable("10.0.0.a:10", 7.0)
    assert cache.next_due() == 5.0
    cache.found("t", route("a", host="10.0.0.a"), 7.0)
    cache.unreachable("10.0.0.a:10", 20.0)
    assert cache.due(20.0) == ["t"]


def test_hints_for_many_missing_topics_ask_for_each_less_often() -> None:
    cache = RouteCache(30.0)
    topics = [f"t{number}" for number in range(500)]
    for topic in topics:
        cache.watch(topic, 10.0)
        cache.missing(topic, 10.0)
    cache.soon("t0", 10.05)
    assert cache.due(10.4) == []
    assert cache.due(10.6) == ["t0"]
    for topic in topics[1:]:
        cache.unwatch(topic)
    cache.missing("t0", 100.0)
    cache.forget_unused(100.0)
    cache.soon("t0", 100.05)
    assert cache.due(100.1) == ["t0"]


def test_a_route_that_lacks_a_broker_is_asked_for_four_times_and_not_more_for_every_hint() -> None:
    cache = RouteCache(30.0)
    cache.watch("t", 0.0)
    cache.found("t", route("a"), 0.0)
    for now in (0.0, 0.25, 0.5):
        cache.lacks_a_broker("t", now)
    for due in (1.0, 2.0, 4.0, 8.0, 38.0):
        assert (cache.next_due(), cache.due(due)) == (due, ["t"])
        cache.found("t", route("a"), due)
