"""Back-pressure: sends beyond the limits wait for their turn, none is lost, and none waits beyond its time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.client.instance import ClientInstance
from rocketapp.errors import SendRefused
from rocketapp.model.outgoing import Outgoing
from rocketapp.producer.in_flight import InFlight
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from tests.unit.producer.producing import producing
from tests.unit.scripted import Cluster, in_virtual_time, outcome
from tests.virtual import run_virtual

SEND = RequestCode.SEND_MESSAGE_V2


class Body(bytes):
    """A body that is counted until nothing holds it any more."""

    def __new__(cls, size: int, held: list[int]) -> Body:
        held[0] += size
        body = super().__new__(cls, size)
        body.held = held
        return body

    held: list[int]

    def __del__(self) -> None:
        self.held[0] -= len(self)


@pytest.mark.parametrize(
    ("limits", "most"),
    [({"max_in_flight": 3}, 3), ({"max_in_flight_bytes": 2500}, 2), ({"max_in_flight_bytes": 10}, 1)],
)
def test_sends_beyond_a_limit_wait_in_order_and_all_are_stored(limits: dict[str, int], most: int) -> None:
    @in_virtual_time
    async def run() -> None:
        cluster = Cluster()
        broker = cluster.brokers[0]
        under_way, seen, order = 0, 0, []

        def hold(command: Command) -> None:
            nonlocal under_way, seen
            under_way += 1
            seen = max(seen, under_way)
            asyncio.get_running_loop().call_later(0.1, answer, command)

        def answer(command: Command) -> None:
            nonlocal under_way
            under_way -= 1
            order.append(int(command.body))
            broker.connection().reply(broker.store(command))

        async with producing(cluster, compression="none", **limits) as producer:
            broker.answers[SEND] = hold
            bodies = [b"%01000d" % number for number in range(20)]
            results = await asyncio.gather(*(producer.send(Outgoing(topic="t", body=body)) for body in bodies))
            assert len({result.message_id for result in results}) == 20
        assert (seen, order) == (most, list(range(20)))

    run()


@in_virtual_time
async def test_a_send_whose_turn_does_not_come_in_time_is_refused_and_later_ones_go_on() -> None:
    cluster = Cluster()
    broker = cluster.brokers[0]
    async with producing(cluster, max_in_flight=1, retries=0) as producer:
        await producer.send(Outgoing(topic="t", body=b"x"))
        del broker.answers[SEND]
        message = Outgoing(topic="t", body=b"x")
        slow, late = await asyncio.gather(
            outcome(producer.send(message)), outcome(producer.send(message, timeout=1.0)), return_exceptions=True
        )
        assert isinstance(late, SendRefused) and "its turn did not come within 1 s" in str(late)
        assert "perhaps stored" in str(slow)
        broker.answers[SEND] = broker.store
        await producer.send(message)


@in_virtual_time
async def test_what_is_unsent_is_bounded_also_when_callers_have_given_up() -> None:
    cluster, clients, most, held = Cluster(), list[ClientInstance](), 4_194_304, [0]
    limits = {"compression": "none", "max_in_flight_bytes": most}
    async with producing(cluster, clients=clients, **limits) as producer:
        await producer.send(Outgoing(topic="t", body=b"x"))
        broker = cluster.brokers[0].address
        cluster.network.hold(broker)

        async def one() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.005):
                    await producer.send(Outgoing(topic="t", body=Body(65_536, held)))

        for _ in range(16):
            await asyncio.gather(*(one() for _ in range(40)))  # 40 MiB in total
        await asyncio.sleep(0.001)
        connection = clients[0].living_connection(broker)
        assert connection is not None and connection.unsent + held[0] < most
        cluster.network.release(broker)
        await producer.send(Outgoing(topic="t", body=b"y"))


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from([1e6, 0.5, -0.3])), max_size=30))
def test_however_sends_end_nothing_stays_counted_and_every_turn_comes(plan: list[tuple[int, float]]) -> None:
    """Of each send: its size, and for how long it waits; below 0, after how long it is cancelled."""
    limits = InFlight(most=3, most_bytes=50)
    sizes: list[int] = []

    async def one(size: int, patience: float) -> None:
        loop = asyncio.get_running_loop()
        if not limits.enter(size):
            await limits.wait(size, loop.time() + (patience if patience > 0 else 1e6))
        sizes.append(size)
        assert len(sizes) <= 3 and (sum(sizes) <= 50 or len(sizes) == 1)
        try:
            await asyncio.sleep(1.0)
        finally:
            sizes.remove(size)
            limits.leave(size)

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number, (size, patience) in enumerate(plan):
                task = tasks.create_task(outcome(one(size, patience)))
                if patience < 0:
                    asyncio.get_running_loop().call_later(number * -patience, task.cancel)

    run_virtual(run)
    assert "0 sends of 0 bytes are under way and 0 wait" in repr(limits)
