"""The way between a master and its slave is cut, stalls and is slow: both logs are the same in the end."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random

from rocketapp.wire.codes import RequestCode
from rocketapp.wire.replication import HEAD_BYTES
from rocketapp.wire.requests.send import SendRequest
from tests.faults.members import pause
from tests.faults.replication import is_copied, slave_of, whole_log
from tests.faults.scenarios import Figures
from tests.peers.bare import Bare
from tests.peers.clusters import Apache, Embedded, free_port
from tests.peers.waiting import wait_until

_SENDERS, _RATE, _SEGMENT = 4, 400, 16_777_216
_TOPIC, _GROUP = "copied", "committing"
_TIMEOUT, _GRACE = 1.0, 1.5
"""Seconds that the master waits for a slave, and what a busy machine may add to it."""
_SLOW = 20_000
"""Bytes a second of a slow link."""
_STALL = 3.0
"""Seconds."""
_LARGE = 1 << 20
"""Bytes of a message that fills the log."""


class Link:
    """Hands bytes on between slaves and their master, and may be cut, stalled and slowed down."""

    def __init__(self, master: int, replace: tuple[str, str] = ("", "")) -> None:
        """`master`: the port where it serves. `replace`: a text that it says, and what is handed on for that."""
        self._master = master
        self._said, self._told = (text.encode() for text in replace)
        port = free_port()
        self._listening = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{port}"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._open = threading.Event()
        self._open.set()
        self.rate: float = 0.0
        """Bytes a second that a slow one hands on; 0 for all."""
        self._left: int | None = None
        self._cuts: list[int] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, after: int = 0) -> None:
        """End every connection when the master has sent so many bytes more, and wait for that."""
        self._left = after
        wait_until(lambda: self._left is None, within=30, what="the link is cut", every=0.01)

    def cut_next(self, sizes: Iterable[int]) -> None:
        """End the next connections when the master has sent so many bytes on each, and wait for that."""
        self._cuts = list(sizes)
        self.cut()
        wait_until(lambda: not self._cuts and self._left is None, within=300, what="the links are cut", every=0.01)

    def stall(self) -> None:
        """Hand nothing on, and keep the connections."""
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._listening.close()
        self._open.set()
        self._end()

    def _end(self) -> None:
        pairs, self._pairs = self._pairs, []
        for one in (one for pair in pairs for one in pair):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                slave, _ = self._listening.accept()
            except OSError:
                return
            try:
                master = socket.create_connection(("127.0.0.1", self._master))
            except OSError:  # it is away
                slave.close()
                continue
            for each in (slave, master):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs.append((slave, master))
            threading.Thread(target=self._hand_on, args=(master, slave, True), daemon=True).start()
            threading.Thread(target=self._hand_on, args=(slave, master, False), daemon=True).start()

    def _hand_on(self, source: socket.socket, target: socket.socket, is_log: bool) -> None:
        with source, contextlib.suppress(OSError):
            if is_log and self._cuts:
                self._left = self._cuts.pop(0)
            while self._open.wait() and (data := source.recv(8192)):
                self._open.wait()
                if self._said:
                    data = data.replace(self._said, self._told)
                if is_log and self._left is not None:
                    data, self._left = data[: self._left], self._left - len(data)
                    if self._left <= 0:
                        target.sendall(data)
                        self._left = None
                        self._end()
                        return
                if is_log and self.rate:
                    pause(len(data) / self.rate)
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)


class _Sender(threading.Thread):
    """Sends until it is told to stop, and notes how long it waited."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.over = threading.Event()
        self.codes: dict[int, int] = {}
        self.longest = 0.0

    def run(self) -> None:
        fields, due = SendRequest("senders", _TOPIC, queue_id=0).to_fields(), time.monotonic()
        with Bare(self._address, timeout=30.0) as asking:
            while not self.over.wait(max(due - time.monotonic(), 0.0)):
                due = max(due + _SENDERS / _RATE, time.monotonic() - 1.0)
                began = time.monotonic()
                code = asking.ask(RequestCode.SEND_MESSAGE_V2, b"x" * 1000, **fields).code
                self.longest = max(self.longest, time.monotonic() - began)
                self.codes[code] = self.codes.get(code, 0) + 1
                _commit_all(asking)


