"""Names of a namespace are wrapped in all that is sent, and unwrapped in all that is received."""

from __future__ import annotations

import pytest

from rocketapp.consumer.rollout.forward import message_of
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.pulled import Acks, Handle
from rocketapp.wire import properties
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.namespace import Namespace
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.clients import ConsumerData, Heartbeat
from rocketapp.wire.requests.direct import DirectRequest
from rocketapp.wire.requests.locks import LockBody, decode_locked, encode_locked
from rocketapp.wire.requests.pop import AckRequest, decode_acks, encode_acks
from rocketapp.wire.requests.replies import PushReply
from rocketapp.wire.requests.running_info import encode_status
from rocketapp.wire.requests.send import SendRequest
from rocketapp.wire.requests.transactions import CheckTransaction, EndTransaction
from tests.cases import cases

NS = Namespace("shop")


@cases(
    "bare, wrapped",
    [
        ("orders", "shop%orders"),
        ("%RETRY%billing", "%RETRY%shop%billing"),
        ("%DLQ%billing", "%DLQ%shop%billing"),
        ("shopping", "shop%shopping"),
        ("other%orders", "shop%other%orders"),
        ("", ""),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"),
        ("rmq_sys_REVIVE_LOG", "rmq_sys_REVIVE_LOG"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("DefaultCluster_REPLY_TOPIC", "DefaultCluster_REPLY_TOPIC"),
    ],
)
def test_a_name_is_wrapped_once_and_comes_back(bare: str, wrapped: str) -> None:
    assert NS.wrap(bare) == wrapped
    assert NS.wrap(wrapped) == wrapped
    assert NS.bare(wrapped) == bare


def test_a_pull_names_topic_and_group_on_the_wire() -> None:
    command = Command(RequestCode.PULL_MESSAGE, {"consumerGroup": "g", "topic": "t"})
    NS.complete(command)
    assert command.fields is not None
    assert (command.fields["topic"], command.fields["consumerGroup"]) == ("shop%t", "shop%g")


def test_a_send_names_topic_group_and_namespace_and_the_topic_of_a_retry() -> None:
    retry = properties.encode({"RETRY_TOPIC": "t", "KEYS": "RETRY_TOPIC"}).decode()
    command = Command(RequestCode.SEND_MESSAGE_V2, SendRequest("g", "%RETRY%g", properties=retry).to_fields())
    NS.complete(command)
    NS.complete(command)
    sent = SendRequest.from_command(command)
    assert (sent.producer_group, sent.topic, sent.default_topic) == ("shop%g", "%RETRY%shop%g", "TBW102")
    assert properties.decode(sent.properties.encode()) == {
        "RETRY_TOPIC": "shop%t",
        "KEYS": "RETRY_TOPIC",
        "INSTANCE_ID": "shop",
    }


def test_a_heartbeat_and_locks_name_them_in_their_bodies() -> None:
    beat = Command(RequestCode.HEART_BEAT, {}, Heartbeat("c", ("p",), (ConsumerData("g"),)).encode())
    NS.complete(beat)
    told = Heartbeat.decode(beat.body)
    assert (told.client_id, told.producers, told.consumers[0].group) == ("c", ("shop%p",), "shop%g")
    queue = MessageQueue("t", "broker-a", 3)
    lock = Command(RequestCode.LOCK_BATCH_MQ, {}, LockBody("g", "c", [queue]).encode())
    NS.complete(lock)
    asked = LockBody.decode(lock.body)
    assert (asked.group, asked.queues) == ("shop%g", [queue._replace(topic="shop%t")])
    answer = Command.response(lock, 0, body=encode_locked(asked.queues))
    NS.restore(lock, answer)
    assert decode_locked(answer.body) == {queue}


def test_a_notification_of_a_broker_names_the_bare_group() -> None:
    told = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "shop%g"})
    NS.restore(None, told)
    assert told.fields == {"consumerGroup": "g"}


def test_a_retried_message_has_its_bare_topic_and_all_its_bytes() -> None:
    queue = MessageQueue("%RETRY%g", "broker-a", 0)
    raw = [properties.encode({"RETRY_TOPIC": "shop%t", "KEYS": "k"}), b"KEYS\x01k\x02RETRY_TOPIC\x01shop%t"]
    stored = b"".join(
        encode_record(Record("%RETRY%shop%g", b"body", raw_properties=one, queue_offset=at))
        for at, one in enumerate(raw)
    )
    pull = Command(RequestCode.PULL_MESSAGE, {"topic": "%RETRY%shop%g"})
    answer = Command.response(pull, 0, body=stored)
    NS.restore(pull, answer)
    messages = decode_records(answer.body, queue)
    assert [(one.topic, one.keys, one.body) for one in messages] == [("t", ["k"], b"body")] * 2


