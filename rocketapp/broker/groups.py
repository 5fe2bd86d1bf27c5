"""The configurations of consumer groups: whether they may consume, and how often they may retry.

An unknown group is created with defaults when it is first used. The saved form is
Apache's subscriptionGroup.json. Members of a configuration that this broker does not use are
kept unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rocketapp.broker.config_table import ConfigTable
from rocketapp.wire.fields import Int32, java_names

_DEFAULTS: Mapping[str, Any] = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}
_SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)


_HONOURED_VERSION = 121
"""MQVersion V3_4_9: from this version on a client's own maximum of retries counts."""


class GroupConfig(
    msgspec.Struct,
    frozen=True,
    rename=java_names(name="groupName", notify_enable="notifyConsumerIdsChangedEnable", retry_queues="retryQueueNums"),
):
    """How one group may consume (Java: SubscriptionGroupConfig)."""

    name: str
    consume_enable: bool
    consume_broadcast_enable: bool
    notify_enable: bool
    retry_queues: Int32
    retry_max_times: Int32
    members: Mapping[str, Any]
    """All of them, also those that this broker does not use."""

    def most_retries(self, of_client: int | None, version: int) -> int:
        """Retries until a message is a dead letter: as many as a client says that may say so."""
        return self.retry_max_times if of_client is None or version < _HONOURED_VERSION else of_client

    @classmethod
    def from_json(cls, given: object) -> GroupConfig:
        """From decoded members; missing ones get Java's defaults. Raises ValueError for illegal members."""
        if not isinstance(given, Mapping) or not isinstance(name := given.get("groupName"), str):
            raise ValueError("a group's configuration has a groupName")
        members = {**_DEFAULTS, **given}
        try:
            return msgspec.convert({**members, "members": members}, cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"configuration of group {name}: {error}") from None

    def to_json(self) -> Mapping[str, Any]:
        """The configuration as Java writes it."""
        return self.members


class GroupTable(ConfigTable[GroupConfig]):
    """The configuration of every consumer group that the broker knows, as Java saves it in subscriptionGroup.json."""

    def __init__(self) -> None:
        system = (GroupConfig.from_json({"groupName": name}) for name in _SYSTEM_GROUPS)
        super().__init__("subscriptionGroupTable", GroupConfig.from_json, system)
        self._also = {"forbiddenTable": {}}  # what Apache RocketMQ forbids groups in single topics: not obeyed here
