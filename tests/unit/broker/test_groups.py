"""Configurations of consumer groups."""

import pytest

from rocketapp.broker.groups import GroupConfig, GroupTable


def test_a_new_group_has_the_defaults() -> None:
    groups = GroupTable()
    groups.dirty = False
    groups.put(config := GroupConfig.from_json({"groupName": "billing"}))
    assert (config.retry_max_times, config.retry_queues, config.consume_enable) == (16, 1, True)
    assert groups.dirty
    assert groups.get("billing") is config


def test_what_this_broker_does_not_know_is_kept() -> None:
    groups, again = GroupTable(), GroupTable()
    groups.put(
        GroupConfig.from_json({"groupName": "billing", "retryMaxTimes": 3, "attributes": {"a": "b"}, "members": 2})
    )
    again.load(groups.to_json())
    config = again.get("billing")
    assert config is not None
    assert config.retry_max_times == 3
    assert config.members["members"] == 2
    assert again.to_json() == groups.to_json()


def test_a_deleted_group_is_gone() -> None:
    groups = GroupTable()
    groups.put(GroupConfig.from_json({"groupName": "billing"}))
    groups.dirty = False
    groups.delete("unknown")
    assert not groups.dirty
    groups.delete("billing")
    assert groups.get("billing") is None
    assert groups.dirty


@pytest.mark.parametrize(
    "members",
    [None, {}, {"groupName": 3}, {"groupName": "g", "retryMaxTimes": "many"}, {"groupName": "g", "consumeEnable": 1}],
)
def test_what_is_no_configuration_is_refused(members: object) -> None:
    with pytest.raises(ValueError):
        GroupConfig.from_json(members)


def test_a_file_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="subscriptionGroupTable"):
        GroupTable().load({})


def test_a_table_that_cannot_be_taken_over_leaves_what_is_there() -> None:
    groups = GroupTable()
    groups.put(GroupConfig.from_json({"groupName": "billing"}))
    before = dict(groups.by_name)
    with pytest.raises(ValueError, match="groupName"):
        groups.take_over({"subscriptionGroupTable": {"stock": {"groupName": "stock"}, "broken": {}}})
    assert groups.by_name == before


def test_a_table_that_is_taken_over_is_written_also_for_what_only_apache_uses_of_it() -> None:
    groups = GroupTable()
    groups.load(groups.to_json())
    assert not groups.dirty
    groups.take_over({**groups.to_json(), "forbiddenTable": {"billing": {"orders": 1}}})
    assert groups.dirty


def test_what_apache_forbids_a_group_stays_in_the_file() -> None:
    saved = {"forbiddenTable": {"billing": {"orders": 1}}, "subscriptionGroupTable": {}}
    groups = GroupTable()
    groups.load(saved)
    assert groups.to_json()["forbiddenTable"] == {"billing": {"orders": 1}}
