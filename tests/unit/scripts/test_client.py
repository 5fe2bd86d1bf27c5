"""A client without an app, async and sync, on a real embedded broker."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rocketapp
from rocketapp import Client, ConfigError, Message, NoReply, SendRefused, SetupError, SyncClient, TransportError
from rocketapp.config.broker import BrokerConfig
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.testing.broker import serving

QUICK = {"client": {"poll_name_server_interval": 0.1}, "consumer": {"long_poll": 0.5}}


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with serving(BrokerConfig(transaction_timeout=0.2, transaction_check_interval=0.2)) as address:
        yield address


async def test_what_is_published_is_read(broker: str) -> None:
    async with Client(broker, settings=QUICK) as client:
        sent = await client.publish("script-a", {"id": 1}, tag="paid", keys=["k"])
        await client.publish_many("script-a", ["b", "c"])
        await client.publish_one_way("script-a", b"d")
        found = {}
        async for message in client.messages("script-a", start="first"):
            found[message.text()] = message
            if len(found) == 4:
                break
        assert set(found) == {'{"id":1}', "b", "c", "d"}
        first = found['{"id":1}']
        assert (first.message_id, first.tag, first.keys) == (sent.message_id, "paid", ["k"])


async def test_reading_ends_when_nothing_comes_and_disturbs_nothing(broker: str) -> None:
    async with Client(broker, settings=QUICK) as client:
        await client.publish_many("script-b", [str(number) for number in range(100)], tag="even")
        await client.publish("script-b", b"odd", tag="odd")
        for _ in range(2):
            bodies = [one.text() async for one in client.messages("script-b", start="first", tags=["even"], idle=1.0)]
            assert sorted(bodies, key=int) == [str(number) for number in range(100)]
    assert len(asyncio.all_tasks()) == 1


async def test_reading_begins_at_a_time(broker: str) -> None:
    async with Client(broker, settings=QUICK) as client:
        await client.publish_many("script-k", ["a", "b"])
        hour, now = timedelta(hours=1), datetime.now(UTC)
        for start, expected in ((now - hour, ["a", "b"]), (now + hour, [])):
            found = [one.text() async for one in client.messages("script-k", start=start, idle=1.0)]
            assert sorted(found) == expected


async def test_a_member_shares_queues_as_the_settings_say_and_its_messages_are_traced(broker: str) -> None:
    async with Client(broker, settings=QUICK) as client:
        sent = [await client.publish("script-shared", f"{number}") for number in range(2)]
    assert sent[0].queue != sent[1].queue
    ours = sent[0].queue
    chosen = {"allocation": "CONFIG", "allocation_queues": [f"{ours.topic}@{ours.broker_name}:{ours.queue_id}"]}
    settings = {"client": {**QUICK["client"], "message_trace": True}, "consumer": {**QUICK["consumer"], **chosen}}
    async with Client(broker, settings=settings) as client:
        found = [
            one.text() async for one in client.messages("script-shared", group="script-own", start="first", idle=1.0)
        ]
    assert found == ["0"]
    async with Client(broker, settings=QUICK) as client:
        trace = client.messages("RMQ_SYS_TRACE_TOPIC", start="first", idle=1.0)
        assert [one for one in [one.text() async for one in trace] if "SubAfter" in one and sent[0].message_id in one]


async def test_a_group_goes_on_at_the_message_at_which_a_loop_was_left(broker: str) -> None:
    async with Client(broker, settings=QUICK) as client:
        for number in range(5):
            await client.publish("script-l", str(number), order_key="k")
    found: list[list[str]] = []
    for most in (3, 9, 9):
        async with Client(broker, settings=QUICK) as client:
            found.append([])
            async for message in client.messages("script-l", group="script-readers", start="first", idle=2.0):
                found[-1].append(message.text())
                if len(found[-1]) == most:
                    break
    assert found == [["0", "1", "2"], ["2", "3", "4"], []]


async def test_a_client_that_ends_waits_for_a_loop_that_was_left_before(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = PushConsumer.stop

    async def takes_its_time(consumer: PushConsumer, **options: Any) -> bool:
        for _ in range(200):
            await asyncio.sleep(0)
        return await stop(consumer, **options)

    monkeypatch.setattr(PushConsumer, "stop", takes_its_time)
    found: list[str] = []
    async with Client(broker, settings=QUICK) as client:
        for number in range(3):
            await client.publish("script-left", str(number), order_key="k")
    for _ in range(2):
        async with Client(broker, settings=QUICK) as client:
            messages = client.messages("script-left", group="script-left", start="first")
            found += [(await anext(messages)).text(), (await anext(messages)).text()]
            # What a loop has left is closed when its last reference goes.
            await asyncio.gather(messages.aclose(), client.__aexit__(None, None, None))
    assert found == ["0", "1", "1", "2"]


async def test_a_client_is_in_a_group_once(broker: str) -> None:
    async with Client(broker, settings=QUICK) as client:
        await client.publish("script-m", b"1")
        async for _ in client.messages("script-m", group="script-once", start="first"):
            with pytest.raises(SetupError, match="in group script-once already: make another one"):
                async for _ in client.messages("script-m", group="script-once"):
                    raise AssertionError("it was read")
            break


async def test_a_request_that_is_not_answered_ends_in_time(broker: str) -> None:
    async with Client(broker, settings=QUICK) as client:
        with pytest.raises(NoReply, match=r"script-c within 1 s"):
            await client.request("script-c", b"?", timeout=1)


async def test_two_clients_of_one_process_do_not_meet(broker: str) -> None:
    async with Client(broker) as one, Client(broker) as other:
        first = await one.publish("script-d", b"1")
        await other.publish("script-d", b"2")
    async with Client(broker) as third:
        assert (await third.publish("script-d", b"3")).message_id != first.message_id


async def test_a_client_works_between_entering_and_leaving_only(broker: str) -> None:
    client = Client(broker)
    with pytest.raises(SetupError, match="async with Client"):
        await client.publish("script-e", b"1")
    async with client:
        with pytest.raises(SetupError, match="entered already"):
            await client.__aenter__()
        await client.publish("script-e", b"1")
    with pytest.raises(SetupError, match=r"test_client\.py:\d+: .*async with Client"):
        await client.publish("script-e", b"1")


async def test_another_event_loop_is_told_to_make_its_own(broker: str) -> None:
    async with Client(broker, settings=QUICK) as client:
        await client.publish("script-p", b"1")

        async def read() -> None:
            async for _ in client.messages("script-p", start="first"):
                raise AssertionError("it was read")

        for call in (read, lambda: client.publish("script-p", b"2"), lambda: client.request("script-p", b"3")):
            with pytest.raises(SetupError, match=r"belongs to the event loop in which it was entered: make one for"):
                await asyncio.to_thread(asyncio.run, call())
        assert (await client.publish("script-p", b"4")).queue.topic == "script-p"


async def test_leaving_that_is_cancelled_leaves_nothing(broker: str) -> None:
    client = await Client(broker).__aenter__()
    await client.publish("script-e", b"1")
    leaving = asyncio.ensure_future(client.__aexit__())
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("",), SetupError, "give the name server"),
        ((" ; ",), ConfigError, "' ; ' names none: write host:port"),
        (("h:1;http://somewhere",), ConfigError, "URL of http"),
        (
            ("h:1\nother:2",),
            ConfigError,
            r"'h:1\\nother:2' is not host:port or \[ipv6\]:port; several are separated by ;",
        ),
    ],
)
async def test_a_wrong_name_server_is_told(arguments: tuple[str, ...], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        async with Client(*arguments):
            raise AssertionError("it was entered")


def test_settings_are_checked_where_the_client_is_made() -> None:
    with pytest.raises(ConfigError, match=r"test_client\.py:\d+: unknown key producer\.retris.*retries"):
        Client("h:1", settings={"producer": {"retris": 1}})
    for no_tables in (5, {"client": None}):
        with pytest.raises(SetupError, match=r"test_client\.py:\d+: settings=.*give options by table"):
            SyncClient("h:1", settings=no_tables)  # type: ignore[arg-type]


async def test_a_cluster_that_is_away_is_told_at_once_and_leaves_nothing() -> None:
    with pytest.raises(TransportError, match=r"127.0.0.1:1"):
        async with Client("127.0.0.1:1"):
            raise AssertionError("it was entered")
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"start": "now"}, 'give "first", "last" or an aware datetime'),
        ({"start": datetime(2026, 1, 1)}, "no time zone"),
        ({"group": 5}, "group=5 is not a name: give a string"),
        ({"group": "two words"}, "only letters"),
        ({"idle": 0}, "idle=0: give seconds, more than 0"),
        ({"tags": "||"}, "tags"),
        ({"tags": "paid|refunded"}, r'write tags=\["paid", "refunded"\]'),
        ({"from": "first"}, "no keyword 'from': known are group, idle, start, tags"),
    ],
)
async def test_reading_says_what_it_takes(broker: str, options: dict[str, object], text: str) -> None:
    async with Client(broker) as client:
        with pytest.raises(SetupError, match=text):
            async for _ in client.messages("script-f", **options):  # type: ignore[arg-type]
                break


async def test_another_cluster_is_refused(broker: str) -> None:
    async with Client(broker) as client:
        with pytest.raises(SetupError, match="talks to one cluster"):
            await client.publish("script-g", b"1", cluster="eu")


def test_plain_code_publishes_and_reads(broker: str) -> None:
    with SyncClient(broker, settings=QUICK) as client:
        sent = client.publish("script-h", b"1")
        client.publish_many("script-h", [b"2", b"3"])
        client.publish_one_way("script-h", b"4")
        found: list[Message] = []
        for message in client.messages("script-h", start="first"):
            found.append(message)
            if len(found) == 4:
                break
        assert sorted(one.body for one in found) == [b"1", b"2", b"3", b"4"]
        assert sent.message_id in {one.message_id for one in found}
        assert list(client.messages("script-h", start="first", idle=0.5, tags="none")) == []
        of_group = client.messages("script-h", start="first", idle=2.0, group="script-plain")
        assert sorted(one.body for one in of_group) == [b"1", b"2", b"3", b"4"]
        assert list(client.messages("script-h", start="first", idle=1.0, group="script-plain")) == []


async def test_plain_code_may_be_in_a_running_event_loop_as_in_a_notebook(broker: str) -> None:
    with SyncClient(broker, settings=QUICK) as client:
        client.publish("notebook", b"1")
        client.publish_many("notebook", [b"2"])
        client.publish_one_way("notebook", b"3")
        with pytest.raises(NoReply):
            client.request("nobody", b"?", timeout=0.5)
        found = [message.text() for message in client.messages("notebook", start="first", idle=2)]
    assert sorted(found) == ["1", "2", "3"]


def test_errors_of_plain_code_are_the_same(broker: str) -> None:
    with SyncClient(broker) as client:
        with pytest.raises(SendRefused, match="body is empty"):
            client.publish("script-i", b"")
        with pytest.raises(NoReply):
            client.request("script-i", b"?", timeout=1)
    with pytest.raises(SetupError, match="with SyncClient"):
        client.publish("script-i", b"1")
    with pytest.raises(TransportError), SyncClient("127.0.0.1:1"):
        raise AssertionError("it was entered")


def test_a_forked_child_is_told_to_make_its_own(broker: str) -> None:
    with SyncClient(broker) as client:
        forking = multiprocessing.get_context("fork")
        told = forking.SimpleQueue()

        def publish() -> None:
            try:
                client.publish("script-j", b"1")
            except SetupError as error:
                told.put(str(error))

        child = forking.Process(target=publish)
        child.start()
        child.join()
        assert not told.empty() and "forked" in told.get()
        client.publish("script-j", b"1")


def test_the_names_are_public() -> None:
    assert {"Client", "SyncClient", "NoReply"} <= set(rocketapp.__all__)


def test_leaving_ends_the_calls_of_other_threads(broker: str) -> None:
    ended: list[Exception] = []

    def ask(client: SyncClient) -> None:
        try:
            client.request("script-p", b"?", timeout=60)
        except Exception as error:
            ended.append(error)

    with SyncClient(broker, settings=QUICK) as client:
        sent = client.messages("script-p", start="first", idle=20)
        thread = threading.Thread(target=ask, args=(client,), daemon=True)
        thread.start()
        next(sent)  # the request is stored, and waits for its answer
    thread.join(10)
    assert [type(error) for error in ended] == [SetupError]
    assert "was left while the call waited" in str(ended[0])
