"""A synchronous embedded master is killed under load, again and again: its slave has all that was acknowledged.

The slave is of Apache RocketMQ, or an embedded one.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from random import Random

from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION, PullRequest
from rocketapp.wire.requests.send import SendRequest
from tests.faults.members import pause
from tests.faults.scenarios import Figures
from tests.peers import toolchain
from tests.peers.bare import Answer, Bare
from tests.peers.clusters import Apache, Embedded, free_port
from tests.peers.waiting import wait_until

_SENDERS, _RATE, _SEGMENT = 4, 1000, 16_777_216
_BODY = re.compile(rb"sent-\d+-\d+-\d+;")
_TOPIC = "copied"


class _Sender(threading.Thread):
    """Sends until its master is gone, and remembers what was acknowledged as stored twice."""

    def __init__(self, address: str, name: str) -> None:
        super().__init__(daemon=True)
        self._address, self._prefix = address, name
        self.acknowledged: set[bytes] = set()
        self.codes: dict[int, int] = {}
        self.seconds: list[float] = []

    def run(self) -> None:
        fields = SendRequest("senders", _TOPIC, queue_id=0).to_fields()
        number, due = 0, time.monotonic()
        with Bare(self._address) as asking:
            while True:
                body = f"sent-{self._prefix}-{number};".encode()
                number, due = number + 1, due + _SENDERS / _RATE
                began = time.monotonic()
                try:
                    code = asking.ask(RequestCode.SEND_MESSAGE_V2, body, **fields).code
                except (OSError, EOFError):
                    return
                self.seconds.append(time.monotonic() - began)
                self.codes[code] = self.codes.get(code, 0) + 1
                if code == 0:
                    self.acknowledged.add(body)
                pause(max(due - time.monotonic(), 0.0))


def synchronous(directory: Path, of: str = "apache", *, kills: int = 10) -> Figures:
    """Nothing that was acknowledged is missing at the slave when its master is gone, and both logs are the same."""
    port, chance = free_port(around=(-2, 0, 1)), Random(1)
    options = {"role": "sync_master", "ha_port": port + 1, "segment_bytes": _SEGMENT}
    master, slave = Embedded(directory / "master", listen=f"127.0.0.1:{port}", options=options), None
    acknowledged: set[bytes] = set()
    codes: dict[int, int] = {}
    seconds: list[float] = []
    lost = not_served = 0
    try:
        slave = slave_of(master.name_server, directory / "slave", of)
        for kill in range(kills):
            wait_until(lambda: is_copied(master, _TOPIC) and _knows(slave), within=60, what=master.log, every=0.5)
            senders = [_Sender(master.name_server, f"{kill}-{one}") for one in range(_SENDERS)]
            for sender in senders:
                sender.start()
            pause(chance.uniform(1.0, 3.0))
            master.kill_broker()
            for sender in senders:
                sender.join(10)
                acknowledged |= sender.acknowledged
                seconds += sender.seconds
                codes = {code: codes.get(code, 0) + sender.codes.get(code, 0) for code in {*codes, *sender.codes}}
            lost += len(acknowledged - set(_BODY.findall(whole_log(slave.store))))
            if kill == kills - 1:
                not_served = len(acknowledged - _served_by(slave))
            master.start_again()
        wait_until(lambda: is_copied(master, _TOPIC), within=60, what=master.log, every=0.5)
    finally:
        if slave is not None:
            slave.stop()
        master.stop()
    ours, copy = whole_log(master.store), whole_log(slave.store)
    seconds.sort()
    figures = {
        "kills": kills,
        "acknowledged": len(acknowledged),
        "lost": lost,
        "not_served_by_the_slave": not_served,
        "codes": {str(code): count for code, count in sorted(codes.items())},
        "send_p50_ms": round(seconds[len(seconds) // 2] * 1000, 1),
        "send_p99_ms": round(seconds[len(seconds) * 99 // 100] * 1000, 1),
        "equal_bytes": len(copy) if ours.startswith(copy) else 0,
        "log_bytes": len(ours),
    }
    assert acknowledged, figures
    assert (lost, not_served, figures["equal_bytes"]) == (0, 0, len(copy)), figures
    return figures


def slave_of(name_server: str, directory: Path, of: str, **options: object) -> Apache | Embedded:
    """An empty slave of Apache RocketMQ, or an embedded one. `options`: of the embedded one."""
    if of == "embedded":
        followed = {"role": "slave", "id": 1, "segment_bytes": _SEGMENT, **(options or {"name_server": name_server})}
        return Embedded(directory, options=followed)
    conf = ("brokerRole=SLAVE", "brokerId=1", "slaveReadEnable=true", f"mappedFileSizeCommitLog={_SEGMENT}")
    return Apache(directory, name_server=name_server, conf=conf, options=toolchain.BRIEF, heap="256m")


def _pull(asking: Bare, offset: int) -> Answer:
    request = PullRequest("reading", _TOPIC, 0, offset, max_messages=32, sys_flag=FLAG_SUBSCRIPTION, expression="*")
    return asking.ask(RequestCode.PULL_MESSAGE, **request.to_fields())


def _knows(slave: Apache | Embedded) -> bool:
    """Whether it has taken over the topic, for which it asks from time to time, and serves nothing of it before."""
    with Bare(slave.broker_address, timeout=30.0) as asking:
        return _pull(asking, 0).code != ResponseCode.TOPIC_NOT_EXIST


def _served_by(slave: Apache | Embedded) -> set[bytes]:
    """The bodies that a consumer gets there while the master is away."""
    found, offset = set[bytes](), 0
    with Bare(slave.broker_address, timeout=30.0) as asking:
        while (answer := _pull(asking, offset)).code == ResponseCode.SUCCESS:
            found.update(_BODY.findall(answer.body))
            offset = int(answer.fields["nextBeginOffset"])
    return found


def is_copied(master: Embedded, topic: str) -> bool:
    """Whether a send is acknowledged by a slave."""
    with Bare(master.name_server, timeout=30.0) as asking:
        fields = SendRequest("senders", topic, queue_id=0).to_fields()
        return asking.ask(RequestCode.SEND_MESSAGE_V2, b"are you there", **fields).code == 0


def whole_log(store: Path) -> bytes:
    """The whole log, without the zeros behind its end."""
    return b"".join(file.read_bytes() for file in sorted((store / "commitlog").iterdir())).rstrip(b"\0")
