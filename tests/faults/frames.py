"""An embedded broker that is sent what no client sends: random bytes, cut frames, and valid requests with one mutation.

Every request code takes its turn. The broker is in this process and in memory, so that the CPU of each turn of its loop
can be seen.
"""

from __future__ import annotations

import asyncio
import resource
import struct
import time
from random import Random

from rocketapp.cli.runtime import settle
from rocketapp.config.broker import BrokerConfig
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.model.event import unobserved
from rocketapp.testing.virtual_time import VirtualClock
from rocketapp.transport.connection import Connection
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.transport.stream import Receiver
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import BINARY, JSON, Command
from rocketapp.wire.frame import encode
from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION
from tests.faults.scenarios import Figures
from tests.turns import Turns

LONGEST_TURN = 0.025
"""Seconds of CPU that a turn of the loop may take."""
_AT_ONCE = 20
"""Frames between two turns of the loop."""
_FIELDS = {
    **dict.fromkeys(("topic", "b", "subject"), "orders"),
    **dict.fromkeys(("consumerGroup", "group", "producerGroup", "a", "groupName", "g"), "billing"),
    **dict.fromkeys(("queueId", "e", "queueOffset", "commitOffset", "timestamp", "i", "offset", "k", "j"), "0"),
    **dict.fromkeys(("maxMsgNums", "maxNum", "d", "defaultTopicQueueNums", "readQueueNums", "writeQueueNums"), "4"),
    **dict.fromkeys(("sysFlag", "f"), str(FLAG_SUBSCRIPTION)),
    **dict.fromkeys(("bornTimestamp", "g", "h", "invisibleTime", "pollTime", "suspendTimeoutMillis"), "1000"),
    "c": "TBW102",
    "defaultTopic": "TBW102",
    "perm": "6",
    "clientID": "x",
    "expression": "*",
    "subscription": "*",
    "key": "k",
    "msgId": "7F00000100002A9F0000000000000000",
    "username": "u",
    "namespace": "n",
    "value": "v",
    "subVersion": "0",
    "extraInfo": "0 1 1000 0 0 broker-a 0 0",
    "initMode": "0",
    "expType": "TAG",
    "order": "false",
}
_BODIES = (
    b"",
    b"hello",
    b"{}",
    b"[]",
    b'{"clientID":"x","consumerDataSet":[],"producerDataSet":[{"groupName":"billing"}]}',
    b'{"consumerGroup":"billing","clientId":"x","mqSet":[{"topic":"orders","brokerName":"broker-a","queueId":0}]}',
    b'{"groupName":"billing","retryMaxTimes":3}',
    b"[" * 300 + b"]" * 300,
    b"{0:0," * 40,
)
_VALUES = ("", "-1", "9" * 30, "\0", "../x", "true", "%RETRY%billing", "x" * 300)


class _Peer(Receiver):
    """Reads nothing of what comes; notes when its connection has ended."""

    def __init__(self) -> None:
        self.is_lost = False
        self.received_bytes = 0

    def received(self, data: bytes) -> None:
        self.received_bytes += len(data)

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def lost(self, reason: str) -> None:
        self.is_lost = True


def _mutated(chance: Random, code: int) -> bytes:
    """A request that is whole but for one change."""
    fields, body = dict(_FIELDS), chance.choice(_BODIES)
    serializer, kind = chance.choice((JSON, BINARY)), chance.randrange(4)
    if kind == 0:
        del fields[chance.choice(list(fields))]
    elif kind == 1:
        fields[chance.choice(list(fields))] = chance.choice(_VALUES)
    elif kind == 2:
        body = chance.randbytes(chance.randrange(200))
    frame = bytearray(encode(Command(code, fields, body, opaque=chance.randrange(1 << 20), serializer=serializer)))
    if kind == 3:
        frame[chance.randrange(8, len(frame))] = chance.randrange(256)
    return bytes(frame)


def _frame(chance: Random, codes: list[int], number: int) -> tuple[bytes, bool]:
    """The next frame, and whether its connection is of use afterwards."""
    whole = _mutated(chance, codes[number % len(codes)])
    if number % 2:
        return whole, True
    if number % 4:
        return whole[: chance.randrange(1, len(whole))], False
    noise = chance.randbytes(chance.randrange(1, 300))
    return (struct.pack(">i", len(noise)) + noise, True) if number % 8 else (noise, False)


def hostile_frames(count: int, seed: int = 0) -> Figures:
    """So many frames: nothing ends the broker, no turn of its loop is long, and memory has a bound."""
    return asyncio.run(_send_all(count, Random(seed)))


async def _send_all(count: int, chance: Random) -> Figures:
    network, codes = MemoryNetwork(), [int(code) for code in RequestCode]
    broker = EmbeddedBroker(
        config=BrokerConfig(index_slots=101, index_items=512),
        clock=VirtualClock(asyncio.get_running_loop()),
        random=Random(1),
        observe=unobserved,
        memory=True,
    )
    address = await broker.start(network)
    settle()  # as a broker's process: what else is in this one would be most of the work of the garbage collector
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    connections, peer, stream = 0, _Peer(), None
    with Turns() as turns:
        for number in range(count):
            if stream is None or peer.is_lost:
                peer = _Peer()
                stream, connections = await network.dial(address, peer, 3.0), connections + 1
            frame, is_kept = _frame(chance, codes, number)
            stream.write(frame)
            if not is_kept:
                await asyncio.sleep(0)
                stream.close()
                stream = None
            elif number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        await _is_served(network, address)
    cpu = time.process_time() - begun
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    await broker.stop()
    assert turns.longest <= LONGEST_TURN, f"a turn of the loop took {turns.longest:.3f} s of CPU"
    return {
        "frames": count,
        "connections": connections,
        "longest_turn_ms": round(turns.longest * 1000, 1),
        "cpu_us_a_frame": round(cpu / count * 1e6),
        "grown_mb": round(grown / 1024),
    }


async def _is_served(network: MemoryNetwork, address: str) -> None:
    """Raises unless an ordinary client is answered."""
    client = Connection(serve=None, max_frame_bytes=1 << 24)
    client.attach(await network.dial(address, client, 3.0))
    route = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
    answer = await client.start_request(route, timeout=5.0)
    assert answer.code == ResponseCode.SUCCESS, answer
    await client.close()
