"""Requests and responses on one stream; either side may send requests.

Every pending request ends exactly once: with its response, at its deadline, or when the connection ends.
A response without a pending request is dropped. Frames that arrive together are served together, and
their replies leave in one write. So do the later replies and the requests of one turn of the loop, except for a request
that finds no other under way: it leaves at once. A connection has one timer; requests have none.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from rocketapp.errors import ConnectionLostError, FrameTooLargeError, ProtocolError, RequestTimeoutError
from rocketapp.transport.access import Access
from rocketapp.transport.stream import WRITE_HIGH_BYTES, Stream
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.frame import Decode, FrameReader, decode, encode

IDLE_TIMEOUT = 120.0
"""A connection ends after this many seconds without a whole frame received and without a write (Java:
channelIdleSeconds of both sides). Single bytes do not count: a peer that sends half a frame byte by byte would
hold memory for ever."""
SILENCE = 3.0
"""When a request timed out and the peer was silent for at least this many seconds, the connection is half-open. A
broker that pauses for a second (garbage collection) fails the requests that wait no longer, and keeps its connection:
to lose it would mean leaving the group."""
_HALF_BYTES = 65_536
"""An unfinished frame above this counts among what is kept for all peers together."""
_MOST_HEADER_BYTES = 262_144
"""Of a request: one as long as a frame takes a second to decode. The longest properties of a message fit. Answers may
be longer: that to a batch names each of its messages."""
_MOST_SERVED = 500
"""Requests of one peer that are served in one turn of the loop: a read may bring ten thousand of the smallest. Nor are
more than WRITE_HIGH_BYTES of replies made in one turn, however fast the peer reads them."""
UNSENT_LIMIT_BYTES = 67_108_864
"""A connection whose peer leaves more bytes than this unread is ended; `Listener` limits the sum over all peers."""
_WRITE_BYTES = 65_536
"""Replies are joined up to about this size: a peer works on the first ones while the next are read from the log."""
_SWEEP_GRAIN = 0.01
"""Least seconds between two scans of the deadlines."""
_CLOSE_TIMEOUT = 1.0
"""Seconds that `close` waits for the last bytes to be sent."""
_LARGEST_OPAQUE = 0x7FFF_FFFF
_RESPONSE, _ONE_WAY = 1, 2
_GO_AWAY = int(ResponseCode.GO_AWAY)

Serve = Callable[["Connection", Command], Command | None]
"""Answers a request at once, or returns None: answered later with `Connection.reply`, or never."""


class PendingRequest(NamedTuple):
    """A request that waits for its response. It is removed once: answered, overdue, or when the connection ends."""

    command: Command
    answer: asyncio.Future[Command]
    started: float
    deadline: float
    is_resent: bool = False
    """Whether it is sent for the second time, because the first answer was GO_AWAY."""


GoAway = Callable[["Connection", PendingRequest], None]


class Connection:
    """The requests and responses that are exchanged with one peer."""

    def __init__(
        self,
        *,
        serve: Serve | None,
        max_frame_bytes: int,
        on_lost: Callable[[Connection, str], None] | None = None,
        on_go_away: GoAway | None = None,
        on_kept: Callable[[Connection], None] | None = None,
        on_served: Callable[[], None] | None = None,
        access: Access | None = None,
        decode: Decode = decode,
        is_server: bool = False,
        knows_peer: bool = False,
    ) -> None:
        """`is_server`: while the peer does not read its replies, stop reading its requests.

        `knows_peer`: it has answered an earlier connection, so that it speaks as this one does.

        `access` completes every request that is sent here, and restores all that is received.

        `on_served` is called when all requests of one read were served, and before their replies leave.

        `on_kept` is called after every write to such a peer, and while a long frame arrives. It may end the connection.
        """
        self._serve, self._on_lost, self._on_go_away = serve, on_lost, on_go_away
        self._on_kept, self._on_served, self._is_server = on_kept, on_served, is_server
        self._access = None if access is None or access.is_plain else access
        self._may_want_tls = not knows_peer and (access is None or access.tls is None)
        self._loop = asyncio.get_running_loop()
        most_header_bytes = _MOST_HEADER_BYTES if is_server else max_frame_bytes
        self._reader = FrameReader(max_frame_bytes, most_header_bytes, decode=decode)
        self._max_frame_bytes = max_frame_bytes
        self._stream: Stream | None = None
        self._opaques = itertools.count(1)
        self._pending: dict[int, PendingRequest] = {}
        """By their id (Java: opaque). One scan of all deadlines serves many: they share one timer."""
        self._serving = self._paused = False
        self._out: list[bytes] = []
        self._out_bytes = self._written = 0
        self._backlog: deque[Command] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """When it is due. uvloop returns a handle that does not say it for a time that is over."""
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self.room: asyncio.Event = asyncio.Event()
        """Set while the peer keeps up with what is written, and when the connection has ended."""
        self.room.set()
        self.peer: str = ""
        self.local: str = ""
        self.is_closed: bool = False
        self.is_retired: bool = False
        self.closed_reason: str = ""
        self.last_heard: float = self._loop.time()
        self._last_frame, self._last_written = -inf, self.last_heard
        self.state: Any = None
        """Free for the owner of the connection, for example for facts about the peer."""

    def __repr__(self) -> str:
        how = f"closed: {self.closed_reason}" if self.is_closed else f"{len(self._pending)} waiting"
        return f"<Connection to {self.peer or '?'}: {how}>"

    def attach(self, stream: Stream) -> None:
        """Begin to write into this stream."""
        self.peer, self.local = stream.peer, stream.local
        if self.is_closed:
            stream.close()
            return
        self._stream = stream
        self._set_timer(self._loop.time() + IDLE_TIMEOUT)
        self._flush()

    @property
    def unsent(self) -> int:
        """Bytes that were written and not sent yet."""
        return 0 if self._stream is None or self.is_closed else self._stream.unsent

    # Asking.

    def start_request(self, command: Command, *, timeout: float) -> asyncio.Future[Command]:
        """Write the request now and set its opaque; the future brings the response, whatever its code.

        The future fails with RequestTimeoutError after `timeout` seconds, with ConnectionLostError, or with
        FrameTooLargeError: then nothing was sent.
        """
        answer: asyncio.Future[Command] = self._loop.create_future()
        if self._access is not None:
            self._access.complete(command)
        now = self._loop.time()
        self.resend(PendingRequest(command, answer, now, now + timeout))
        return answer

    def resend(self, pending_request: PendingRequest) -> None:
        """Send a request again, for the caller that already waits for its response. Its deadline stays the same."""
        command, answer = pending_request.command, pending_request.answer
        if self.is_closed or self.is_retired:
            if not answer.done():
                answer.set_exception(ConnectionLostError(self.peer, self.closed_reason or "the peer goes away"))
            return
        command.opaque = opaque = next(self._opaques) & _LARGEST_OPAQUE
        data = encode(command)
        if (problem := self._size_problem(data)) is not None:
            if not answer.done():
                answer.set_exception(problem)
            return
        self._pending[opaque] = pending_request
        if self._timer is None or pending_request.deadline < self._timer_at:
            self._set_timer(pending_request.deadline)
        # Alone it would wait for a turn of the loop in which nothing joins it.
        self._write(data, at_once=len(self._pending) == 1)

    def send_one_way(self, command: Command) -> None:
        """Write a one-way request, which gets no response. ConnectionLostError, FrameTooLargeError: it was not sent."""
        if self.is_closed:
            raise ConnectionLostError(self.peer, self.closed_reason)
        if self._access is not None:
            self._access.complete(command)
        command.flag |= _ONE_WAY
        command.opaque = next(self._opaques) & _LARGEST_OPAQUE
        data = encode(command)
        if (problem := self._size_problem(data)) is not None:
            raise problem
        self._write(data)

    def _size_problem(self, data: bytes) -> FrameTooLargeError | None:
        # A peer would end the connection, and with it whatever else waits for an answer.
        length = len(data) - 4
        return FrameTooLargeError(length, self._max_frame_bytes) if length > self._max_frame_bytes else None

    def reply(self, response: Command) -> None:
        """Answer a request for which `serve` returned None. Does nothing when the connection has ended."""
        if not self.is_closed:
            self._write(encode(response))

    def reply_encoded(self, data: bytes) -> None:
        """Answer requests with these frames, as `reply` does."""
        if not self.is_closed:
            self._write(data)

    def retire(self) -> None:
        """Accept no new request; close when the last one in flight has ended."""
        self.is_retired = True
        if not self._pending:
            self._end("retired")
            if self._stream is not None:
                self._stream.close()

    async def close(self, reason: str = "closed here") -> None:
        """Send what was written, then end. Pending requests fail at once."""
        self._end(reason)
        if self._stream is None or self._gone.done():
            return
        self._stream.close()
        await asyncio.wait([self._gone], timeout=_CLOSE_TIMEOUT)
        if not self._gone.done():
            self._stream.abort()

    @property
    def kept(self) -> int:
        """Bytes that this side holds for the peer: written and not sent, or of a frame that is not complete yet."""
        return self.unsent + (0 if self.is_closed else self._reader.waiting_bytes)

    def disown(self) -> None:
        """In a forked child: leave the connection to the parent process."""
        if self._stream is not None:
            self._stream.disown()

    def abort(self, reason: str) -> None:
        """End at once and drop unsent bytes."""
        self._end(reason)
        if self._stream is not None:
            self._stream.abort()

    # What the stream calls.

    def received(self, data: bytes) -> None:
        if self.is_closed:
            return
        self.last_heard = self._loop.time()
        try:
            commands = self._reader.feed(data)
        except ProtocolError as error:
            self.abort(str(error))
            return
        if commands:
            self._last_frame = self.last_heard
        elif self._on_kept is not None and self._reader.waiting_bytes > _HALF_BYTES:
            self._on_kept(self)
            return
        self._backlog.extend(commands)
        self._serve_backlog()

    @property
    def has_answered(self) -> bool:
        """Whether the peer has sent a complete frame."""
        return self._last_frame != -inf

    def lost(self, reason: str) -> None:
        if self._may_want_tls and not (self.has_answered or self._is_server or self.is_closed):
            # A server that wants TLS closes what comes without it. With TLS, the reason says what is wrong.
            reason = f"{reason}, before it answered: does it want TLS (client.tls, client.cert_file)?"
        self._end(reason)
        if not self._gone.done():
            self._gone.set_result(None)

    def pause(self) -> None:
        self._paused = True
        self.room.clear()
        if self._is_server and self._stream is not None:
            self._stream.pause_reading()

    def resume(self) -> None:
        self._paused = False
        self.room.set()
        self._go_on()

    # Inside.

    def _go_on(self) -> None:
        self._serve_backlog()
        if not (self._paused or self._backlog or self.is_closed or self._stream is None):
            self._stream.resume_reading()

    def _serve_backlog(self) -> None:
        """Serve the frames that have arrived.

        A server goes on in later turns, and waits while its peer does not read.
        """
        backlog, last, most = self._backlog, len(self._backlog) - _MOST_SERVED, self._written + WRITE_HIGH_BYTES
        self._serving = True
        try:
            while backlog and not (self._is_server and (self._paused or len(backlog) <= last or self._written > most)):
                command = backlog.popleft()
                if command.flag & _RESPONSE:
                    self._answer(command)
                else:
                    self._serve_one(command)
            if self._on_served is not None:
                self._on_served()
        finally:
            self._serving = False
        if self._out:
            self._flush()
        if self._backlog and not self._paused and self._stream is not None:
            self._stream.pause_reading()
            self._loop.call_soon(self._go_on)

    def _answer(self, response: Command) -> None:
        pending_request = self._pending.pop(response.opaque, None)
        if pending_request is None:
            return
        answer = pending_request.answer
        if answer.done():
            return
        if self._access is not None:
            self._access.restore(pending_request.command, response)
        if response.code == _GO_AWAY and self._on_go_away is not None and not pending_request.is_resent:
            self._on_go_away(self, pending_request)
        else:
            answer.set_result(response)
        if self.is_retired:
            self.retire()

    def _serve_one(self, request: Command) -> None:
        if self.is_closed:
            return
        try:
            if self._access is not None:
                self._access.restore(None, request)
            response = self._serve(self, request) if self._serve is not None else not_supported(request)
        except Exception as error:
            # An error in one request is its response; the other requests are served as usual.
            response = Command.response(request, ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        if response is not None and not request.flag & _ONE_WAY:
            self.reply(response)

    def _write(self, data: bytes, *, at_once: bool = False) -> None:
        self._out.append(data)
        self._out_bytes += len(data)
        # Only on the server's side: a client's unsent requests belong to callers that wait for them.
        is_slow_reader = self._paused and self._is_server
        if not at_once and self._out_bytes <= _WRITE_BYTES and (self._serving or not is_slow_reader):
            if not self._serving and len(self._out) == 1:
                self._loop.call_soon(self._flush)
            return
        self._flush()
        if is_slow_reader:
            self._check_slow_reader()

    def _check_slow_reader(self) -> None:
        if self.unsent > UNSENT_LIMIT_BYTES:
            self.abort(f"the peer leaves {self.unsent} bytes unread")
        elif self._on_kept is not None:
            self._on_kept(self)

    def _flush(self) -> None:
        stream, out = self._stream, self._out
        if stream is None or not out:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._written += self._out_bytes
        self._out_bytes = 0
        self._last_written = self._loop.time()
        stream.write(data)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._sweep)
        self._timer_at = when

    def _sweep(self) -> None:
        """Fail overdue requests, end a dead connection, or set the timer for the next scan."""
        now = self._loop.time()
        silent = now - self.last_heard
        suspicious = False
        overdue = [opaque for opaque, pending_request in self._pending.items() if pending_request.deadline <= now]
        for command, answer, started, deadline, _ in map(self._pending.pop, overdue):
            if not answer.done():
                seconds = deadline - started
                problem = f"no answer to request {command.code} within {seconds:.3g} s"
                answer.set_exception(RequestTimeoutError(self.peer, problem))
                suspicious = suspicious or silent >= max(seconds - _SWEEP_GRAIN, SILENCE)
        if suspicious:
            self.abort(f"half-open: silent for {silent:.3g} s while a request waited")
            return
        if self.is_retired and not self._pending:
            self.retire()
            return
        idle_end = max(self._last_frame, self._last_written) + IDLE_TIMEOUT
        if idle_end <= now:
            self.abort(f"idle for {IDLE_TIMEOUT:g} s")
            return
        next_deadline = min((pending_request.deadline for pending_request in self._pending.values()), default=inf)
        self._set_timer(max(min(next_deadline, idle_end), now + _SWEEP_GRAIN))

    def _end(self, reason: str) -> None:
        if self.is_closed:
            return
        self._flush()
        self.is_closed, self.closed_reason = True, reason
        if self._timer is not None:
            self._timer.cancel()
        self._backlog.clear()
        self._out.clear()
        self.room.set()
        pending, self._pending = self._pending, {}
        for pending_request in pending.values():
            if not pending_request.answer.done():
                pending_request.answer.set_exception(ConnectionLostError(self.peer, reason))
        if self._on_lost is not None:
            self._on_lost(self, reason)


def not_supported(request: Command) -> Command:
    """The response to an unknown request code. The leading blank of the remark is Java's."""
    return Command.response(
        request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {request.code} not supported"
    )


