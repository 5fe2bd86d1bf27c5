"""What is counted of a group, beside the counters of its handlers."""

from __future__ import annotations

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.member import OTHERS, GroupStats
from rocketapp.model.snapshot import HandlerStats
from tests.unit.consumer.fake_cluster import subscription


def test_of_what_others_handle_only_failures_count_here() -> None:
    stats = GroupStats([Handler(subscription(), lambda _: None)])
    stats.handlers[0].stats.handled = 3
    for topic, counted in {
        "a": HandlerStats(handled=5),
        "b": HandlerStats(handled=7, retried=1),
        "c": HandlerStats(dead_lettered=2),
    }.items():
        stats.others[topic] = counted
    own, *others = stats.each()
    assert own[1:] == ("topic", HandlerStats(handled=3))
    assert others == [(OTHERS, "b", HandlerStats(retried=1)), (OTHERS, "c", HandlerStats(dead_lettered=2))]
    assert stats.total() == HandlerStats(handled=3, retried=1, dead_lettered=2)


def test_counters_that_were_given_out_do_not_change() -> None:
    stats = GroupStats([Handler(subscription(), lambda _: None)])
    ((_, _, given),) = stats.each()
    stats.handlers[0].stats.handled += 1
    assert given.handled == 0
