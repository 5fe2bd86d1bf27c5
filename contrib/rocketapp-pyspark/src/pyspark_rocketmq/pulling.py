"""Pulls a range of one queue, many pulls at once, in order.

The range is known to exist, so brokers never hold a pull. The window says what to pull; this sends it, and follows
what the broker answers about offsets that are not there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pyspark_rocketmq.cluster import CONNECTIONS, MASTER, TRANSIENT, Cluster, checked
from pyspark_rocketmq.options import Pulls
from pyspark_rocketmq.planning import Range
from pyspark_rocketmq.problems import SKIPPED, DataLossError, RecordError
from pyspark_rocketmq.remoting import Connection
from pyspark_rocketmq.window import Due, Pull, Window
from rocketapp import BrokerError, MessageQueue, NoRouteError, TransportError
from rocketapp.errors import ProtocolError
from rocketapp.state.queue_identity import Identity, Landmark, recognise
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION, PullRequest, PullResponse

_log = logging.getLogger("pyspark_rocketmq")
_ANSWERS = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
"""What a broker says to a pull of a queue that it has."""
_REMINDER = 60.0
"""Seconds between two lines about a broker that is waited for."""
BEGUN_ANEW = "it is read from its first message"


def mean_bytes(
    cluster: Cluster, pulls: Pulls, offsets: Mapping[MessageQueue, int], away: set[str]
) -> dict[MessageQueue, float]:
    """By queue the mean bytes of an offset, by one pull from there on; 0 when it finds nothing."""
    replies = _pull_each(cluster, pulls, offsets, pulls.pull_batch_size, away)
    return {
        queue: len(reply.body) / max(1, PullResponse.from_fields(reply.fields).next_offset - offsets[queue])
        for queue, reply in replies.items()
    }


def landmarks(
    cluster: Cluster, pulls: Pulls, offsets: Mapping[MessageQueue, int], away: set[str]
) -> dict[MessageQueue, Landmark | None]:
    """By queue its first record at that offset or behind it, whatever filters say; None for none."""
    replies = _pull_each(cluster, _unfiltered(pulls), offsets, 1, away)
    return {queue: _landmark(queue, reply, offsets[queue]) for queue, reply in replies.items()}


def denials(cluster: Cluster, pulls: Pulls, queues: Iterable[MessageQueue]) -> dict[MessageQueue, str]:
    """What living brokers say against queues. One that is away says nothing, and is asked once."""
    found = {}
    masters = cluster.masters()
    for queue in queues:
        try:
            if queue.broker_name in masters:
                cluster.ask(masters[queue.broker_name], RequestCode.PULL_MESSAGE, _request(cluster, pulls, queue, 0, 1))
        except TransportError:
            del masters[queue.broker_name]
        except BrokerError as error:
            if error.code not in _ANSWERS | TRANSIENT:
                found[queue] = error.remark
    return found


def _pull_each(
    cluster: Cluster, pulls: Pulls, offsets: Mapping[MessageQueue, int], count: int, away: set[str]
) -> dict[MessageQueue, Command]:
    fields = {queue: _request(cluster, pulls, queue, offset, count) for queue, offset in offsets.items()}
    return cluster.ask_brokers(RequestCode.PULL_MESSAGE, fields, away, _ANSWERS)


def _unfiltered(pulls: Pulls) -> Pulls:
    return replace(pulls, expression="*", expression_type="TAG")


def _landmark(queue: MessageQueue, reply: Command, offset: int) -> Landmark | None:
    try:
        found = decode_records(reply.body, None) if reply.code == ResponseCode.SUCCESS else []
    except ProtocolError as error:
        raise RecordError(f"{queue} from offset {offset} on: {error}") from None
    marks = (Landmark(one.offset, one.stored_ms, one.message_id) for one in found)
    return next((mark for mark in marks if mark.offset >= offset), None)


def _request(cluster: Cluster, pulls: Pulls, queue: MessageQueue, offset: int, count: int) -> dict[str, str]:
    """The fields of a pull that carries its own filter, so that the group needs no heartbeat."""
    return PullRequest(
        group=cluster.wire_name(pulls.group),
        topic=cluster.wire_name(queue.topic),
        queue_id=queue.queue_id,
        offset=offset,
        max_messages=count,
        sys_flag=FLAG_SUBSCRIPTION,
        expression=pulls.expression,
        expression_type=pulls.expression_type,
        broker_name=queue.broker_name,
    ).to_fields()


class RangePuller:
    """The messages of one range."""

    def __init__(self, cluster: Cluster, pulls: Pulls, part: Range, landmark: Landmark | None = None) -> None:
        """`landmark`: a record that the queue had when the range was planned. Each connection looks for it first."""
        queue, start, end = part
        self._cluster, self._pulls, self._queue, self._end = cluster, pulls, queue, end
        self._landmark = landmark
        depth, batch = pulls.pull_depth, pulls.pull_batch_size
        self._window = Window(start, end, depth=depth, batch=batch, filtered=pulls.is_filtered)
        self._broker_id = self._advised = MASTER
        self._fields = _request(cluster, pulls, queue, start, batch)
        """Of each pull, but for its offset and its number of messages."""
        self._follows = pulls.from_replica
        """Whether advice to read elsewhere is followed; not any more, after a replica that lagged."""

    def replies(self) -> Iterator[Due]:
        """The records in order. Raises DataLossError, RecordError, or what the last attempt without progress raised."""
        attempts, told = self._cluster.reach.retries, -_REMINDER
        while not self._window.is_done:
            before = self._window.expected
            try:
                yield from self._over_one_connection()
            except ProtocolError as error:
                raise RecordError(f"{self._queue} from offset {self._window.expected} on: {error}") from None
            except (TransportError, NoRouteError, BrokerError) as error:
                if isinstance(error, BrokerError) and error.code not in TRANSIENT:
                    raise
                attempts = self._cluster.reach.retries if self._window.expected > before else attempts - 1
                if attempts < 0 and not self._pulls.waits:
                    raise
                if attempts < 0 and time.monotonic() - told >= _REMINDER:
                    told = time.monotonic()
                    if denied := denials(self._cluster, self._pulls, [self._queue]):
                        self._lost(Pull(before, 1), self._end, denied[self._queue])
                        return
                    _log.warning("%s is waited for at offset %d: %s", self._queue, self._window.expected, error)
                self._cluster.pause()
                self._cluster.forget_routes()
                self._advised = MASTER

    def _over_one_connection(self) -> Iterator[Due]:
        """Pull until the range is done or another member of the broker should be asked."""
        window = self._window
        window.restart()
        self._broker_id = self._advised = self._cluster.member(
            self._queue.topic, self._queue.broker_name, self._advised, or_replica=self._pulls.from_replica
        )
        connection = self._cluster.connect(self._queue.topic, self._queue.broker_name, self._broker_id)
        with CONNECTIONS.lent(connection):
            sent: dict[int, Pull] = {}
            self._recognise(connection)
            yield from window.due()
            while not window.is_done:
                if self._advised == self._broker_id:
                    sent |= self._send(connection, window.to_send())
                if not sent:
                    break
                for reply in connection.receive_all(self._cluster.reach.timeout):
                    self._take(sent.pop(reply.opaque), reply, connection.address)
                yield from window.due()
            while connection.in_flight:
                connection.receive(self._cluster.reach.timeout)

    def _send(self, connection: Connection, pulls: list[Pull]) -> dict[int, Pull]:
        if not pulls:
            return {}
        requests = [
            self._fields | {"queueOffset": str(pull.offset), "maxMsgNums": str(self._window.count(pull))}
            for pull in pulls
        ]
        opaques = connection.send_all((RequestCode.PULL_MESSAGE, fields, b"") for fields in requests)
        return dict(zip(opaques, pulls, strict=True))

    def _recognise(self, connection: Connection) -> None:
        """Nothing more is read of a queue that was replaced since the range was planned."""
        known = self._landmark
        if known is None or self._broker_id != MASTER:
            return
        fields = _request(self._cluster, _unfiltered(self._pulls), self._queue, known.offset, 1)
        reply = connection.call(RequestCode.PULL_MESSAGE, fields, timeout=self._cluster.reach.timeout)
        checked(reply, connection.address, _ANSWERS)
        end = PullResponse.from_fields(reply.fields).max_offset
        if recognise(known, _landmark(self._queue, reply, known.offset), end=end) is Identity.OTHER:
            self._lost(Pull(self._window.expected, 1), self._end, "another queue has taken its place")

    def _take(self, pull: Pull, reply: Command, address: str) -> None:
        code = checked(reply, address, _ANSWERS).code
        answer = PullResponse.from_fields(reply.fields)
        if self._follows and self._cluster.has_replica(self._queue.broker_name, answer.suggested_broker_id):
            self._advised = answer.suggested_broker_id
        if code != ResponseCode.PULL_OFFSET_MOVED and answer.next_offset > pull.offset:
            self._window.arrived(pull, answer.next_offset, reply.body if code == ResponseCode.SUCCESS else b"")
        elif self._broker_id != MASTER:
            self._follows, self._advised = False, MASTER
            raise TransportError(address, f"the replica does not have message {pull.offset} of {self._queue}")
        elif code == ResponseCode.PULL_OFFSET_MOVED and pull.offset < answer.min_offset:
            self._lost(pull, answer.min_offset, f"the queue begins at {answer.min_offset}")
        elif answer.max_offset <= pull.offset:
            self._lost(pull, self._end, f"the queue ends at {answer.max_offset}")
        else:
            # As after a reset of the group's offsets, which is told once: the next pull is answered.
            raise BrokerError(
                ResponseCode.SYSTEM_BUSY, f"no answer about offset {pull.offset} of {self._queue}", address
            )

    def _lost(self, pull: Pull, until: int, problem: str) -> None:
        """The messages from the pull on are gone up to `until`: an error, or a hole."""
        lost = DataLossError(str(self._queue), f"messages from offset {pull.offset} are gone: {problem}")
        if self._pulls.fail_on_data_loss:
            raise lost
        _log.warning("%s: %s; %s", lost.place, lost.problem, SKIPPED)
        self._window.arrived(pull, max(pull.offset + 1, min(until, self._end)), b"")
