"""Arguments of `publish` -> what a producer sends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rocketapp.app.payloads.payloads import Payloads
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DELAY_SECONDS, delay_level, delay_level_at_least
from rocketapp.model.numbers import is_number
from rocketapp.model.outgoing import Outgoing
from rocketapp.model.publish_options import MessageOptions, PublishOptions, TransactionOptions

_QUEUES = "a MessageQueue, a function that chooses one of several, or None"
PLAIN = Payloads()
"""Without plugins and upcasters."""


def outgoing(topic: str, body: Any, options: MessageOptions, payloads: Payloads = PLAIN) -> Outgoing:
    """Raises TypeError that names the argument of a wrong kind, ValueError for a delay that no message can have."""
    tag, order_key, delay = options.get("tag"), options.get("order_key"), options.get("delay")
    _check("topic", topic, isinstance(topic, str), "a str")
    _check("tag", tag, tag is None or isinstance(tag, str), "a str or None")
    _check("order_key", order_key, order_key is None or isinstance(order_key, str), "a str or None")
    _check("delay", delay, delay is None or is_number(delay), "seconds as a number, or None")
    recallable = options.get("recallable", False)
    _check("recallable", recallable, isinstance(recallable, bool), "True or False")
    level, seconds = _delay(delay, options.get("rounding"), recallable)
    _check_tag(tag)
    queue = options.get("queue")
    _check("queue", queue, queue is None or isinstance(queue, MessageQueue) or callable(queue), _QUEUES)
    if queue is not None and order_key is not None:
        raise ValueError("queue= and order_key= both say to which queue a message goes: give one of them")
    fixed = queue if isinstance(queue, MessageQueue) else None
    content_type = options.get("content_type")
    _check("content_type", content_type, content_type is None or isinstance(content_type, str), "a str or None")
    encoded, marks = payloads.encode(body, content_type)
    properties = _properties(options.get("properties"))
    return Outgoing(
        topic=topic,
        body=encoded,
        tag=tag,
        keys=_keys(options.get("keys", ())),
        properties={**marks, **properties} if marks else properties,
        order_key=order_key,
        queue=fixed,
        select=queue if fixed is None else None,  # type: ignore[arg-type]
        delay_level=level,
        delay=seconds,
    )


def _check_tag(tag: str | None) -> None:
    """Subscriptions split their tags at || and take the blanks away."""
    if tag and ("||" in tag or tag != tag.strip()):
        raise ValueError(f"tag={tag!r}: a message has one tag, without || or blanks at its ends: none could select it")


def _delay(delay: float | None, rounding: str | None, recallable: bool) -> tuple[int, float]:
    """The delay level, or 0 and the seconds that a timer counts."""
    if rounding not in (None, "up"):
        raise ValueError(f'rounding={rounding!r}: give "up", or leave it out; a message must not come early')
    if delay is None:
        if recallable:
            raise ValueError("recallable=True: only a message with a delay= can be taken back")
        return 0, 0.0
    if not 0 < delay < math.inf:
        raise ValueError(f"delay={delay:g}: give seconds above 0, or leave it out")
    if rounding == "up":
        if delay > DELAY_SECONDS[-1]:
            delay_level(delay)  # raises, and says what the most is
        delay = DELAY_SECONDS[delay_level_at_least(delay) - 1]
    if delay in DELAY_SECONDS and not recallable:
        return delay_level(delay), 0.0
    return 0, float(delay)


def timeout_of(options: PublishOptions | TransactionOptions) -> float | None:
    """Raises TypeError or ValueError for a timeout that is not a number of seconds above 0."""
    timeout = options.get("timeout")
    _check("timeout", timeout, timeout is None or is_number(timeout), "seconds as a number, or None")
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError(f"timeout={timeout!r}: give seconds above 0, or None for producer.send_timeout")
    return timeout


def check_names(function: str, options: MessageOptions, known: type[MessageOptions]) -> None:
    """Raises TypeError for a keyword that the function does not take, and names those that it takes."""
    names = known.__annotations__
    if not options.keys() <= names.keys():
        unknown = ", ".join(repr(name) for name in options if name not in names)
        raise TypeError(f"{function}() takes no keyword {unknown}: it takes {', '.join(names)}")


def _keys(keys: Any) -> tuple[str, ...]:
    if isinstance(keys, str):
        return (keys,)
    # Read once: it may be a generator.
    found = tuple(keys) if isinstance(keys, Iterable) and not isinstance(keys, bytes) else None
    _check("keys", keys if found is None else list(found), found is not None and _are_texts(found), "str, or several")
    return found or ()


def _properties(properties: Any) -> Mapping[str, str]:
    if properties is None:
        return {}
    is_right = isinstance(properties, Mapping) and _are_texts(properties) and _are_texts(properties.values())
    _check("properties", properties, is_right, "a mapping of str to str, or None")
    found: Mapping[str, str] = properties
    return found


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _check(name: str, value: object, is_right: bool, wanted: str) -> None:
    if not is_right:
        raise TypeError(f"{name}={value!r}: {name} takes {wanted}")
