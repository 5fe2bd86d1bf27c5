"""Every send ends as stored, refused or unknown, within its timeout."""

from __future__ import annotations

import asyncio
import sys
import zlib
from random import Random

import pytest

from rocketapp.errors import ConfigError, SendRefused, SendUnknown
from rocketapp.model.event import SendAttemptFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import Outgoing, SendResult, SendStatus
from rocketapp.producer import preparing
from rocketapp.producer import producer as module
from rocketapp.wire import properties as names
from rocketapp.wire.batch import decode_batch
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.send import SendRequest, SendResponse
from tests.unit.producer.producing import producing
from tests.unit.scripted import Cluster, Events, eventually, in_virtual_time, outcome, refuse

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


def properties_of(request: SendRequest) -> dict[str, str]:
    return names.decode(request.properties.encode())


def now() -> float:
    return asyncio.get_running_loop().time()


@in_virtual_time
async def test_a_stored_message_says_where_it_is_and_carries_everything() -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        result = await producer.send(
            Outgoing(
                topic="t", body=b"hello", tag="paid", keys=["k1", "k2"], properties={"colour": "red"}, delay_level=3
            )
        )
        ((request, body),) = cluster.brokers[0].stored
        assert result == SendResult(
            result.message_id, "ID1", MessageQueue("t", "broker-a", request.queue_id), 0, SendStatus.OK
        )
        assert body == b"hello"
        assert (request.producer_group, request.topic, request.default_topic, request.default_queues) == (
            "p",
            "t",
            "TBW102",
            4,
        )
        assert (request.sys_flag, request.flag, request.reconsume_times, request.batch) == (0, 0, 0, False)
        assert request.broker_name == "broker-a"
        assert properties_of(request) == {
            "KEYS": "k1 k2",
            "colour": "red",
            "UNIQ_KEY": result.message_id,
            "WAIT": "true",
            "DELAY": "3",
            "TAGS": "paid",
        }
        assert cluster.brokers[0].beats()[0].producers == ("p",)


@in_virtual_time
async def test_messages_go_round_and_have_ids_of_their_own() -> None:
    cluster = Cluster(brokers=2)
    async with producing(cluster) as producer:
        results = [await producer.send(Outgoing(topic="t", body=b"x")) for _ in range(16)]
        queues = [result.queue for result in results]
        assert len(set(queues[:8])) == 8
        assert queues[:8] == queues[8:]
        assert len({result.message_id for result in results}) == 16


@pytest.mark.parametrize("code", [10, 11, 12])
@in_virtual_time
async def test_stored_with_less_durability_is_stored(code: int) -> None:
    cluster = Cluster()

    def answer(command: Command) -> Command:
        return Command.response(command, code, fields=SendResponse("ID", 1, 5).to_fields())

    async with producing(cluster) as producer:
        cluster.brokers[0].answers[SEND] = answer
        result = await producer.send(Outgoing(topic="t", body=b"x"))
        assert (result.status.value, result.queue_offset) == (code, 5)


@in_virtual_time
async def test_what_cannot_be_sent_is_refused_and_nothing_leaves() -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        for message in (
            Outgoing(topic="t", body=b""),
            Outgoing(topic="t", body=b"x", properties={"big": "x" * 40_000}),
            Outgoing(topic="SELF_TEST_TOPIC", body=b"x"),
        ):
            for refused in (producer.send(message), producer.send_one_way(message), producer.send_many([message])):
                error = await outcome(refused)
                assert isinstance(error, SendRefused) and error.is_permanent
        assert not cluster.brokers[0].asked


