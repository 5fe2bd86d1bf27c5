"""The topics of this broker: their names, numbers of queues and permissions.

A change replaces the whole frozen `TopicConfig` and sets `dirty`, so that it is on disk before anybody is answered.

The saved form is Apache's topics.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from rocketapp.broker.config_table import ConfigTable
from rocketapp.broker.pop_checkpoints import REVIVE_QUEUES, revive_topic
from rocketapp.config.broker import BrokerConfig
from rocketapp.model.names import (
    CHECKS_OVER_TOPIC,
    DEFAULT_TOPIC,
    FORBIDDEN_TOPICS,
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    is_retry_topic,
)
from rocketapp.model.route import PERM_INHERIT, PERM_READ, PERM_WRITE
from rocketapp.wire.layout import Record
from rocketapp.wire.requests.admin import TopicConfig
from rocketapp.wire.requests.replies import reply_topic

READ_WRITE = PERM_READ | PERM_WRITE
MOST_QUEUES = 65_535
"""Most queues of one topic. Each of them is a directory."""
_SYSTEM_PREFIX = "rmq_sys_"
_SYSTEM_NAMES = FORBIDDEN_TOPICS | {DEFAULT_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC"}
_DELAY_LEVELS = 18


class TopicTable(ConfigTable[TopicConfig]):
    """Topic configurations by name."""

    def __init__(self, options: BrokerConfig) -> None:
        super().__init__("topicConfigTable", TopicConfig.from_json, _system_topics(options))
        self.system_names: frozenset[str] = _SYSTEM_NAMES | {
            options.cluster,
            options.name,
            reply_topic(options.cluster),
        }

    def is_system(self, topic: str) -> bool:
        """Whether this is a system topic, which administrators may neither create nor delete."""
        return topic in self.system_names or topic.startswith(_SYSTEM_PREFIX)

    def placed(self, record: Record) -> Record:
        """A record in a queue that is read: what has waited may be for one that its topic had then."""
        config = self.get(record.topic)
        if config is None or not 0 < config.read_queues <= record.queue_id:
            return record
        return record._replace(queue_id=record.queue_id % config.read_queues)

    def inherited(self, topic: str, default_topic: str, queues: int) -> TopicConfig | None:
        """The configuration of a topic that a send creates; None if the default topic does not allow it."""
        default = self._configs.get(default_topic)
        if default is None or not default.perm & PERM_INHERIT:
            return None
        queues = 1 if is_retry_topic(topic) else max(0, min(queues, default.write_queues))
        return replace(
            default,
            name=topic,
            read_queues=queues,
            write_queues=queues,
            perm=default.perm & ~PERM_INHERIT,
        )

    def _read(self, saved: Mapping[str, Any]) -> dict[str, TopicConfig]:
        """Without the default topic: the options say what a send may create, not those of when this was written."""
        found, default = super()._read(saved), self.get(DEFAULT_TOPIC)
        self.dirty: bool = found.pop(DEFAULT_TOPIC, default) != default
        return found


def _system_topics(options: BrokerConfig) -> Iterator[TopicConfig]:
    """The topics that Apache RocketMQ creates at its start, as far as this broker uses them."""

    def topic(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(name=name, read_queues=queues, write_queues=queues, perm=perm)

    yield topic("SELF_TEST_TOPIC", 1)
    if options.auto_create_topics:
        yield topic(DEFAULT_TOPIC, options.topic_queues, READ_WRITE | PERM_INHERIT)
    yield topic(options.cluster, 16, READ_WRITE | PERM_INHERIT)
    yield topic(options.name, 1, READ_WRITE | PERM_INHERIT)
    yield topic(reply_topic(options.cluster), 1)
    yield topic("OFFSET_MOVED_EVENT", 1)
    yield topic(SCHEDULE_TOPIC, _DELAY_LEVELS)
    yield topic(revive_topic(options.cluster), REVIVE_QUEUES)
    for name in (TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, CHECKS_OVER_TOPIC):
        yield topic(name, 1)
