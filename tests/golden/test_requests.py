"""What the Java client means by each request, and Apache RocketMQ by each answer; and that ours would say the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.pulled import Handle
from rocketapp.wire import batch, lenient_json, properties
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.java import tags_code
from rocketapp.wire.layout import decode_record, encode_record
from rocketapp.wire.message_id import parse_offset_id
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests import (
    assignment,
    clients,
    locks,
    offsets,
    pop,
    pull,
    recall,
    replies,
    routes,
    send,
    send_back,
    statistics,
    transactions,
)
from tests.cases import cases
from tests.golden.frames import frame, request, response

TOPIC, BROKER = "GoldenTopic", "broker-a"
OURS_ONLY_WHEN_ASKED = {"bname", "unitMode", "k", "committed", "boundaryType", "reconsumeTimes"}
"""Fields with a default at the broker that the Java client writes and we may leave out."""


def test_codes_have_the_names_that_they_had_on_the_wire() -> None:
    recorded = {
        "pull": RequestCode.PULL_MESSAGE,
        "query_offset": RequestCode.QUERY_CONSUMER_OFFSET,
        "commit_offset": RequestCode.UPDATE_CONSUMER_OFFSET,
        "max_offset": RequestCode.GET_MAX_OFFSET,
        "min_offset": RequestCode.GET_MIN_OFFSET,
        "search_offset": RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        "heartbeat": RequestCode.HEART_BEAT,
        "unregister": RequestCode.UNREGISTER_CLIENT,
        "send_back": RequestCode.CONSUMER_SEND_MSG_BACK,
        "member_list": RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        "group_changed": RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        "lock": RequestCode.LOCK_BATCH_MQ,
        "unlock": RequestCode.UNLOCK_BATCH_MQ,
        "pop_assignment": RequestCode.QUERY_ASSIGNMENT,
        "pop_mode": RequestCode.SET_MESSAGE_REQUEST_MODE,
        "pop": RequestCode.POP_MESSAGE,
        "pop_ack": RequestCode.ACK_MESSAGE,
        "pop_change": RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        "recall": RequestCode.RECALL_MESSAGE,
        "route": RequestCode.GET_ROUTEINFO_BY_TOPIC,
        "cluster_info": RequestCode.GET_BROKER_CLUSTER_INFO,
        "topic_stats": RequestCode.GET_TOPIC_STATS_INFO,
        "send_v2": RequestCode.SEND_MESSAGE_V2,
        "send_batch": RequestCode.SEND_BATCH_MESSAGE,
    }
    assert {name: request(name).code for name in recorded} == {name: code.value for name, code in recorded.items()}
    refused = {"query_offset_22": 22, "member_list_1": 1, "route_17": 17, "pull_19": 19, "pull_20": 20, "pull_24": 24}
    assert {name: response(name).code for name in refused} == refused
    assert (ResponseCode.QUERY_NOT_FOUND.value, ResponseCode.TOPIC_NOT_EXIST.value) == (22, 17)


HEADERS: list[tuple[str, Callable[[Any], Any]]] = [
    ("pull", pull.PullRequest.from_fields),
    ("pull_binary", pull.PullRequest.from_fields),
    ("send_v2", send.SendRequest.from_fields),
    ("send_v2_binary", send.SendRequest.from_fields),
    ("send_batch", send.SendRequest.from_fields),
    ("send_back", send_back.SendBackRequest.from_fields),
    ("query_offset", offsets.QueryOffsetRequest.from_fields),
    ("query_offset_22", offsets.QueryOffsetRequest.from_fields),
    ("query_offset_binary", offsets.QueryOffsetRequest.from_fields),
    ("commit_offset", offsets.CommitRequest.from_fields),
    ("max_offset", offsets.QueueRequest.from_fields),
    ("min_offset", offsets.QueueRequest.from_fields),
    ("search_offset", offsets.SearchOffsetRequest.from_fields),
    ("unregister", clients.UnregisterRequest.from_fields),
    ("unregister_binary", clients.UnregisterRequest.from_fields),
    ("member_list", clients.OfGroup.from_fields),
    ("group_changed", clients.OfGroup.from_fields),
    ("end_transaction", transactions.EndTransaction.from_fields),
    ("end_transaction_asked", transactions.EndTransaction.from_fields),
    ("check_transaction", transactions.CheckTransaction.from_fields),
    ("send_reply", send.SendRequest.from_fields),
    ("push_reply", replies.PushReply.from_fields),
    ("recall", recall.RecallRequest.from_fields),
    ("pop", pop.PopRequest.from_fields),
    ("pop_ack", pop.AckRequest.from_fields),
    ("pop_change", pop.AckRequest.from_fields),
    ("route", routes.RouteRequest.from_fields),
]


@cases("name, parse", HEADERS, ids=[name for name, _ in HEADERS])
def test_our_header_says_what_javas_said(name: str, parse: Callable[[Any], Any]) -> None:
    theirs = request(name).fields
    assert theirs is not None
    ours = parse(theirs).to_fields()
    assert parse(ours) == parse(theirs)
    same = {key: value.lower() for key, value in ours.items() if key in theirs}
    assert same == {key: theirs[key].lower() for key in same}
    missing = theirs.keys() - ours.keys()
    assert missing <= OURS_ONLY_WHEN_ASKED, f"Java says {missing}, we do not"


def test_a_pull_asks_for_what_java_asked_for() -> None:
    asked = pull.PullRequest.from_fields(request("pull").fields)
    assert (asked.group, asked.topic, asked.broker_name) == ("golden_concurrent", TOPIC, BROKER)
    assert (asked.offset, asked.max_messages, asked.max_bytes, asked.suspend_ms) == (0, 32, 262_144, 15_000)
    assert asked.sys_flag == pull.FLAG_SUSPEND
    assert asked.expression_type == "TAG"


def test_a_pulled_body_is_the_messages_that_were_sent() -> None:
    answer = response("pull")
    where = pull.PullResponse.from_fields(answer.fields)
    queue = MessageQueue(TOPIC, BROKER, 1)
    messages = decode_records(answer.body, queue)
    assert where == pull.PullResponse(suggested_broker_id=0, next_offset=3, min_offset=0, max_offset=3)
    assert [message.offset for message in messages] == [0, 1]  # the third has no tag: the broker left it out
    sent = send.SendResponse.from_fields(response("send_v2").fields)
    hello = next(message for message in messages if message.body == b"hello golden")
    assert (hello.topic, hello.queue_id, hello.offset) == (TOPIC, sent.queue_id, sent.queue_offset)
    assert (hello.tag, hello.keys, hello.attempt) == ("TagA", ["k1", "k2"], 1)
    assert (hello.properties["colour"], hello.properties["名"]) == ("red", "值")
    assert hello.message_id == sent.transaction_id
    assert hello.offset_message_id == sent.message_id
    assert parse_offset_id(sent.message_id)[2] == hello.physical_offset == 0
    asked = send.SendRequest.from_command(request("send_v2"))
    assert int(hello.born_at.timestamp() * 1000) == asked.born_ms
    assert sum(message.size for message in messages) == len(answer.body)


def test_stored_records_are_written_to_the_byte_as_the_broker_stored_them() -> None:
    body, at = response("pull").body, 0
    while at < len(body):
        record = decode_record(body, at)
        again = encode_record(record)
        assert again == body[at : at + len(again)]
        at += len(again)
    assert at == len(body)


def test_a_send_carries_body_and_properties() -> None:
    command = request("send_v2")
    asked = send.SendRequest.from_command(command)
    assert (asked.topic, asked.default_topic, asked.default_queues, asked.queue_id) == (TOPIC, "TBW102", 4, 1)
    assert (asked.reconsume_times, asked.max_reconsume_times, asked.batch) == (0, None, False)
    carried = properties.decode(asked.properties.encode())
    assert (carried["TAGS"], carried["KEYS"], carried["colour"], carried["名"]) == ("TagA", "k1 k2", "red", "值")
    assert properties.tag_of(asked.properties.encode()) == b"TagA"
    assert command.body == b"hello golden"


def test_a_batch_is_written_to_the_byte_as_java_writes_it() -> None:
    command = request("send_batch")
    items = batch.decode_batch(command.body)
    assert [body for body, _, _ in items] == [b"one", b"two"]
    assert [properties.decode(raw).get("TAGS") for _, raw, _ in items] == ["TagA", None]
    assert batch.encode_batch(items) == command.body
    assert send.SendRequest.from_command(command).batch is True
    stored = send.SendResponse.from_fields(response("send_batch").fields)
    assert len(stored.message_id.split(",")) == 2


def test_a_heartbeat_names_group_and_subscriptions() -> None:
    told = clients.Heartbeat.decode(request("heartbeat_consumer").body)
    consumer = next(data for data in told.consumers if data.group == "golden_concurrent")
    assert (consumer.consume_type, consumer.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert consumer.consume_from == "CONSUME_FROM_FIRST_OFFSET"
    by_topic = {data.topic: data for data in consumer.subscriptions}
    assert by_topic.keys() == {TOPIC, "%RETRY%golden_concurrent"}
    assert by_topic[TOPIC].tags == {"TagA", "TagC"}
    assert by_topic["%RETRY%golden_concurrent"].tags == frozenset()


def test_our_heartbeat_has_every_member_that_javas_has() -> None:
    body = request("heartbeat_consumer").body
    theirs = json.loads(body)
    ours = json.loads(clients.Heartbeat.decode(body).encode())

    def shape(consumer: dict[str, Any]) -> dict[str, Any]:
        subscriptions = {
            data["topic"]: {**data, "tagsSet": sorted(data["tagsSet"]), "codeSet": sorted(data["codeSet"])}
            for data in consumer["subscriptionDataSet"]
        }
        return {**consumer, "subscriptionDataSet": subscriptions}

    assert ours["clientID"] == theirs["clientID"]
    assert ours["producerDataSet"] == theirs["producerDataSet"]
    assert [shape(one) for one in ours["consumerDataSet"]] == [shape(one) for one in theirs["consumerDataSet"]]


def test_tag_codes_are_javas() -> None:
    theirs = json.loads(request("heartbeat_consumer").body)
    subscription = next(data for data in theirs["consumerDataSet"][0]["subscriptionDataSet"] if data["topic"] == TOPIC)
    assert {tags_code(tag) for tag in subscription["tagsSet"]} == set(subscription["codeSet"])


def test_locks_are_asked_and_granted_as_java_does() -> None:
    for name in ("lock", "unlock"):
        body = request(name).body
        asked = locks.LockBody.decode(body)
        assert asked.group == "golden_orderly"
        assert MessageQueue(TOPIC, BROKER, 0) in asked.queues
        ours = json.loads(asked.encode())
        theirs = json.loads(body)
        assert _sorted(ours.pop("mqSet")) == _sorted(theirs.pop("mqSet"))
        assert ours == theirs
    granted = locks.decode_locked(response("lock").body)
    assert granted == set(locks.LockBody.decode(request("lock").body).queues)
    assert locks.decode_locked(locks.encode_locked(granted)) == granted


def _sorted(queues: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((queue["topic"], queue["brokerName"], queue["queueId"]) for queue in queues)


def test_a_route_has_queues_and_addresses() -> None:
    route = routes.decode_route(response("route").body)
    assert route.readable_queues(TOPIC) == [MessageQueue(TOPIC, BROKER, queue) for queue in range(2)]
    broker = route.broker(BROKER)
    assert broker is not None
    assert (broker.cluster, list(broker.addresses)) == ("DefaultCluster", [0])
    assert routes.decode_route(routes.encode_route(route)) == route
    assert json.loads(routes.encode_route(route)) == json.loads(response("route").body)


def test_keys_that_are_no_strings_are_read() -> None:
    # fastjson writes integer keys bare, and objects as keys as they are: no JSON reader of the standard takes that.
    (broker,) = routes.decode_cluster_info(response("cluster_info").body)
    assert (broker.broker_name, list(broker.addresses)) == (BROKER, [0])
    with pytest.raises(json.JSONDecodeError):
        json.loads(response("topic_stats").body)
    lenient_json.loads(response("topic_stats").body)
    table = statistics.decode_topic_stats(response("topic_stats").body)
    assert {queue: (row.min_offset, row.max_offset) for queue, row in table.items()} == {
        MessageQueue(TOPIC, BROKER, 0): (0, 0),
        MessageQueue(TOPIC, BROKER, 1): (0, 3),
    }


def test_offsets_and_members_are_read() -> None:
    assert offsets.OffsetResponse.from_fields(response("max_offset").fields).offset >= 0
    assert offsets.QueryOffsetRequest.from_fields(request("query_offset_22").fields).set_zero_if_not_found is False
    assert offsets.SearchOffsetRequest.from_fields(request("search_offset").fields) == offsets.SearchOffsetRequest(
        TOPIC, 1, 1, "lower"
    )
    (member,) = clients.decode_members(response("member_list").body)
    assert member.count("@") == 1
    assert clients.UnregisterRequest.from_fields(request("unregister").fields).client_id.count("@") == 1
    assert "no consumer for this group" in (response("member_list_1").remark or "")


def test_a_send_back_names_the_physical_offset() -> None:
    asked = send_back.SendBackRequest.from_fields(request("send_back").fields)
    assert (asked.group, asked.origin_topic, asked.delay_level) == ("golden_concurrent", TOPIC, 0)
    assert (asked.max_reconsume_times, asked.broker_name) == (16, BROKER)
    assert asked.physical_offset > 0


def test_one_way_requests_are_marked_so() -> None:
    assert request("group_changed").is_one_way
    assert request("commit_offset").is_one_way
    assert not request("pull").is_one_way
    assert frame("group_changed", "request")[4] == 0


def test_a_half_message_is_ended_where_it_is_and_a_question_is_answered_where_it_asks() -> None:
    ended = transactions.EndTransaction.from_fields(request("end_transaction").fields)
    assert (ended.group, ended.topic, ended.decision, ended.from_check) == ("golden_producer", TOPIC, 8, False)
    assert ended.transaction_id == ended.message_id
    question = request("check_transaction")
    asked = transactions.CheckTransaction.from_fields(question.fields)
    (half,) = decode_records(question.body, None)
    assert (half.body, half.topic, half.properties["PGROUP"]) == (b"committed", TOPIC, "golden_producer")
    assert half.message_id == asked.transaction_id == ended.transaction_id
    # Java's answer was recorded from a later question: its place and its message are others.
    theirs = transactions.EndTransaction.from_fields(request("end_transaction_asked").fields)
    answer = asked.end("golden_producer", 12, half.message_id)
    assert (answer.half_offset, answer.physical_offset) == (asked.half_offset, asked.physical_offset)
    assert theirs == replace(
        answer,
        half_offset=theirs.half_offset,
        physical_offset=theirs.physical_offset,
        message_id=theirs.message_id,
        transaction_id=theirs.message_id,
    )


def test_a_reply_says_which_request_it_answers() -> None:
    sent = send.SendRequest.from_command(request("send_reply"))
    carried = properties.decode(sent.properties.encode())
    push = request("push_reply")
    (reply,) = decode_records(encode_record(replies.PushReply.from_fields(push.fields).record(push.body)), None)
    assert reply.body == request("send_reply").body == b"re: a question"
    assert sent.topic == replies.reply_topic("DefaultCluster")
    assert carried.keys() >= {"CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "MSG_TYPE"}
    assert {name: reply.properties[name] for name in carried} == carried


def test_a_recall_handle_says_which_message_waits_where() -> None:
    text = recall.RecallRequest.from_fields(request("recall").fields).handle
    handle = recall.RecallHandle.decode(text)
    assert (handle.topic, handle.broker_name, handle.encode()) == (TOPIC, BROKER, text)
    assert (response("recall").fields or {})["msgId"] == handle.message_id


def test_a_broker_is_told_that_a_group_pops_and_shares_out_one_queue_for_all() -> None:
    assert json.loads(request("pop_mode").body) == json.loads(
        assignment.RequestMode(TOPIC, "golden_popper", assignment.POP, 0).encode()
    )
    question = request("pop_assignment").body
    asked = assignment.AssignmentQuestion.decode(question)
    assert json.loads(asked.encode()) == json.loads(question)
    assert asked.group == "golden_popper"
    everything = MessageQueue(asked.topic, BROKER, assignment.ALL_QUEUES)
    assigned = assignment.decode_assigned(response("pop_assignment").body)
    assert assigned is not None
    assert {each.mode for each in assigned} <= {assignment.POP, assignment.PULL}
    assert asked.topic != TOPIC or assigned == [assignment.AssignedQueue(everything, assignment.POP)]


def test_popped_messages_have_the_handles_that_java_makes_of_them() -> None:
    answer = pop.PopResponse.from_fields(response("pop").fields)
    assert answer.to_fields() == {
        key: value for key, value in (response("pop").fields or {}).items() if key in answer.to_fields()
    }
    messages = decode_records(response("pop").body, MessageQueue(TOPIC, BROKER, assignment.ALL_QUEUES))
    handles = [
        Handle(
            answer.starts[0, one.queue_id],
            answer.popped_ms,
            answer.invisible_ms,
            answer.revive_queue,
            pop.OF_TOPIC,
            BROKER,
            one.queue_id,
            one.offset,
        )
        for one in messages
    ]
    assert [one.offset for one in messages if one.queue_id == messages[0].queue_id] == list(
        answer.offsets[0, messages[0].queue_id]
    )
    changed = pop.AckRequest.from_fields(request("pop_change").fields)
    assert changed.invisible_ms == 10_000, "after the first failure"
    assert pop.encode_handle(changed.handle) in {pop.encode_handle(one) for one in handles}
    new = pop.renewed(changed.handle, response("pop_change").fields)
    assert (new.start, new.offset, new.invisible_ms) == (changed.handle.offset, changed.handle.offset, 10_000)
    acked = pop.AckRequest.from_fields(request("pop_ack").fields)
    # What is acknowledged came from the retry topic that the broker keeps for group and topic.
    assert acked.topic == pop.pop_retry_topic("golden_popper", TOPIC, acked.handle.kind)
    assert acked.handle.kind == pop.OF_RETRY
