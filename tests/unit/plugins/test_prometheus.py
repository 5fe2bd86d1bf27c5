"""What Prometheus reads of an app, by Prometheus's own parser."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.metrics import metrics_of
from rocketapp.model.snapshot import HandlerStats
from rocketapp.plugin import AppSnapshot, GroupSnapshot, HandlerSnapshot, LeaseState, Metric, QueueSnapshot
from rocketapp.plugins.counts import BOUNDS, DISTRIBUTIONS, CallKey, Counts, Histogram
from rocketapp.plugins.prometheus import exposition

NOTHING = AppSnapshot(cache_limit_bytes=1, groups=())

AWKWARD = 'a"b\\c\nd\u00e9'


def queue(queue_id: int, *, end: int | None, lease: LeaseState = "none") -> QueueSnapshot:
    return QueueSnapshot(
        queue=MessageQueue("orders", "broker-a", queue_id),
        committed=5,
        position=10,
        end=end,
        unfinished=3,
        unfinished_bytes=100,
        blocked="" if end is not None else "paused",
        lease=lease,
    )


def app(topic: str = "orders") -> AppSnapshot:
    handler = HandlerSnapshot(name="app:settle", topic=topic, stats=HandlerStats(handled=7, retried=2, dead_lettered=1))
    group = GroupSnapshot(
        group="shop",
        cluster="eu",
        client_id="c",
        members=2,
        pulls=9,
        handlers=(handler,),
        unmatched={"orders": 4},
        forwarded=3,
        queues=(queue(0, end=30), queue(1, end=None, lease="held")),
    )
    return AppSnapshot(cache_limit_bytes=1000, groups=(group,))


def counts() -> Counts:
    found, histogram = Counts(), Histogram()
    for seconds in (0.005, 0.0051, 11.0):
        histogram.add(seconds, 4)
    broker = "7F000001000000A0"
    found.histograms[CallKey("orders", "shop", "app:settle", "", broker, "eu")] = histogram
    found.histograms[CallKey("parcels", error="SendUnknown")] = histogram
    return found


def parsed(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """By sample name the values by labels, without those that all have."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            labels = {
                name: value for name, value in sample.labels.items() if not name.startswith("messaging_operation")
            }
            labels.pop("messaging_system", None)
            found.setdefault(sample.name, {})[tuple(sorted(labels.items()))] = sample.value
    return found


def test_every_figure_is_there_with_its_labels() -> None:
    found = parsed(exposition(app(), counts()))
    group = (("messaging_consumer_group_name", "shop"), ("rocketapp_cluster", "eu"))
    orders, handler = ("messaging_destination_name", "orders"), ("rocketapp_handler", "app:settle")
    server = ("server_address", "127.0.0.1"), ("server_port", "160")
    assert found["messaging_client_consumed_messages_total"] == {(group[0], orders, group[1], handler, *server): 12}
    assert found["messaging_client_sent_messages_total"] == {
        (("error_type", "SendUnknown"), ("messaging_destination_name", "parcels")): 12
    }
    assert found["rocketapp_group_unmatched_total"] == {(group[0], orders, group[1]): 4}
    assert found["rocketapp_group_forwarded_total"] == {group: 3}
    assert found["rocketapp_group_pulls_total"] == {group: 9}
    assert found["rocketapp_group_queues"] == {group: 2}
    assert found["rocketapp_group_queues_blocked"] == {group: 1}
    assert found["rocketapp_group_leases"][(*group, ("rocketapp_lease_state", "held"))] == 1
    partition = ("messaging_destination_partition_id", "broker-a:0")
    assert found["rocketapp_queue_lag"] == {(group[0], orders, partition, group[1]): 23}
    assert found["rocketapp_cache_usage_bytes"] == {(): 200}
    assert found["rocketapp_cache_limit_bytes"] == {(): 1000}
    families = {name.removesuffix("_total").removesuffix("_bytes") for name in found}
    assert families >= {figure.name.replace(".", "_") for figure in metrics_of(NOTHING)}
    assert families >= {f"{each.name.replace('.', '_')}_seconds_count" for each in DISTRIBUTIONS}


def test_a_histogram_s_buckets_add_up_to_its_count() -> None:
    found = parsed(exposition(app(), counts()))
    name = "messaging_process_duration_seconds"
    buckets = [(float(dict(labels)["le"]), value) for labels, value in found[f"{name}_bucket"].items()]
    assert [bound for bound, _ in buckets] == [*BOUNDS, math.inf]
    assert [value for _, value in buckets] == [1.0, *[2.0] * (len(BOUNDS) - 1), 3.0]
    assert list(found[f"{name}_count"].values()) == [3]
    assert list(found[f"{name}_sum"].values()) == [0.005 + 0.0051 + 11.0]


def test_metrics_of_plugins_are_there_with_their_units() -> None:
    written = Metric(
        name="shop.cache.read", kind="counter", unit="By", meaning="Read.", samples=(({"shop.cache": "prices"}, 7.5),)
    )
    silent = Metric(name="shop.cache.size", kind="gauge", unit="{price}", meaning="Held.")
    text = exposition(AppSnapshot(cache_limit_bytes=5, groups=(), metrics=(written, silent)))
    assert parsed(text)["shop_cache_read_bytes_total"] == {(("shop_cache", "prices"),): 7.5}
    assert "shop_cache_size" not in text


def test_any_name_survives_the_format() -> None:
    found = parsed(exposition(app(AWKWARD)))
    (labels,) = found["rocketapp_handler_done_total"]
    assert dict(labels)["messaging_destination_name"] == AWKWARD


def test_an_app_that_has_not_started_has_its_limits_only() -> None:
    text = exposition(AppSnapshot(cache_limit_bytes=5, groups=()))
    assert parsed(text) == {"rocketapp_cache_usage_bytes": {(): 0}, "rocketapp_cache_limit_bytes": {(): 5}}
    assert text.endswith("\n")