def test_bodies_of_other_topics_are_left_alone_whatever_they_hold() -> None:
    body = b"RETRY_TOPIC\x01shop%t\x02"
    stored = encode_record(Record("shop%t", body))
    pull = Command(RequestCode.PULL_MESSAGE, {"topic": "shop%t"})
    answer = Command.response(pull, 0, body=stored)
    NS.restore(pull, answer)
    assert answer.body == stored


def test_a_message_that_is_handed_over_has_the_topic_that_is_subscribed() -> None:
    fields = DirectRequest("shop%g", "c", "id", "shop%t", "broker-a").to_fields()
    request = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, encode_record(Record("shop%t", b"body")))
    NS.restore(None, request)
    message = message_of(DirectRequest.from_fields(request.fields), request.body)
    assert (message.topic, message.body) == ("t", b"body")


def test_a_half_message_names_its_group_on_the_wire_and_its_check_the_bare_one() -> None:
    half = properties.encode({properties.TRAN_MSG: "true", properties.PGROUP: "shop-app"}).decode()
    sent = Command(
        RequestCode.SEND_MESSAGE_V2, SendRequest("shop-app", "t", queue_id=1, properties=half).to_fields(), b"x"
    )
    NS.complete(sent)
    written = SendRequest.from_command(sent).properties.encode()
    assert properties.decode(written)[properties.PGROUP] == "shop%shop-app"
    stored = encode_record(Record("shop%t", b"x", raw_properties=written))
    asked = Command(RequestCode.CHECK_TRANSACTION_STATE, CheckTransaction(5, 500).to_fields(), stored)
    NS.restore(None, asked)
    (message,) = decode_records(asked.body, None)
    assert (message.topic, message.properties[properties.PGROUP]) == ("t", "shop-app")
    question = CheckTransaction(5, 500, topic="RMQ_SYS_TRANS_HALF_TOPIC")
    ended = Command(RequestCode.END_TRANSACTION, question.end("shop-app", 8, "id").to_fields())
    NS.complete(ended)
    read = EndTransaction.from_fields(ended.fields)
    assert (read.group, read.topic) == ("shop%shop-app", "RMQ_SYS_TRANS_HALF_TOPIC")


def test_the_body_of_a_reply_is_left_alone() -> None:
    fields = PushReply("shop%RG", "DefaultCluster_REPLY_TOPIC", 0, 0, 1, "", "", 2).to_fields()
    pushed = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, b'{"of": "shop%orders"}')
    NS.restore(None, pushed)
    assert pushed.body == b'{"of": "shop%orders"}'


def test_answers_with_queues_as_keys_name_them_on_the_wire() -> None:
    body = NS.body(encode_status({MessageQueue("t", "b", 0): 5, MessageQueue("%RETRY%g", "b", 0): 6}))
    key = '{{"brokerName":"b","queueId":0,"topic":"{}"}}'
    assert body.decode() == f'{{"messageQueueTable":{{{key.format("shop%t")}:5,{key.format("%RETRY%shop%g")}:6}}}}'


@pytest.mark.parametrize(
    ("where", "wrapped"),
    [
        ("orders", "shop%orders"),
        ("%RETRY%billing_orders", "%RETRY%shop%billing_shop%orders"),
        ("%RETRY%billing+orders", "%RETRY%shop%billing+shop%orders"),
    ],
)
def test_the_retry_topic_of_a_popped_message_is_named_by_both_names(where: str, wrapped: str) -> None:
    handle = Handle(7, 1_000, 60_000, 3, 1, "broker-a", 0, 7)
    request = Command(RequestCode.ACK_MESSAGE, AckRequest("billing", where, handle).to_fields())
    NS.complete(request)
    assert request.fields is not None
    assert (request.fields["consumerGroup"], request.fields["topic"]) == ("shop%billing", wrapped)


def test_acknowledgements_of_several_messages_are_in_the_namespace() -> None:
    acks = [Acks(Handle(7, 1_000, 60_000, 3, 1, "broker-a", 0, 7), [7, 8])]
    request = Command(RequestCode.BATCH_ACK_MESSAGE, {}, encode_acks("billing", "orders", "broker-a", acks))
    NS.complete(request)
    assert [(group, topic) for group, topic, _ in decode_acks(request.body)] == [("shop%billing", "shop%orders")]