KEPT_SUM_BYTES = 268_435_456
"""When slow readers leave more bytes than this unread in total, or slow writers make us keep them of unfinished frames,
the connections with the most of them are ended. Peers that keep up are not counted: they have at most WRITE_HIGH_BYTES
unsent."""


class Listener:
    """The accepted connections of one server. `accept` is what `listen_tcp` and `MemoryNetwork.listen` call."""

    def __init__(
        self,
        *,
        serve: Serve,
        max_frame_bytes: int,
        on_lost: Callable[[Connection, str], None] | None = None,
        on_served: Callable[[], None] | None = None,
        most_connections: int | None = None,
        decode: Decode = decode,
    ) -> None:
        """`most_connections`: further ones are closed at once; None: there is no limit."""
        self._most_connections, self._decode = most_connections, decode
        self._serve, self._max_frame_bytes, self._on_lost = serve, max_frame_bytes, on_lost
        self._on_served = on_served
        self.connections: dict[Connection, None] = {}
        """In the order in which they were accepted."""
        self._kept: dict[Connection, int] = {}
        """Bytes kept for slow readers and writers at their last call. There may be fewer of them since."""
        self._kept_sum = 0

    def __repr__(self) -> str:
        return f"<Listener: {len(self.connections)} connections>"

    def accept(self, stream: Stream) -> Connection:
        connection = Connection(
            serve=self._serve,
            max_frame_bytes=self._max_frame_bytes,
            on_lost=self._lost,
            on_kept=self._count_kept,
            on_served=self._on_served,
            decode=self._decode,
            is_server=True,
        )
        self.connections[connection] = None
        connection.attach(stream)
        if self._most_connections is not None and len(self.connections) > self._most_connections:
            connection.abort(f"there are {self._most_connections} connections already")
        return connection

    async def close(self) -> None:
        """Close every connection after its written bytes were sent."""
        await asyncio.gather(*(connection.close("the server stops") for connection in list(self.connections)))

    def _count_kept(self, connection: Connection) -> None:
        kept = connection.kept
        self._kept_sum += kept - self._kept.get(connection, 0)
        self._kept[connection] = kept
        if self._kept_sum > KEPT_SUM_BYTES:
            self._cut_slowest()

    def _cut_slowest(self) -> None:
        self._kept = {connection: kept for connection in self._kept if (kept := connection.kept)}
        self._kept_sum = sum(self._kept.values())
        while self._kept_sum > KEPT_SUM_BYTES:
            slowest = max(self._kept, key=self._kept.__getitem__)
            # This calls `_lost`, which subtracts its bytes from the sum.
            slowest.abort(f"{self._kept[slowest]} bytes unread, {self._kept_sum} by all peers together")

    def _lost(self, connection: Connection, reason: str) -> None:
        self.connections.pop(connection, None)
        self._kept_sum -= self._kept.pop(connection, 0)
        if self._on_lost is not None:
            self._on_lost(connection, reason)