@in_virtual_time
async def test_a_frame_that_no_broker_accepts_is_refused_and_the_connection_stays() -> None:
    cluster, events = Cluster(), Events()
    async with producing(cluster, events, max_message_bytes=1 << 25, compression="none") as producer:
        await producer.send(Outgoing(topic="t", body=b"x"))
        large = Outgoing(topic="t", body=bytes(1 << 24))
        for refused in (producer.send(large), producer.send_one_way(large), producer.send_many([large])):
            error = await outcome(refused)
            assert isinstance(error, SendRefused)
            assert "limit 16777216: see client.max_frame_bytes" in str(error)
        await producer.send(Outgoing(topic="t", body=b"y"))
        assert [body for _, body in cluster.brokers[0].stored] == [b"x", b"y"]
        assert len(events) == 2  # one attempt of each that is awaited


@in_virtual_time
async def test_a_refusal_that_another_attempt_would_meet_too_is_final() -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        cluster.brokers[0].answers[SEND] = refuse(13, "too long")
        error = await outcome(producer.send(Outgoing(topic="t", body=b"x")))
        assert isinstance(error, SendRefused)
        assert "code 13: too long" in str(error)
        assert error.is_permanent
        assert cluster.brokers[0].codes().count(SEND) == 1


@pytest.mark.parametrize("code", [ResponseCode.NO_PERMISSION, ResponseCode.INVALID_PARAMETER])
def test_queues_that_a_broker_does_not_take_any_more_are_asked_for_at_once(code: ResponseCode) -> None:
    @in_virtual_time
    async def run() -> None:
        cluster, refused = Cluster(), []
        broker = cluster.brokers[0]

        def store(command: Command) -> Command:
            request = SendRequest.from_command(command)
            if request.queue_id < 2:
                return broker.store(command)
            refused.append(request)
            return Command.response(command, code, remark="request queueId is illegal")

        async with producing(cluster) as producer:
            await producer.send(Outgoing(topic="t", body=b"x"))
            broker.answers[SEND] = store
            cluster.add_topic("t", queues=2)
            for _ in range(16):
                await outcome(producer.send(Outgoing(topic="t", body=b"x")))
                await asyncio.sleep(0.2)
            assert 0 < len(refused) < 4, "the route says it, and not the next poll in 30 s"

    run()


@in_virtual_time
async def test_a_busy_broker_is_left_for_another_one_with_the_same_id() -> None:
    cluster, events = Cluster(brokers=2), Events()
    async with producing(cluster, events) as producer:
        for _ in range(8):
            cluster.brokers[0].answers[SEND] = refuse(2, "[TIMEOUT_CLEAN_QUEUE]broker busy")
            result = await producer.send(Outgoing(topic="t", body=b"x"))
            assert result.queue.broker_name == "broker-b"
        refused = [SendRequest.from_command(each) for each in cluster.brokers[0].asked if each.code == SEND]
        stored = [properties_of(request)["UNIQ_KEY"] for request, _ in cluster.brokers[1].stored]
        assert refused
        assert {properties_of(request)["UNIQ_KEY"] for request in refused} <= set(stored)
        failures = events.of(SendAttemptFailed)
        assert len(failures) == len(refused)


@pytest.mark.parametrize(
    ("code", "remark", "kind"),
    [
        (2, "[REJECTREQUEST]", SendRefused),
        (14, "disk full", SendRefused),
        (16, "no permission", SendRefused),
        (1, "[PC_SYNCHRONIZED]broker busy", SendRefused),
        (1, "java.lang.NullPointerException", SendUnknown),
        (1, "org.apache.rocketmq.acl.common.AclException: No accessKey is configured", SendRefused),
        (999, "news", SendUnknown),
    ],
)
@in_virtual_time
async def test_a_code_says_whether_the_message_may_be_stored(code: int, remark: str, kind: type[Exception]) -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        cluster.brokers[0].answers[SEND] = refuse(code, remark)
        error = await outcome(producer.send(Outgoing(topic="t", body=b"x")))
        assert type(error) is kind
        assert not getattr(error, "is_permanent", False)
        assert cluster.brokers[0].codes().count(SEND) == (1 if code == 999 else 3)


