"""To which queue a message goes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from rocketapp.errors import SendRefused
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import Outgoing
from rocketapp.model.route import BrokerData, QueueData, TopicRoute
from rocketapp.producer.selection import RoundRobin, publish_queues, queue_of_key, queues_to_create
from rocketapp.wire.codes import RequestCode
from tests.unit.producer.producing import producing
from tests.unit.scripted import Cluster, in_virtual_time, outcome, refuse

QUEUES = [MessageQueue("t", name, number) for name in ("a", "b") for number in range(3)]


def route(*queues: QueueData, masters: str = "ab", order_conf: str = "") -> TopicRoute:
    names = {data.broker_name for data in queues}
    return TopicRoute(
        queues, tuple(BrokerData("C", name, {0 if name in masters else 1: f"{name}:1"}) for name in names), order_conf
    )


def test_turns_go_round_from_a_start_by_chance() -> None:
    turns = RoundRobin(Random(3))
    first = [turns.next(QUEUES) for _ in range(6)]
    assert sorted(first) == QUEUES
    assert [turns.next(QUEUES) for _ in range(6)] == first
    assert len({RoundRobin(Random(seed)).next(QUEUES) for seed in range(50)}) == 6


def test_after_a_failure_another_broker_is_next_if_there_is_one() -> None:
    turns = RoundRobin(Random(0))
    assert {turns.next(QUEUES, avoid="a").broker_name for _ in range(20)} == {"b"}
    assert {turns.next(QUEUES[:3], avoid="a").broker_name for _ in range(20)} == {"a"}


def test_keys_go_where_java_sends_them() -> None:
    queues = [MessageQueue("t", "a", number) for number in range(4)]
    # Java: "7".hashCode() is 55, "hello".hashCode() is 99162322.
    assert queue_of_key("7", queues).queue_id == 55 % 4
    assert queue_of_key("hello", queues).queue_id == 99162322 % 4
    # A string whose hash is Integer.MIN_VALUE, of which Java knows no absolute value.
    assert queue_of_key("polygenelubricants", queues).queue_id == 0


def test_only_writable_queues_of_living_masters_are_published_to() -> None:
    told = route(QueueData("b", 4, 2, 6), QueueData("a", 4, 1, 2), QueueData("c", 4, 4, 6), QueueData("d", 4, 4, 4))
    assert publish_queues("t", told) == [
        MessageQueue("t", "a", 0),
        MessageQueue("t", "b", 0),
        MessageQueue("t", "b", 1),
    ]


def test_an_order_configuration_lists_queues_whether_their_brokers_live_or_not() -> None:
    told = route(QueueData("a", 4, 4, 6), order_conf=f"b:1;a:2;nonsense;c:65536;d:{'9' * 5000}")
    assert publish_queues("t", told) == [
        MessageQueue("t", "a", 0),
        MessageQueue("t", "a", 1),
        MessageQueue("t", "b", 0),
    ]


def test_a_topic_to_create_has_the_lesser_number_of_queues_and_retry_topics_one() -> None:
    default = route(QueueData("a", 8, 8, 7), QueueData("b", 2, 2, 7), QueueData("c", 8, 8, 7))
    assert len(queues_to_create("t", default, 4)) == 4 + 2
    assert queues_to_create("%RETRY%g", default, 4) == [
        MessageQueue("%RETRY%g", "a", 0),
        MessageQueue("%RETRY%g", "b", 0),
    ]
    assert len(queues_to_create("%DLQ%g", default, 4)) == 2


@in_virtual_time
async def test_a_function_chooses_among_the_sorted_queues_once_for_all_attempts() -> None:
    cluster, given = Cluster(brokers=2), []
    cluster.brokers[1].answers[RequestCode.SEND_MESSAGE_V2] = refuse(2, "busy")

    def last(queues: Sequence[MessageQueue]) -> MessageQueue:
        given.append(list(queues))
        return queues[-1]

    async with producing(cluster) as producer:
        message = Outgoing(topic="t", body=b"x", select=last)
        assert "busy" in str(await outcome(producer.send(message)))
        everything = [MessageQueue("t", name, number) for name in ("broker-a", "broker-b") for number in range(4)]
        assert given == [everything]
        cluster.brokers[1].answers[RequestCode.SEND_MESSAGE_V2] = cluster.brokers[1].store
        results = [*await producer.send_many([message]), await producer.send(message)]
        assert {result.queue for result in results} == {everything[-1]}


@in_virtual_time
async def test_a_selector_that_fails_or_returns_something_else_is_told() -> None:
    cluster = Cluster()

    def fails(queues: Sequence[MessageQueue]) -> MessageQueue:
        raise LookupError("no such customer")

    async with producing(cluster) as producer:
        for select, kind, text in (
            (fails, LookupError, "no such customer"),
            (lambda queues: 3, SendRefused, "returned 3: return one of the queues"),
            (lambda queues: MessageQueue("t", "broker-z", 0), SendRefused, "broker-z"),
        ):
            message = Outgoing(topic="t", body=b"x", select=select)  # type: ignore[arg-type]
            for sending in (producer.send(message), producer.send_many([message]), producer.send_one_way(message)):
                error = await outcome(sending)
                assert isinstance(error, kind) and text in str(error)
        assert cluster.brokers[0].stored == []
