"""Access keys, TLS, retries and replicas, at a scripted server."""

from __future__ import annotations

import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_rocketmq.cluster import Cluster
from pyspark_rocketmq.options import read_options
from pyspark_rocketmq.planning import Range
from pyspark_rocketmq.problems import DataLossError, RecordError
from pyspark_rocketmq.pulling import landmarks
from pyspark_rocketmq.reading import RangePartition, read_partition
from pyspark_rocketmq.remoting import Connection
from rocketapp import BrokerError, MessageQueue, NoRouteError, TransportError
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.frame import encode
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.requests.pull import PullResponse
from rocketapp.wire.signing import Keys

if TYPE_CHECKING:
    from conftest import Scripted

Start = Callable[..., "Scripted"]
QUEUE = MessageQueue("t", "broker-a", 0)


def options(server: str, **given: Any):  # type: ignore[no-untyped-def]
    texts = {name.replace("__", "."): str(value) for name, value in given.items()}
    base = {"nameServer": server, "subscribe": "t", "fetchOffset.retryIntervalMs": "1"}
    return read_options({**base, **texts}, streaming=False)


def found(request: Command, offsets: range, *, suggested: int = 0) -> Command:
    """A reply to a pull with these messages."""
    body = b"".join(encode_record(Record("t", b"x", queue_offset=offset)) for offset in offsets)
    fields = PullResponse(suggested, offsets.stop, 0, 100).to_fields()
    return Command.response(request, ResponseCode.SUCCESS, fields=fields, body=body)


def pull_32(request: Command) -> Command:
    assert request.fields is not None
    start = int(request.fields["queueOffset"])
    return found(request, range(start, min(100, start + int(request.fields["maxMsgNums"]))))


def read(server: str, **given: Any) -> list[int]:
    part = RangePartition(Range(QUEUE, 0, 100))
    batches = read_partition(options(server, columns="queue_offset", **given), part)
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def test_every_request_is_signed_with_the_access_key(script: Start) -> None:
    server = script(pull_32)
    assert read(server.address, accessKey="AK", secretKey="SK", securityToken="T") == list(range(100))
    assert {request.code for request in server.requests} == {105, 11}
    for request in server.requests:
        assert request.fields == Keys(access_key="AK", secret_key="SK", security_token="T").sign(
            request.fields, request.body
        )


def test_without_keys_nothing_is_signed(script: Start) -> None:
    server = script(pull_32)
    read(server.address)
    assert not [request for request in server.requests if "Signature" in (request.fields or {})]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for another name than 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=broker.example", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    return cert, key