@in_virtual_time
async def test_a_black_hole_does_not_eat_the_time_of_the_other_broker() -> None:
    cluster = Cluster(brokers=2)
    async with producing(cluster) as producer:
        await producer.send(Outgoing(topic="t", body=b"x"))
        cluster.network.hold(cluster.brokers[0].address)
        start = now()
        for _ in range(8):
            result = await producer.send(Outgoing(topic="t", body=b"x"), timeout=3.0)
            assert result.queue.broker_name == "broker-b"
            assert now() - start < 3.0
            start = now()


@in_virtual_time
async def test_no_answer_at_all_is_unknown_after_the_total_timeout() -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        cluster.brokers[0].answers[SEND] = lambda _: None
        start = now()
        error = await outcome(producer.send(Outgoing(topic="t", body=b"x"), timeout=2.0))
        assert isinstance(error, SendUnknown)
        assert now() - start == pytest.approx(2.0, abs=0.05)


@in_virtual_time
async def test_a_connection_that_dies_before_the_answer_is_tried_again_with_the_same_id() -> None:
    cluster = Cluster()
    (broker,) = cluster.brokers
    async with producing(cluster) as producer:

        def die_once(command: Command) -> Command | None:
            broker.answers[SEND] = broker.store
            broker.store(command)
            cluster.network.cut(broker.address)
            return None

        broker.answers[SEND] = die_once
        result = await producer.send(Outgoing(topic="t", body=b"x"))
        assert [properties_of(request)["UNIQ_KEY"] for request, _ in broker.stored] == [result.message_id] * 2


@in_virtual_time
async def test_one_unknown_attempt_makes_the_whole_send_unknown() -> None:
    cluster = Cluster()
    (broker,) = cluster.brokers
    async with producing(cluster) as producer:

        def die_once(command: Command) -> Command | None:
            broker.answers[SEND] = refuse(13, "too long")
            cluster.network.cut(broker.address)
            return None

        broker.answers[SEND] = die_once
        error = await outcome(producer.send(Outgoing(topic="t", body=b"x")))
        assert isinstance(error, SendUnknown)
        assert "too long" in str(error)


@in_virtual_time
async def test_a_broker_that_is_down_refuses_quickly_and_says_so_once() -> None:
    cluster = Cluster()
    (broker,) = cluster.brokers
    async with producing(cluster) as producer:
        await producer.send(Outgoing(topic="t", body=b"x"))
        await broker.stop()
        await eventually(lambda: not broker.listener.connections)
        start = now()
        error = await outcome(producer.send(Outgoing(topic="t", body=b"x")))
        assert isinstance(error, SendRefused)
        assert str(error).count("Connection refused") == 1
        assert now() - start < 1.0


@in_virtual_time
async def test_a_name_server_that_is_down_at_the_first_send_refuses() -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        await cluster.name_server.stop()
        error = await outcome(producer.send(Outgoing(topic="t", body=b"x")))
        assert isinstance(error, SendRefused)
        assert "no route" in str(error)


@in_virtual_time
async def test_equal_order_keys_go_to_one_queue_and_are_never_moved() -> None:
    cluster = Cluster(brokers=2)
    async with producing(cluster) as producer:
        queues = {(await producer.send(Outgoing(topic="t", body=b"x", order_key="7"))).queue for _ in range(5)}
        (queue,) = queues
        broker = next(each for each in cluster.brokers if each.name == queue.broker_name)
        broker.answers[SEND] = refuse(2)
        assert isinstance(await outcome(producer.send(Outgoing(topic="t", body=b"x", order_key="7"))), SendRefused)
        assert broker.codes().count(SEND) == 5 + 3
        wished = MessageQueue("t", "broker-b", 3)
        cluster.brokers[1].answers[SEND] = cluster.brokers[1].store
        assert (await producer.send(Outgoing(topic="t", body=b"x", queue=wished))).queue == wished


