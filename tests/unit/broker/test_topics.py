"""The topics of a broker."""

import pytest

from rocketapp.broker.topics import TopicTable
from rocketapp.config.broker import BrokerConfig
from rocketapp.wire.requests.admin import TopicConfig


def table(*, auto_create: bool = True) -> TopicTable:
    return TopicTable(BrokerConfig(name="broker-a", auto_create_topics=auto_create, topic_queues=8))


def test_an_unknown_topic_inherits_from_the_default_topic_without_its_right_to_be_inherited() -> None:
    topics = table()
    assert topics.inherited("orders", "TBW102", 4) == TopicConfig("orders", 4, 4, perm=6)
    assert topics.get("orders") is None


@pytest.mark.parametrize(("asked", "given"), [(100, 8), (8, 8), (0, 0), (-3, 0)])
def test_it_gets_at_most_as_many_queues_as_the_default_topic(asked: int, given: int) -> None:
    config = table().inherited("orders", "TBW102", asked)
    assert config is not None
    assert (config.read_queues, config.write_queues) == (given, given)


def test_a_retry_topic_gets_one_queue() -> None:
    config = table().inherited("%RETRY%billing", "TBW102", 4)
    assert config is not None
    assert config.read_queues == 1


def test_without_automatic_creation_nothing_is_created() -> None:
    topics = table(auto_create=False)
    assert topics.inherited("orders", "TBW102", 4) is None


def test_only_a_topic_with_the_right_to_be_inherited_is_inherited_from() -> None:
    topics = table()
    topics.put(TopicConfig("template"))
    assert topics.inherited("orders", "template", 4) is None
    assert topics.inherited("orders", "unknown", 4) is None


@pytest.mark.parametrize("name", ["TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster", "rmq_sys_anything"])
def test_system_topics_are_known_as_such(name: str) -> None:
    assert table().is_system(name)
    assert not table().is_system("orders")


def test_changes_make_the_table_dirty_and_repetitions_do_not() -> None:
    topics = table()
    topics.put(TopicConfig("orders", 4, 4))
    topics.dirty = False
    topics.put(TopicConfig("orders", 4, 4))
    topics.delete("unknown")
    assert not topics.dirty
    topics.delete("orders")
    assert topics.dirty


def test_a_table_is_read_back_as_it_was_saved() -> None:
    topics, again = table(), table()
    topics.put(TopicConfig("orders", 4, 2, perm=4, order=True, attributes={"message.type": "FIFO"}))
    topics.begin_save(5.0)
    again.load(topics.to_json())
    assert again.get("orders") == topics.get("orders")
    assert again.to_json() == topics.to_json()
    assert not again.dirty


@pytest.mark.parametrize("saved", [{}, {"topicConfigTable": []}, {"topicConfigTable": {"orders": {}}}])
def test_what_is_no_table_is_refused(saved: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"topicConfigTable|topicName"):
        table().load(saved)


def test_the_options_hold_for_a_directory_that_was_written_with_others() -> None:
    saved = table().to_json()
    strict = table(auto_create=False)
    strict.load(saved)
    assert strict.inherited("orders", "TBW102", 4) is None
    assert strict.dirty
    fewer = TopicTable(BrokerConfig(name="broker-a", topic_queues=3))
    fewer.load(saved)
    config = fewer.inherited("orders", "TBW102", 16)
    assert config is not None
    assert config.read_queues == 3
