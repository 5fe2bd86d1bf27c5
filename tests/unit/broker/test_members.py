"""Who is in a group, and when the others have to be told."""

from rocketapp.broker.filtering import Filter, filter_of
from rocketapp.broker.members import GroupMember, Groups
from rocketapp.model.subscription import SubscriptionData
from rocketapp.wire.java import string_hash
from rocketapp.wire.requests.clients import ConsumerData


def member(client_id: str, heard: float = 0.0) -> GroupMember:
    return GroupMember(client_id, "JAVA", 479, "10.0.0.1:1", heard)


def data(*subscriptions: SubscriptionData, group: str = "billing") -> ConsumerData:
    return ConsumerData(group, subscriptions=subscriptions)


ORDERS = SubscriptionData("orders", "paid", frozenset({"paid"}), 1)
STOCK = SubscriptionData("stock", version=1)


def test_a_newcomer_is_news_and_a_further_heartbeat_is_not() -> None:
    consumers = Groups()
    assert consumers.consumes("channel", member("one"), data(ORDERS))
    assert not consumers.consumes("channel", member("one"), data(ORDERS))
    assert consumers.consumes("other", member("two"), data(ORDERS))


def test_a_topic_that_comes_or_goes_is_news_and_a_new_version_is_not() -> None:
    consumers = Groups()
    consumers.consumes("channel", member("one"), data(ORDERS))
    newer = SubscriptionData("orders", "refunded", frozenset({"refunded"}), 2)
    assert not consumers.consumes("channel", member("one"), data(newer))
    assert consumers.consumes("channel", member("one"), data(newer, STOCK))
    assert consumers.consumes("channel", member("one"), data(STOCK))
    group = consumers.group("billing")
    assert set(group.subscriptions) == {"stock"}


def test_the_newest_version_of_a_subscription_counts_from_any_member() -> None:
    consumers = Groups()
    newer = SubscriptionData("orders", "refunded", frozenset({"refunded"}), 2)
    consumers.consumes("channel", member("one"), data(newer))
    consumers.consumes("other", member("two"), data(ORDERS))
    group = consumers.group("billing")
    assert group.subscriptions["orders"] is newer
    matches = group.filters["orders"].tags
    assert matches is not None
    assert matches(string_hash("refunded"))
    assert not matches(string_hash("paid"))


def test_every_tag_is_matched_without_a_filter() -> None:
    assert filter_of(STOCK) == Filter()


def test_a_group_without_members_is_forgotten() -> None:
    consumers = Groups()
    consumers.consumes("channel", member("one"), data(ORDERS))
    assert consumers.unregister("channel", "billing")
    assert not consumers.members("billing")
    assert list(consumers) == []
    assert not consumers.unregister("channel", "billing")
    assert consumers.close("channel") == []


def test_the_end_of_an_old_connection_does_not_remove_the_same_client_on_a_new_one() -> None:
    consumers = Groups()
    consumers.consumes("old", member("one"), data(ORDERS))
    consumers.consumes("new", member("one"), data(ORDERS))
    assert consumers.close("old") == ["billing"]
    group = consumers.group("billing")
    assert [member.client_id for member in group.members.values()] == ["one"]


def test_a_lost_connection_leaves_all_its_groups() -> None:
    consumers = Groups()
    consumers.consumes("channel", member("one"), data(ORDERS))
    consumers.consumes("channel", member("one"), data(ORDERS, group="shipping"))
    consumers.consumes("other", member("two"), data(ORDERS, group="shipping"))
    assert consumers.close("channel") == ["billing", "shipping"]
    assert [group.name for group in consumers] == ["shipping"]


def test_silent_members_are_found_by_their_last_heartbeat() -> None:
    consumers, producers = Groups(), Groups()
    consumers.consumes("quiet", member("one", heard=0), data(ORDERS))
    consumers.consumes("lively", member("two", heard=100), data(ORDERS))
    producers.put("quiet too", member("three", heard=50), "makers")
    assert list(consumers.silent_since(60)) == ["quiet"]
    assert list(producers.silent_since(60)) == ["quiet too"]
    assert list(producers.silent_since(50)) == []


def test_producers_come_and_go() -> None:
    producers = Groups()
    producers.put("channel", member("one"), "makers")
    producers.put("channel", member("one"), "others")
    producers.put("second", member("two"), "makers")
    producers.unregister("second", "makers")
    assert [member.client_id for member in producers.members("makers").values()] == ["one"]
    producers.close("channel")
    assert producers.members("makers") == producers.members("others") == {}
    producers.unregister("channel", "makers")
    assert repr(producers) == "<Groups: 0 groups on 0 channels>"