@in_virtual_time
async def test_a_publish_that_creates_a_topic_tells_subscribers_at_once() -> None:
    cluster = Cluster()
    (broker,) = cluster.brokers
    broker.on_stored = lambda request: cluster.add_topic(request.topic)
    async with producing(cluster, clients=(clients := [])) as producer:
        (client,) = clients
        client.routes.watch("new")
        await asyncio.sleep(100)
        start = now()
        await producer.send(Outgoing(topic="new", body=b"x"))
        ((request, _),) = broker.stored
        assert request.queue_id < 4
        await eventually(lambda: client.routes.get("new") is not None)
        # The send itself has asked just before, and a missing topic is asked for ten times a second at most.
        assert now() - start < 0.15
        asked = cluster.name_server.topics_asked().count("TBW102")
        await producer.send(Outgoing(topic="new", body=b"x"))
        # Once at the start, when any topic would do, and once for the new topic.
        assert cluster.name_server.topics_asked().count("TBW102") == asked == 2


@in_virtual_time
async def test_many_first_sends_of_a_new_topic_ask_for_its_route_once() -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        await asyncio.gather(*(producer.send(Outgoing(topic="new", body=b"x")) for _ in range(50)))
        # Once at the start, when any topic would do, and once for all of them.
        assert cluster.name_server.topics_asked().count("TBW102") == 2
        assert len(cluster.brokers[0].stored) == 50


@in_virtual_time
async def test_first_sends_of_many_new_topics_do_not_wait_for_each_other() -> None:
    cluster = Cluster()
    server, loop = cluster.name_server, asyncio.get_running_loop()
    known = server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC]

    def late(command: Command) -> None:
        response = known(command)
        assert response is not None
        loop.call_later(0.01, server.connection().reply, response)

    async with producing(cluster) as producer:
        server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = late
        start = now()
        await asyncio.gather(*(producer.send(Outgoing(topic=f"new-{number}", body=b"x")) for number in range(500)))
        assert now() - start < 1.0
        assert len(cluster.brokers[0].stored) == 500


@in_virtual_time
async def test_a_topic_that_is_not_created_or_may_not_be_written_to_is_refused() -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        del cluster.name_server.routes["TBW102"]
        error = await outcome(producer.send(Outgoing(topic="new", body=b"x")))
        assert isinstance(error, SendRefused)
        assert "does not exist" in str(error)
        cluster.name_server.routes["readonly"] = cluster.route(perm=4)
        error = await outcome(producer.send(Outgoing(topic="readonly", body=b"x")))
        assert isinstance(error, SendRefused)
        assert "written" in str(error)


@in_virtual_time
async def test_large_bodies_are_compressed_once_and_only_when_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counting(body: bytes, kind: str, level: int) -> bytes:
        calls.append(len(body))
        return zlib.compress(body, level)

    cluster = Cluster(brokers=2)
    async with producing(cluster) as producer:
        monkeypatch.setattr(preparing, "compress", counting)
        cluster.brokers[0].answers[SEND] = refuse(2)
        for _ in range(8):
            await producer.send(Outgoing(topic="t", body=b"x" * 4096))
        assert calls == [4096] * 8
        await producer.send(Outgoing(topic="t", body=b"x" * 4095))
        noise = Random(0).randbytes(5000)
        await producer.send(Outgoing(topic="t", body=noise))
        stored = [(request.sys_flag, body) for request, body in cluster.brokers[1].stored]
        assert stored[:8] == [(769, zlib.compress(b"x" * 4096, 5))] * 8
        assert stored[8:] == [(0, b"x" * 4095), (0, noise)]


@in_virtual_time
async def test_a_codec_that_is_not_installed_is_found_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4", None)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    cluster = Cluster()
    with pytest.raises(ConfigError, match=r"rocketapp\[lz4\]"):
        async with producing(cluster, compression="lz4"):
            pass


