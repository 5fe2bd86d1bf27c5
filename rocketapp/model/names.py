"""Names of retry, dead-letter and delay topics, the delay levels, and the rules for legal names."""

from __future__ import annotations

import re
from bisect import bisect_left

RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
DEFAULT_TOPIC = "TBW102"
"""The topic whose configuration auto-created topics inherit."""

DELAY_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Seconds of delay levels 1 to 18, RocketMQ's default `messageDelayLevel`."""

HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""Where messages of transactions wait, and where it is written which of them have ended."""
CHECKS_OVER_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Messages of transactions that were asked about in vain too often."""

MAX_TOPIC_LENGTH, MAX_GROUP_LENGTH = 127, 120
MAX_RETRY_TOPIC_LENGTH = 255
"""Those of pop have the name of a group and of a topic."""
FORBIDDEN_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        CHECKS_OVER_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
"""System topics that clients may not send to (Java: TopicValidator)."""
RESERVED_GROUPS = frozenset({"DEFAULT_CONSUMER", "DEFAULT_PRODUCER"})

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def topic_problem(topic: str) -> str | None:
    """Why this topic name is illegal; None when it is legal."""
    return _problem("topic", topic, MAX_RETRY_TOPIC_LENGTH if is_retry_topic(topic) else MAX_TOPIC_LENGTH)


def group_problem(group: str) -> str | None:
    """Why users may not use this group name; None when they may."""
    if group in RESERVED_GROUPS:
        return f"group {group!r} is reserved by RocketMQ: choose another name"
    return _problem("group", group, MAX_GROUP_LENGTH)


def _problem(kind: str, name: str, longest: int) -> str | None:
    if not name:
        return f"a {kind} needs a name"
    if not _LEGAL.fullmatch(name):
        return f"{kind} {name!r}: only letters, digits and the signs % | _ - are legal"
    if len(name) > longest:
        return f"{kind} {name[:40]!r}... has {len(name)} characters, at most {longest} are legal"
    return None


def delay_level(seconds: float) -> int:
    """The level of exactly this delay in seconds.

    Raises ValueError, which names the nearest delays, when no level has exactly this delay.
    """
    if seconds in DELAY_SECONDS:
        return DELAY_SECONDS.index(int(seconds)) + 1
    raise ValueError(f"delay={seconds:g}: no delay level of {seconds:g} s; {nearest_levels(seconds)}")


def nearest_levels(seconds: float) -> str:
    """Words that name the delays of the levels next to this one."""
    if seconds in DELAY_SECONDS:
        return f"{seconds:g} s is one of them, without recallable"
    below = [s for s in DELAY_SECONDS if s < seconds]
    above = [s for s in DELAY_SECONDS if s > seconds]
    if below and above:
        return f"the nearest are {below[-1]} and {above[0]} s"
    if below:
        return f"the most is {below[-1]} s"
    if above:
        return f"the least is {above[0]} s"
    return f"they are {', '.join(map(str, DELAY_SECONDS))} s"  # NaN compares with nothing


def delay_level_at_least(seconds: float) -> int:
    """The lowest level that waits at least this long; above 2 h the highest level."""
    return min(bisect_left(DELAY_SECONDS, seconds) + 1, len(DELAY_SECONDS))
