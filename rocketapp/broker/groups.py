"""The configurations of consumer groups: whether they may consume, and how often they may retry.

An unknown group is created with defaults when it is first used. The saved form is
Apache's subscriptionGroup.json. Members of a configuration that this broker does not use are
kept unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocketapp.broker.config_table import ConfigTable
from rocketapp.model.numbers import is_whole

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


class GroupConfig:
    """How one group may consume (Java: SubscriptionGroupConfig)."""

    __slots__ = (
        "consume_broadcast_enable",
        "consume_enable",
        "members",
        "name",
        "notify_enable",
        "retry_max_times",
        "retry_queues",
    )

    def __init__(self, name: str, members: Mapping[str, Any] | None = None) -> None:
        """Raises ValueError for a member of the wrong type."""
        self.name: str = name
        self.members: dict[str, Any] = {**_DEFAULTS, **(members or {}), "groupName": name}
        self.consume_enable: bool = self._flag("consumeEnable")
        self.consume_broadcast_enable: bool = self._flag("consumeBroadcastEnable")
        self.notify_enable: bool = self._flag("notifyConsumerIdsChangedEnable")
        self.retry_queues: int = self._number("retryQueueNums")
        self.retry_max_times: int = self._number("retryMaxTimes")

    def __repr__(self) -> str:
        return f"<GroupConfig {self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupConfig) and self.members == other.members

    def __hash__(self) -> int:
        return hash(self.name)

    def most_retries(self, of_client: int | None, version: int) -> int:
        """Retries until a message is a dead letter: as many as a client says that may say so."""
        return self.retry_max_times if of_client is None or version < _HONOURED_VERSION else of_client

    @classmethod
    def of_members(cls, members: object) -> GroupConfig:
        """The configuration in decoded JSON. Raises ValueError when it is not one."""
        if not isinstance(members, Mapping) or not isinstance(members.get("groupName"), str):
            raise ValueError("a group's configuration has a groupName")
        return cls(members["groupName"], members)

    def _flag(self, name: str) -> bool:
        value = self.members[name]
        if not isinstance(value, bool):
            raise ValueError(f"{name} of group {self.name}: {value!r} is neither true nor false")
        return value

    def _number(self, name: str) -> int:
        value = self.members[name]
        if not is_whole(value) or not -(2**31) <= value < 2**31:
            raise ValueError(f"{name} of group {self.name}: {value!r} is not a 32-bit number")
        return value


class GroupTable(ConfigTable[GroupConfig]):
    """The configuration of every consumer group that the broker knows."""

    def __init__(self) -> None:
        super().__init__()
        self._forbidden: Mapping[str, Any] = {}
        """What Apache RocketMQ forbids groups in single topics: kept for it, and not obeyed here."""
        for name in _SYSTEM_GROUPS:
            self._configs[name] = GroupConfig(name)

    def _form(self, configs: Mapping[str, GroupConfig | None], version: dict[str, int]) -> dict[str, Any]:
        """As Java's broker saves it in subscriptionGroup.json."""
        return {
            "dataVersion": version,
            "forbiddenTable": self._forbidden,
            "subscriptionGroupTable": {name: config and config.members for name, config in configs.items()},
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Load a saved form in addition to the system groups. Raises ValueError when it is not one."""
        table = saved.get("subscriptionGroupTable")
        if not isinstance(table, Mapping):
            raise ValueError("no subscriptionGroupTable in it")
        forbidden = saved.get("forbiddenTable")
        if isinstance(forbidden, Mapping):
            self._forbidden = forbidden
        for members in table.values():
            config = GroupConfig.of_members(members)
            self._configs[config.name] = config
        self._loaded(saved.get("dataVersion"))