@in_virtual_time
async def test_one_way_sends_arrive_and_are_not_answered() -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        await producer.send_one_way(Outgoing(topic="t", body=b"x"))
        await eventually(lambda: len(cluster.brokers[0].stored) == 1)
        assert cluster.brokers[0].asked[-1].is_one_way
        await cluster.brokers[0].stop()
        await asyncio.sleep(0.01)
        assert isinstance(await outcome(producer.send_one_way(Outgoing(topic="t", body=b"x"))), SendRefused)


@in_virtual_time
async def test_one_way_sends_wait_while_a_broker_does_not_read() -> None:
    cluster = Cluster()
    large = Outgoing(topic="t", body=b"x" * 700_000)
    async with producing(cluster, compression="none", send_timeout=3.0) as producer:
        await producer.send(Outgoing(topic="t", body=b"x"))
        cluster.network.hold(cluster.brokers[0].address)
        began = now()
        ended = await asyncio.gather(*(outcome(producer.send_one_way(large)) for _ in range(2)))
        assert (ended, now() - began) == ([None, None], 0.0)
        waiting = asyncio.ensure_future(outcome(producer.send_one_way(large)))
        assert "bytes unread" in str(await waiting) and now() - began == 3.0
        later = asyncio.ensure_future(producer.send_one_way(large))
        await asyncio.sleep(1)
        cluster.network.release(cluster.brokers[0].address)
        await later
        await eventually(lambda: len(cluster.brokers[0].stored) == 4)


@in_virtual_time
async def test_a_raw_send_keeps_what_it_is_given() -> None:
    cluster = Cluster(brokers=2)
    async with producing(cluster) as producer:
        given = {"RETRY_TOPIC": "t", "UNIQ_KEY": "MINE", "RECONSUME_TIME": "3", "DELAY": "5"}
        for _ in range(4):
            result = await producer.send_raw(
                "%RETRY%g",
                b"packed",
                given,
                broker_name="broker-b",
                reconsume_times=3,
                max_reconsume_times=16,
                sys_flag=769,
                flag=5,
            )
            assert (result.message_id, result.queue) == ("MINE", MessageQueue("%RETRY%g", "broker-b", 0))
        request, body = cluster.brokers[1].stored[0]
        assert (body, request.sys_flag, request.reconsume_times, request.max_reconsume_times) == (b"packed", 769, 3, 16)
        assert request.flag == 5
        assert properties_of(request) == given
        cluster.brokers[1].answers[SEND] = refuse(2)
        result = await producer.send_raw("%DLQ%g", b"x", {}, broker_name="broker-b")
        assert result.queue.broker_name == "broker-a"
        assert result.message_id


@in_virtual_time
async def test_many_messages_travel_as_batches_and_results_keep_their_order() -> None:
    cluster = Cluster()
    (broker,) = cluster.brokers

    def store_batch(command: Command) -> Command:
        request = SendRequest.from_command(command)
        items = decode_batch(command.body)
        first = 100 * request.queue_id
        broker.stored.append((request, command.body))
        ids = ",".join(f"Q{request.queue_id}N{first + number}" for number in range(len(items)))
        fields = SendResponse(ids, request.queue_id, first).to_fields()
        return Command.response(command, 0, fields=fields)

    async with producing(cluster) as producer:
        broker.answers[BATCH] = store_batch
        messages = [
            Outgoing(
                topic="t", body=b"%d" % number, order_key="k" if number % 2 else None, delay_level=int(number == 6)
            )
            for number in range(10)
        ]
        results = await producer.send_many(messages)
        batches = [(request, decode_batch(body)) for request, body in broker.stored if request.batch]
        singles = [body for request, body in broker.stored if not request.batch]
        assert singles == [b"6"]
        assert sorted([body for body, _, _ in items] for _, items in batches) == [
            [b"0", b"2", b"4", b"8"],
            [b"1", b"3", b"5", b"7", b"9"],
        ]
        where = {
            names.decode(properties)["UNIQ_KEY"]: (request.queue_id, 100 * request.queue_id + number, body)
            for request, items in batches
            for number, (body, properties, _) in enumerate(items)
        }
        for number, result in enumerate(results):
            if number == 6:
                assert result.offset_message_id.startswith("ID")
                continue
            queue_id, offset, body = where[result.message_id]
            assert body == b"%d" % number
            assert (result.queue.queue_id, result.queue_offset) == (queue_id, offset)
            assert result.offset_message_id == f"Q{queue_id}N{offset}"