@pytest.fixture
def tls_server(script: Start, certificate: tuple[Path, Path]) -> Scripted:
    """A server that wants a certificate of its clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.load_verify_locations(certificate[0])
    context.verify_mode = ssl.CERT_OPTIONAL
    return script(pull_32, context)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tls.caFile": "CERT"}, "not valid for '127.0.0.1'"),
        ({"tls.caFile": "CERT", "tls.checkHost": "false"}, None),
        ({}, "certificate verify failed"),
        ({"tls.verify": "false"}, None),
        ({"tls.verify": "false", "tls.certFile": "CERT", "tls.keyFile": "KEY"}, None),
        ({"tls.verify": "false", "tls.certFile": "missing.pem"}, "No such file"),
    ],
    ids=["other name", "name not checked", "not trusted", "not checked", "own certificate", "no such file"],
)
def test_tls(tls_server: Scripted, certificate: tuple[Path, Path], given: dict[str, str], problem: str | None) -> None:
    paths = {"CERT": str(certificate[0]), "KEY": str(certificate[1])}
    texts = {name.replace(".", "__"): paths.get(value, value) for name, value in given.items()}
    if problem is None:
        assert read(tls_server.address, tls__enabled="true", **texts) == list(range(100))
        return
    with pytest.raises(TransportError, match="cannot connect") as caught:
        read(tls_server.address, tls__enabled="true", fetchOffset__numRetries=0, **texts)
    assert problem in str(caught.value)


def test_an_encrypted_key_needs_its_password(
    tls_server: Scripted, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    locked = tmp_path / "locked.pem"
    subprocess.run(
        ["openssl", "ec", "-in", str(certificate[1]), "-aes256", "-passout", "pass:PASSW0RD", "-out", str(locked)],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    own = {"tls__verify": "false", "tls__certFile": certificate[0], "tls__keyFile": locked}
    assert read(tls_server.address, tls__enabled="true", tls__keyPassword="PASSW0RD", **own) == list(range(100))
    with pytest.raises(TransportError):
        read(tls_server.address, tls__enabled="true", tls__keyPassword="wrong", fetchOffset__numRetries=0, **own)


def test_a_lost_connection_is_made_again_and_no_message_is_lost_or_doubled(script: Start) -> None:
    pulls: list[int] = []

    def answer(request: Command) -> Command | None:
        pulls.append(1)
        return None if len(pulls) % 3 == 0 else pull_32(request)

    server = script(answer)
    assert read(server.address, pullDepth=1, pullBatchSize=10) == list(range(100))


@pytest.mark.parametrize("retries", [0, 2])
def test_attempts_without_progress_end(script: Start, retries: int) -> None:
    server = script(lambda _: None)
    with pytest.raises(TransportError):
        read(server.address, pullDepth=1, fetchOffset__numRetries=retries)
    assert server.count(RequestCode.PULL_MESSAGE) == retries + 1


def test_a_pause_lies_between_attempts(script: Start) -> None:
    server = script(lambda _: None)
    began = time.monotonic()
    with pytest.raises(TransportError):
        read(server.address, pullDepth=1, fetchOffset__numRetries=2, fetchOffset__retryIntervalMs=60)
    assert time.monotonic() - began >= 0.12


def test_a_busy_broker_is_asked_again_and_a_refusal_is_final(script: Start) -> None:
    busy = iter([ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY])

    def answer(request: Command) -> Command:
        code = next(busy, None)
        return pull_32(request) if code is None else Command.response(request, code)

    assert read(script(answer).address, pullDepth=1) == list(range(100))
    refusing = script(lambda request: Command.response(request, ResponseCode.NO_PERMISSION, remark="no"))
    with pytest.raises(BrokerError, match="code 16: no"):
        read(refusing.address, pullDepth=1)
    assert refusing.count(RequestCode.PULL_MESSAGE) == 1


def test_a_broker_that_does_not_answer_is_given_up(script: Start) -> None:
    until = threading.Event()
    server = script(lambda request: pull_32(request) if until.wait(20) else None)
    with pytest.raises(TransportError, match=r"no answer within 0\.05 s"):
        read(server.address, pullTimeoutMs=50, fetchOffset__numRetries=0)
    until.set()


@pytest.mark.parametrize("depth", [1, 4])
def test_the_given_number_of_pulls_is_in_flight(script: Start, monkeypatch: pytest.MonkeyPatch, depth: int) -> None:
    in_flight: list[int] = []
    receive = Connection.receive_all

    def counted(connection: Connection, timeout: float) -> list[Command]:
        in_flight.append(connection.in_flight)
        return receive(connection, timeout)

    monkeypatch.setattr(Connection, "receive_all", counted)
    assert read(script(pull_32).address, pullDepth=depth, pullBatchSize=5) == list(range(100))
    assert max(in_flight) == depth


@pytest.mark.parametrize("batch", [7, 32])
def test_a_pull_asks_for_the_given_number_of_messages(script: Start, batch: int) -> None:
    server = script(pull_32)
    read(server.address, pullBatchSize=batch)
    asked = [int(r.fields["maxMsgNums"]) for r in server.requests if r.code == 11 and r.fields]
    assert asked[0] == batch == max(asked)


@pytest.mark.parametrize(("given", "from_replica"), [({}, True), ({"fromReplica": "never"}, False)])
def test_the_advice_to_read_from_a_replica_is_followed_unless_forbidden(
    script: Start, given: dict[str, str], from_replica: bool
) -> None:
    def advising(request: Command) -> Command:
        reply = pull_32(request)
        assert reply.fields is not None
        return Command.response(request, 0, fields={**reply.fields, "suggestWhichBrokerId": "1"}, body=reply.body)

    replica = script(advising)
    master = script(advising)
    master.replica = replica.address
    assert read(master.address, pullDepth=1, pullBatchSize=10, **given) == list(range(100))
    assert (replica.count(RequestCode.PULL_MESSAGE) > 0) == from_replica


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED])
def test_a_replica_that_lags_is_left_for_the_master_and_is_no_data_loss(script: Start, code: int) -> None:
    def lagging(request: Command) -> Command:
        return Command.response(request, code, fields=PullResponse(1, 0, 0, 0).to_fields())

    def advising(request: Command) -> Command:
        start = int((request.fields or {})["queueOffset"])
        return found(request, range(start, min(100, start + 10)), suggested=1)

    replica, master = script(lagging), script(advising)
    master.replica = replica.address
    assert read(master.address, pullDepth=1, pullBatchSize=10) == list(range(100))
    assert replica.count(RequestCode.PULL_MESSAGE) == 1


@pytest.mark.parametrize("choice", ["advice", "never"])
def test_while_a_master_is_away_its_replica_is_read_unless_forbidden(script: Start, choice: str) -> None:
    replica, names = script(pull_32), script(pull_32)
    names.replica, names.has_master = replica.address, False
    if choice == "advice":
        assert read(names.address, fromReplica=choice) == list(range(100))
        return
    with pytest.raises(NoRouteError, match="broker broker-a has no master now"):
        read(names.address, fromReplica=choice, fetchOffset__numRetries=1)


def test_the_next_name_server_is_asked_when_one_is_gone(script: Start) -> None:
    server = script(pull_32)
    assert read(f"127.0.0.1:1;{server.address}") == list(range(100))


def test_a_namespace_is_in_front_of_topic_and_group(script: Start) -> None:
    server = script(pull_32)
    read(server.address, namespace="ns", consumerGroup="g")
    route, pull = (next(r.fields for r in server.requests if r.code == code) for code in (105, 11))
    assert route is not None
    assert pull is not None
    assert (route["topic"], pull["topic"], pull["consumerGroup"]) == ("ns%t", "ns%t", "ns%g")


def test_the_group_has_a_prefix(script: Start) -> None:
    server = script(pull_32)
    read(server.address, groupIdPrefix="mine")
    assert {r.fields["consumerGroup"] for r in server.requests if r.code == 11 and r.fields} == {"mine-source"}


def cut_short(request: Command, reply: Command) -> bytes:
    return encode(Command.response(request, 0, fields=reply.fields, body=reply.body[:-3]))


def without_offsets(request: Command, reply: Command) -> bytes:
    return encode(Command.response(request, 0, body=reply.body))


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (cut_short, "59 on: record at byte"),
        (without_offsets, "40 on: .*nextBeginOffset"),
        (lambda *_: b"\0\0\0\1", "40 on: 127.0.0.1:[0-9]+: frame of 1 bytes"),
        (lambda *_: b"\0\0\0\x09\0\0\0\x05{}{}{", "40 on: 127.0.0.1:[0-9]+: .*header"),
    ],
    ids=["record", "answer", "frame", "header"],
)
def test_a_damaged_reply_is_an_error_that_says_where_and_not_a_missing_row(
    script: Start, damage: Callable[[Command, Command], bytes], place: str
) -> None:
    def damaged(request: Command) -> Command | bytes:
        reply = pull_32(request)
        return reply if int((request.fields or {})["queueOffset"]) < 40 else damage(request, reply)

    with pytest.raises(RecordError, match=f"t@broker-a:0 from offset {place}"):
        read(script(damaged).address, pullDepth=1, pullBatchSize=20)


def test_a_damaged_record_below_a_position_says_where(script: Start) -> None:
    asked = options(script(lambda request: cut_short(request, pull_32(request))).address)
    with pytest.raises(RecordError, match="t@broker-a:0 from offset 99 on: record at byte"):
        landmarks(Cluster(asked.reach), asked.pulls, {QUEUE: 99}, set())


def test_idle_connections_are_used_again(script: Start) -> None:
    server = script(pull_32)
    read(server.address)
    before = server.connections
    read(server.address)
    assert server.connections == before


def test_expired_messages_are_data_loss_or_skipped(script: Start) -> None:
    def expired(request: Command) -> Command:
        if int((request.fields or {})["queueOffset"]) >= 40:
            return pull_32(request)
        fields = PullResponse(0, 40, 40, 100).to_fields()
        return Command.response(request, ResponseCode.PULL_OFFSET_MOVED, fields=fields)

    server = script(expired)
    with pytest.raises(DataLossError, match="messages from offset 0 are gone: the queue begins at 40"):
        read(server.address, pullDepth=1)
    assert read(server.address, failOnDataLoss="false") == list(range(40, 100))


def test_a_hole_that_the_broker_steps_over_is_no_data_loss(script: Start) -> None:
    def stepping(request: Command) -> Command:
        start = int((request.fields or {})["queueOffset"])
        if not 20 <= start < 70:
            return found(request, range(start, min(20 if start < 20 else 100, start + 32)))
        fields = PullResponse(0, 70, 0, 100).to_fields()
        return Command.response(request, ResponseCode.PULL_NOT_FOUND, fields=fields)

    assert read(script(stepping).address) == [*range(20), *range(70, 100)]