def links(
    directory: Path, of: str = "apache", *, faults: int = 21, heads: int = HEAD_BYTES + 1, megabytes: int = 500
) -> Figures:
    """Cuts, stalls and slow links in turn under load, and cuts at the first bytes of a block's head.

    Then a slave is far behind, which costs its master no memory. `of`: whose slave it is.
    """
    port, chance = free_port(around=(-2, 0, 1)), Random(1)
    options = {"role": "sync_master", "ha_port": port + 1, "segment_bytes": _SEGMENT, "slave_timeout": _TIMEOUT}
    master, slave = Embedded(directory / "master", listen=f"127.0.0.1:{port}", options=options), None
    link = Link(port + 1)
    # The slave learns from the name server where the log is, or from its master.
    names = Link(port, replace=(f"127.0.0.1:{port + 1}", link.address))
    senders, ahead = [_Sender(master.name_server) for _ in range(_SENDERS)], 0
    committed = -1
    try:
        slave = slave_of(names.address, directory / "slave", of, master=names.address)
        _until_copied(master)
        for sender in senders:
            sender.start()
        wait_until(lambda: _offsets_of(slave)[0] > 0, within=90, what="the slave has an offset", every=0.5)
        for number in range(faults):
            _harm(link, number, chance)
            committed, end = _offsets_of(slave)
            ahead += committed > end
            _until_copied(master)
        link.cut_next(range(heads))
        _until_copied(master)
        for sender in senders:
            sender.over.set()
            sender.join(30)
        grown, catching_up = _behind(master, link, megabytes)
    finally:
        for each in (link, names):
            each.close()
        if slave is not None:
            slave.stop()
        master.stop()
    ours, copy = whole_log(master.store), whole_log(slave.store)
    codes: dict[str, int] = {}
    for code, count in sorted(item for sender in senders for item in sender.codes.items()):
        codes[str(code)] = codes.get(str(code), 0) + count
    figures = {
        "faults": faults,
        "cuts_in_a_head": heads,
        "codes": codes,
        "longest_send_s": round(max(sender.longest for sender in senders), 2),
        "equal_bytes": len(ours) if ours == copy else 0,
        "log_bytes": len(ours),
        "committed_at_the_slave": committed,
        "committed_and_missing_there": ahead,
        "behind_mb": megabytes,
        "memory_grown_mb": round(grown / 1e6, 1),
        "catching_up_s": round(catching_up, 1),
    }
    assert figures["equal_bytes"] == len(ours), figures
    assert (ahead, committed > 0) == (0, True), figures
    assert set(codes) <= {"0", "11", "12"}, figures
    assert figures["longest_send_s"] < _TIMEOUT + _GRACE, figures
    assert grown < 16e6, figures
    return figures


def _commit_all(asking: Bare) -> None:
    """As a group does that has handled everything."""
    end = asking.ask(RequestCode.GET_MAX_OFFSET, topic=_TOPIC, queueId=0).fields["offset"]
    asking.ask(RequestCode.UPDATE_CONSUMER_OFFSET, topic=_TOPIC, queueId=0, consumerGroup=_GROUP, commitOffset=end)


def _offsets_of(slave: Apache | Embedded) -> tuple[int, int]:
    """The committed offset that the slave knows, -1 for none, and the end of its queue."""
    with Bare(slave.broker_address) as asking:
        committed = asking.committed(_TOPIC, _GROUP, 0)
        return committed, int(asking.ask(RequestCode.GET_MAX_OFFSET, topic=_TOPIC, queueId=0).fields["offset"])


def _harm(link: Link, number: int, chance: Random) -> None:
    pause(chance.uniform(0.2, 1.0))
    if number % 3 == 0:
        link.cut(after=chance.randrange(100_000))
    elif number % 3 == 1:
        link.stall()
        pause(_STALL)
        link.resume()
    else:
        link.rate = _SLOW
        pause(_STALL)
        link.rate = 0.0


def _behind(master: Embedded, link: Link, megabytes: int) -> tuple[int, float]:
    """By how many bytes the master grows while its slave gets nothing, and the seconds that this one needs for all."""
    fields = SendRequest("senders", _TOPIC, queue_id=0).to_fields()
    with Bare(master.name_server, timeout=30.0) as asking:
        for _ in range(16):  # what a large message needs is there from the first one on
            asking.ask(RequestCode.SEND_MESSAGE_V2, b"y" * _LARGE, **fields)
        _until_copied(master)
        link.stall()
        before = _memory(master.broker_pid)
        fillers = [Bare(master.name_server, timeout=60.0) for _ in range(8)]
        try:
            share = megabytes * 1_000_000 // _LARGE // len(fillers)
            threads = [threading.Thread(target=_fill, args=(each, share, fields)) for each in fillers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            for each in fillers:
                each.close()
        grown = _memory(master.broker_pid) - before
    began = time.monotonic()
    link.resume()
    _until_copied(master, within=180.0)
    return grown, time.monotonic() - began


def _fill(asking: Bare, count: int, fields: dict[str, str]) -> None:
    for _ in range(count):
        asking.ask(RequestCode.SEND_MESSAGE_V2, b"z" * _LARGE, **fields)


def _memory(pid: int) -> int:
    """Bytes of a process that no file backs."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


def _until_copied(master: Embedded, within: float = 60.0) -> None:
    wait_until(lambda: is_copied(master, _TOPIC), within=within, what=master.log, every=0.2)