@in_virtual_time
async def test_batches_stay_below_the_size_limit_and_one_alone_is_sent_plainly() -> None:
    cluster = Cluster()
    async with producing(cluster, max_message_bytes=1000, compression="none") as producer:
        results = await producer.send_many([Outgoing(topic="t", body=bytes(300)) for _ in range(7)])
        sizes = [len(body) for request, body in cluster.brokers[0].stored if request.batch]
        assert len(results) == 7
        assert all(size <= 1000 for size in sizes)
        assert len(sizes) == 3
        assert [len(body) for request, body in cluster.brokers[0].stored if not request.batch] == [300]
        assert await producer.send_many([]) == []


@in_virtual_time
async def test_of_many_messages_none_leaves_when_one_is_illegal() -> None:
    cluster = Cluster()
    async with producing(cluster) as producer:
        error = await outcome(producer.send_many([Outgoing(topic="t", body=b"x"), Outgoing(topic="t", body=b"")]))
        assert isinstance(error, SendRefused)
        assert "message 1 of 2: the body is empty" in str(error)
        assert not cluster.brokers[0].stored


@in_virtual_time
async def test_many_messages_of_which_some_are_stored_are_unknown_and_counted() -> None:
    cluster = Cluster()
    (broker,) = cluster.brokers
    async with producing(cluster) as producer:
        broker.answers[BATCH] = refuse(14, "disk full")
        plain = [Outgoing(topic="t", body=b"x") for _ in range(3)]
        assert isinstance(await outcome(producer.send_many(plain)), SendRefused)
        error = await outcome(producer.send_many([*plain, Outgoing(topic="t", body=b"x", delay_level=1)]))
        assert isinstance(error, SendUnknown)
        assert "1 of 4 messages are stored" in str(error)
        assert "disk full" in str(error)


@in_virtual_time
async def test_however_many_messages_travel_alone_few_are_on_their_way_at_once() -> None:
    cluster = Cluster()
    broker = cluster.brokers[0]
    asked: list[Command] = []
    broker.answers[SEND] = asked.append
    async with producing(cluster, retries=0) as producer:
        messages = [Outgoing(topic="t", body=b"%d" % number, delay_level=1) for number in range(500)]
        sending = asyncio.ensure_future(producer.send_many(messages))
        most = answered = 0
        while answered < len(messages):
            await eventually(lambda: len(asked) > 0)
            await asyncio.sleep(0.1)
            most = max(most, len(asked))
            batch, asked[:] = asked[:], []
            answered += len(batch)
            for command in batch:
                broker.connection().reply(broker.store(command))
        results = await sending
    assert most == module.AT_ONCE
    assert [broker.stored[result.queue_offset][1] for result in results] == [message.body for message in messages]


@in_virtual_time
async def test_a_message_that_fails_alone_keeps_no_other_from_being_sent() -> None:
    cluster = Cluster()
    broker = cluster.brokers[0]
    broker.answers[SEND] = lambda command: (
        refuse(13, "no")(command) if command.body == b"bad" else broker.store(command)
    )
    async with producing(cluster, retries=0) as producer:
        bodies = [b"bad"] * module.AT_ONCE * 2 + [b"good"] * 3
        error = await outcome(producer.send_many([Outgoing(topic="t", body=body, delay_level=1) for body in bodies]))
    assert isinstance(error, SendUnknown)
    assert "3 of" in str(error)
    assert [body for _, body in broker.stored] == [b"good"] * 3
