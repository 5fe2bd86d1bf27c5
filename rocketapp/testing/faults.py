"""Faults around an app under test: in its streams, clock and queue locks (`t.faults`).

Each call only schedules its fault: it begins when time next passes, in `advance`, `settle` or `publish`, and ends after
the given seconds of virtual time. App and broker run their normal code.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from sys import float_info
from typing import Any

from rocketapp.client.calls.clients import member_list
from rocketapp.client.calls.locks import lock, unlock
from rocketapp.model.event import Event, LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.numbers import is_number
from rocketapp.tasks import Tasks
from rocketapp.testing.stage import Stage
from rocketapp.transport.pool import Pool
from rocketapp.wire import properties as names
from rocketapp.wire.message import Message

log: logging.Logger = logging.getLogger("rocketapp.testing")
_OTHER = "another member"
"""The link and the client id of the member that takes locks."""
_TIMEOUT = 3.0
_OF_RETRIES = frozenset(
    {
        names.RETRY_TOPIC,
        names.ORIGIN_MESSAGE_ID,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
        names.DELAY,
        names.REAL_TOPIC,
        names.REAL_QID,
    }
)
"""Properties that a message gets when it is sent back."""


def check_number(said: str, value: object, *, least: float = -float_info.max) -> None:
    """Raises TypeError or ValueError unless it is a number that time can have: with nan nothing would ever be over."""
    if not is_number(value):
        raise TypeError(f"{said}: give a number of seconds, minutes or hours")
    if not least <= value <= float_info.max:
        raise ValueError(f"{said}: give a finite number{' of 0 or more' if least == 0 else ''}")


class Faults:
    """The faults of one stage. `cluster`: the name of one of the app's clusters; empty for the unnamed one."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._loop, self._network = stage, stage.loop, stage.network
        self._tasks = Tasks(self._report)

    def broker_away(self, seconds: float, *, cluster: str = "") -> None:
        """The broker's machine is cut off: nothing arrives, no connection is refused, and neither side is told."""
        check_number(f"broker_away(seconds={seconds!r})", seconds, least=0)
        address = self._stage.address(cluster)
        self._between(seconds, lambda: self._network.hold(address), lambda: self._network.release(address))

    def broker_refusing(self, seconds: float, *, cluster: str = "") -> None:
        """The broker's process is gone: its connections break and new ones are refused. It comes back with its data."""
        check_number(f"broker_refusing(seconds={seconds!r})", seconds, least=0)
        address = self._stage.address(cluster)
        self._between(seconds, lambda: self._network.refuse(address), lambda: self._network.accept(address))

    def broker_slow(self, latency: float, seconds: float) -> None:
        """Everything that is sent, both ways, takes `latency` seconds to arrive."""
        check_number(f"broker_slow(latency={latency!r})", latency, least=0)
        check_number(f"broker_slow(seconds={seconds!r})", seconds, least=0)

        def slow() -> None:
            self._network.slowness += latency

        def usual() -> None:
            self._network.slowness -= latency

        self._between(seconds, slow, usual)

    def connection_lost(self, *, cluster: str = "") -> None:
        """Every connection to the broker breaks once; new ones are accepted."""
        address = self._stage.address(cluster)
        self._now(lambda: self._network.cut(address))

    def lease_lost(self, topic: str, *, seconds: float = 30.0, group: str | None = None, cluster: str = "") -> None:
        """Another member holds the locks of an orderly topic for so long, as after a network partition.

        group: None is the app's. The app notices it when it renews its locks (`consumer.lock_renew_interval`, 20 s).
        """
        check_number(f"lease_lost(seconds={seconds!r})", seconds, least=0)
        if topic not in (topics := self._stage.topics):
            raise LookupError(f"lease_lost({topic!r}): the app consumes {', '.join(sorted(topics)) or 'nothing'}")
        address = self._stage.address(cluster)
        self._start(lambda: self._steal(topic, seconds, group or self._stage.group, address))

    def duplicate(self, message: Message, *, cluster: str = "") -> None:
        """This message is stored a second time, with its id: as a producer does that got no answer."""
        if not isinstance(message, Message):
            raise TypeError(f"duplicate({message!r}): give a Message, such as t.handled[0].message")
        self._stage.address(cluster)  # there is such a cluster
        self._start(lambda: self._send_again(message, cluster))

    def clock_jump(self, seconds: float) -> None:
        """The time of day jumps, of the app and of its brokers; below 0 it goes back. Timers do not care."""
        check_number(f"clock_jump(seconds={seconds!r})", seconds)

        def jump() -> None:
            self._stage.clock.epoch += seconds

        self._now(jump)

    async def close(self) -> None:
        await self._tasks.close()

    async def _steal(self, topic: str, seconds: float, group: str, address: str) -> None:
        pool = Pool(
            dial=self._network.dialer(_OTHER), dial_timeout=_TIMEOUT, max_frame_bytes=1 << 24, random=self._stage.random
        )
        broker = self._stage.settings.broker
        queues = [MessageQueue(topic, broker.name, number) for number in range(broker.topic_queues)]
        try:
            connection = await pool.get(address)
            for member in await member_list(connection, group, _TIMEOUT):
                await unlock(connection, group, member, queues, _TIMEOUT)
            await lock(connection, group, _OTHER, queues, _TIMEOUT)
            await asyncio.sleep(seconds)
            await unlock(connection, group, _OTHER, queues, _TIMEOUT)
        finally:
            await pool.close()

    async def _send_again(self, message: Message, cluster: str) -> None:
        await self._stage.lifecycle.producer(cluster).send_raw(
            message.topic,
            message.stored_body,
            _as_published(message.properties),
            sys_flag=message.sys_flag,
            flag=message.flag,
        )

    def _between(self, seconds: float, begin: Callable[[], object], end: Callable[[], object]) -> None:
        def begun() -> None:
            begin()
            self._loop.call_later(seconds, end, context=Context())

        self._now(begun)

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._now(lambda: self._tasks.start(work(), "fault"))

    def _now(self, begin: Callable[[], object]) -> None:
        self._loop.call_soon(begin, context=Context())

    def _report(self, event: Event) -> None:
        if isinstance(event, LoopFailed):
            log.error("a fault of the test could not be made: %s", event.error)


def _as_published(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Those of the first copy: with what a retry has added, the copy would wait for the delay of that retry."""
    if names.RETRY_TOPIC not in properties:
        return properties
    own = {name: value for name, value in properties.items() if name not in _OF_RETRIES}
    return {**own, names.WAIT: "true"}
