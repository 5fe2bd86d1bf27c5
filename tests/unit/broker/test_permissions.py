"""Access keys: who is let in, what a user may do, and what is refused with Apache RocketMQ's remarks."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from rocketapp.broker.permissions import ACCESS_FILE
from rocketapp.broker.store.config_files import encode
from rocketapp.broker.store.files import MemoryFiles, write_new
from rocketapp.errors import ConfigError
from rocketapp.model.pulled import Handle
from rocketapp.model.subscription import SubscriptionData, parse_tags
from rocketapp.transport.access import Access
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode as Code
from rocketapp.wire.command import Command
from rocketapp.wire.requests.clients import ConsumerData, Heartbeat
from rocketapp.wire.requests.locks import LockBody
from rocketapp.wire.requests.pop import OF_RETRY, AckRequest, pop_retry_topic
from rocketapp.wire.requests.send import SendRequest
from rocketapp.wire.signing import Keys
from tests.unit.broker.asking import Running, running
from tests.unit.broker.store.disk import Disk
from tests.unit.scripted import in_virtual_time

ADMIN, SECRET = "admin", "12345678"
ON: dict[str, Any] = {
    "authentication": True,
    "authorization": True,
    "admin_user": json.dumps({"username": ADMIN, "password": SECRET}),
}
CLOSED = {
    Code.CHECK_TRANSACTION_STATE,
    Code.NOTIFY_CONSUMER_IDS_CHANGED,
    Code.UPDATE_BROKER_CONFIG,
    Code.RESET_CONSUMER_CLIENT_OFFSET,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
}
"""Codes that the embedded broker does not serve."""
WITH_SLAVES = {
    Code.GET_ALL_DELAY_OFFSET,
    Code.GET_TIMER_CHECK_POINT,
    Code.GET_TIMER_METRICS,
    Code.GET_BROKER_HA_STATUS,
    Code.EXCHANGE_BROKER_HA_INFO,
}
"""Those that it serves when it lets its log be copied."""
WHERE_BROKERS_ARE = {Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_INFO}
"""Those that it answers to everybody."""


def files_with(*entries: dict[str, Any], user: dict[str, Any] | None = None, policy: str = "Custom") -> MemoryFiles:
    """The store of a broker with the user `orders`, which has these entries."""
    files = MemoryFiles()
    orders = {"username": "orders", "password": "orders-secret", **(user or {})}
    acl = {"subject": "User:orders", "policies": [{"policyType": policy, "entries": list(entries)}]}
    save(files, {"users": [orders], "acls": [acl]})
    return files


def save(files: MemoryFiles, content: dict[str, Any]) -> None:
    files.rename(write_new(files, ACCESS_FILE, encode(content)), ACCESS_FILE)


class Asker:
    """A connection that signs its requests, or does not."""

    def __init__(self, broker: Running, keys: Keys | None) -> None:
        self._broker = broker
        self._connection = Connection(serve=None, max_frame_bytes=1 << 24, access=Access(keys=keys))

    async def connect(self) -> Asker:
        self._connection.attach(await self._broker.network.dial(self._broker.address, self._connection, 3.0))
        return self

    async def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Command:
        return await self._connection.start_request(Command(code, fields, body), timeout=30.0)

    async def send(self, topic: str) -> Command:
        return await self.ask(Code.SEND_MESSAGE_V2, SendRequest("makers", topic).to_fields(), b"x")


async def asker(broker: Running, name: str = "orders", secret: str = "orders-secret") -> Asker:
    return await Asker(broker, Keys(name, secret) if name else None).connect()


def said(answer: Command) -> tuple[int, str | None]:
    return answer.code, answer.remark


async def test_who_shows_no_keys_or_wrong_ones_is_refused_whatever_is_asked() -> None:
    async with running(files_with(user={"userStatus": "disable"}), **ON) as broker:
        for name, secret, remark in [
            ("", "", "username cannot be null."),
            ("stranger", "x", "User:stranger is not found."),
            (ADMIN, "wrong", "check signature failed."),
            ("orders", "orders-secret", "User:orders is disabled."),
        ]:
            one = await asker(broker, name, secret)
            for code in [*(set(Code) - WHERE_BROKERS_ARE), 9999]:
                answer = await one.ask(code, {"topic": "orders"})
                assert said(answer) == (16, remark), (code, name)
        assert "orders" not in str(await (await asker(broker, ADMIN, SECRET)).ask(Code.GET_ALL_TOPIC_CONFIG))


async def test_a_refused_send_has_the_fields_that_the_java_client_reads() -> None:
    async with running(**ON) as broker:
        refused = await (await asker(broker, "")).send("orders")
        assert (refused.code, (refused.fields or {})["MSG_REGION"]) == (16, "DefaultRegion")


async def test_the_signature_covers_fields_and_body() -> None:
    async with running(**ON) as broker:
        plain = await asker(broker, "")
        fields = Keys(ADMIN, SECRET).sign(SendRequest("makers", "orders").to_fields(), b"x")
        assert (await plain.ask(Code.SEND_MESSAGE_V2, dict(fields), b"x")).code == 0
        for changed, body in [({**fields, "b": "other"}, b"x"), (fields, b"y"), ({**fields, "Signature": "é"}, b"x")]:
            answer = await plain.ask(Code.SEND_MESSAGE_V2, dict(changed), body)
            assert said(answer) == (16, "check signature failed.")


async def test_a_super_user_may_do_everything() -> None:
    async with running(**ON) as broker:
        admin = await asker(broker, ADMIN, SECRET)
        assert (await admin.send("orders")).code == 0
        assert (await admin.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})).code == 0
        assert (await admin.ask(9999)).code == 3


async def test_a_user_may_do_what_an_entry_allows() -> None:
    files = files_with(
        {"resource": "Topic:orders", "actions": ["Pub"]},
        {"resource": "Topic:open*", "actions": ["Sub", "Get"]},
        {"resource": "Group:billing", "actions": ["Sub"]},
    )
    async with running(files, **ON) as broker:
        user = await asker(broker)
        assert (await user.send("orders")).code == 0
        remark = "User:orders has no permission to access Topic:open-house from 127.0.0.1, no matched policies."
        assert said(await user.send("open-house")) == (16, remark)
        assert (await user.ask(Code.GET_MAX_OFFSET, {"topic": "open-house", "queueId": "0"})).code != 16
        assert (await user.ask(Code.GET_MAX_OFFSET, {"topic": "closed", "queueId": "0"})).code == 16
        assert (await user.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})).code == 0
        assert (await user.ask(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})).code == 16
        assert (await user.ask(Code.GET_ALL_TOPIC_CONFIG)).code == 0
        assert (await user.ask(9999)).code == 16


@pytest.mark.parametrize(("groups", "code"), [("billing", 16), ("billing*", 17)])
async def test_retries_of_popped_messages_are_of_a_group_with_the_name_of_their_topic(groups: str, code: int) -> None:
    """As in Apache RocketMQ. 16: not allowed; 17: there is no such topic yet."""
    files = files_with(
        {"resource": "Topic:orders", "actions": ["Pub", "Sub"]}, {"resource": f"Group:{groups}", "actions": ["Sub"]}
    )
    async with running(files, **ON) as broker:
        user = await asker(broker)
        retries = pop_retry_topic("billing", "orders", OF_RETRY)
        handle = Handle(0, 0, 1000, 0, OF_RETRY, "broker-a", 0, 0)
        assert (await user.ask(Code.ACK_MESSAGE, AckRequest("billing", retries, handle).to_fields())).code == code


async def test_a_heartbeat_needs_all_that_it_subscribes_to() -> None:
    files = files_with(
        {"resource": "Topic:orders", "actions": ["Sub"]}, {"resource": "Group:billing", "actions": ["Sub"]}
    )

    async with running(files, **ON) as broker:
        user = await asker(broker)

        async def beat(group: str, *topics: str) -> int:
            wanted = tuple(SubscriptionData(topic, "*", parse_tags("*"), 1) for topic in topics)
            data = ConsumerData(group, subscriptions=wanted)
            return (await user.ask(Code.HEART_BEAT, {}, Heartbeat("c", ("makers",), (data,)).encode())).code

        assert await beat("billing", "orders", "%RETRY%billing") == 0
        assert await beat("billing", "orders", "closed") == 16
        assert await beat("other", "orders") == 16
        assert (await user.ask(Code.LOCK_BATCH_MQ, {}, LockBody("billing", "c", []).encode())).code == 0
        assert (await user.ask(Code.LOCK_BATCH_MQ, {}, LockBody("other", "c", []).encode())).code == 16
        assert (await user.ask(Code.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "other"})).code == 16
        assert (await user.ask(Code.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "makers"})).code == 0
        retry = {"topic": "%RETRY%billing", "queueId": "0"}
        assert (await user.ask(Code.QUERY_CONSUMER_OFFSET, {**retry, "consumerGroup": "billing"})).code != 16
        assert (await user.send("%RETRY%other")).code == 16


@pytest.mark.parametrize(
    ("entries", "policy", "is_allowed"),
    [
        ([("Topic:*", "Allow"), ("Topic:orders", "Deny")], "Custom", False),
        ([("Topic:*", "Deny"), ("Topic:ord*", "Allow")], "Custom", True),
        ([("Topic:o*", "Allow"), ("Topic:ord*", "Deny")], "Custom", False),
        ([("Topic:orders", "Deny"), ("Topic:orders", "Allow")], "Custom", True),
        ([("*", "Allow"), ("Topic:*", "Deny")], "Custom", False),
        ([("*", "Allow")], "Custom", True),
        ([("*", "Allow")], "Default", True),
        ([("Group:*", "Allow")], "Custom", False),
    ],
)
async def test_the_narrowest_entry_decides(entries: list[tuple[str, str]], policy: str, is_allowed: bool) -> None:
    given = [{"resource": resource, "actions": ["All"], "decision": decision} for resource, decision in entries]
    async with running(files_with(*given, policy=policy), **ON) as broker:
        answer = await (await asker(broker)).send("orders")
        assert (answer.code == 0) is is_allowed, answer.remark
        if not is_allowed and any("Topic" in resource for resource, _ in entries):
            assert "the decision is deny" in str(answer.remark)


@pytest.mark.parametrize(("ips", "is_allowed"), [(["10.0.0.0/8"], False), (["0.0.0.0/0", "::/0"], True)])
async def test_an_entry_may_be_for_some_addresses(ips: list[str], is_allowed: bool) -> None:
    files = files_with({"resource": "Topic:orders", "actions": ["Pub"], "sourceIps": ips})
    async with running(files, **ON) as broker:
        assert ((await (await asker(broker)).send("orders")).code == 0) is is_allowed


async def test_without_authorization_every_user_may_do_everything() -> None:
    async with running(files_with(), **{**ON, "authorization": False}) as broker:
        assert (await (await asker(broker)).send("orders")).code == 0
        assert (await (await asker(broker, "")).send("orders")).code == 16


@pytest.mark.parametrize(
    ("content", "options", "problem"),
    [
        ({"users": [{"username": "a"}]}, {}, "missing required field `password`"),
        ({"user": []}, {}, "unknown field `user`"),
        ({"users": [{"username": "a", "password": "b", "userType": "Root"}]}, {}, "a is Super or Normal"),
        ({"acls": [{"subject": "User:x", "policies": []}]}, {}, "User:x is not User: and the name of a user"),
        (None, {"admin_user": ""}, "there is no user: set broker.admin_user"),
        (None, {"admin_user": "admin"}, "malformed"),
        (None, {"authentication": False}, "needs users that are known"),
    ],
)
async def test_what_cannot_be_understood_ends_the_start(
    content: dict[str, Any] | None, options: dict[str, Any], problem: str
) -> None:
    files = MemoryFiles()
    if content is not None:
        save(files, content)
    with pytest.raises(ConfigError, match=problem):
        async with running(files, **{**ON, **options}):
            pass


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"resource": "Queue:x", "actions": ["Pub"]}, "'Queue:x' is no resource"),
        ({"resource": "Topic:x", "actions": ["Any"]}, "actions of Topic:x are some of"),
        ({"resource": "Topic:x", "actions": []}, "actions of Topic:x are some of"),
        ({"resource": "Topic:x", "actions": ["Pub"], "decision": "Maybe"}, "is Allow or Deny"),
        ({"resource": "Topic:x", "actions": ["Pub"], "sourceIps": ["here"]}, "does not appear to be"),
    ],
)
async def test_an_entry_that_is_none_ends_the_start(entry: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        async with running(files_with(entry), **ON):
            pass


async def test_every_code_is_served_but_some() -> None:
    async with running(**ON, registrations=True) as broker:
        admin = await asker(broker, ADMIN, SECRET)
        assert {code for code in Code if (await admin.ask(code)).code == 3} == CLOSED | WITH_SLAVES


def info(**members: object) -> bytes:
    return json.dumps(members).encode()


def allowing(resource: str, *actions: str, **more: object) -> bytes:
    entry = {"resource": resource, "actions": list(actions), "decision": "Allow", **more}
    return info(subject="User:orders", policies=[{"policyType": "Custom", "entries": [entry]}])


async def test_users_and_policies_that_are_changed_count_at_once_and_after_a_restart() -> None:
    async with running(**ON) as broker:
        admin = await asker(broker, ADMIN, SECRET)
        given = info(username="orders", password="orders-secret", userType="Normal", userStatus="enable")
        named, subject = {"username": "orders"}, {"subject": "User:orders"}
        assert (await admin.ask(Code.AUTH_CREATE_USER, named, given)).code == 0
        assert said(await admin.ask(Code.AUTH_CREATE_USER, named, given)) == (16, "The user is existed")
        user = await asker(broker)
        assert (await user.send("orders")).code == 16
        assert (await admin.ask(Code.AUTH_CREATE_ACL, subject, allowing("Topic:orders", "Pub"))).code == 0
        assert (await user.send("orders")).code == 0
        assert (await user.ask(Code.AUTH_LIST_USER, {})).code == 16
        await admin.ask(Code.AUTH_UPDATE_ACL, subject, allowing("Topic:bills", "pub", "sub", sourceIps=["10.0.0.0/8"]))
        shown = json.loads((await admin.ask(Code.AUTH_GET_ACL, subject)).body)
        assert shown["policies"][0]["entries"] == [
            {"resource": "Topic:orders", "actions": ["Pub"], "decision": "Allow"},
            {"resource": "Topic:bills", "actions": ["Pub", "Sub"], "sourceIps": ["10.0.0.0/8"], "decision": "Allow"},
        ]
        assert (await admin.ask(Code.AUTH_DELETE_ACL, {**subject, "resource": "Topic:orders"})).code == 0
        assert (await user.send("orders")).code == 16
        await admin.ask(Code.AUTH_UPDATE_USER, named, info(username="orders", password="another", userType="Super"))
        assert said(await user.send("orders")) == (16, "check signature failed.")
        assert (await (await asker(broker, secret="another")).send("orders")).code == 0
        await broker.restart(killed=True)
        admin = await asker(broker, ADMIN, SECRET)
        assert (await (await asker(broker, secret="another")).send("orders")).code == 0
        users = json.loads((await admin.ask(Code.AUTH_LIST_USER, {"filter": "ord"})).body)
        assert users == [{"username": "orders", "password": "another", "userType": "Super", "userStatus": "enable"}]
        assert (await admin.ask(Code.AUTH_DELETE_USER, named)).code == 0
        assert (await admin.ask(Code.AUTH_GET_USER, named)).body == b""
        assert (await admin.ask(Code.AUTH_GET_ACL, subject)).body == b""
        assert (await admin.ask(Code.AUTH_DELETE_USER, named)).code == 0


async def test_what_cannot_be_understood_or_may_not_be_changes_nothing() -> None:
    everything = {"resource": "Cluster:*", "actions": ["All"]}
    async with running(files_with(everything), **ON) as broker:
        admin, user = await asker(broker, ADMIN, SECRET), await asker(broker)
        subject = {"subject": "User:orders"}
        for body, problem in [
            (allowing("", "Pub"), "'' is no resource"),
            (allowing("Topic:orders"), "actions of Topic:orders are some of"),
            (allowing("Topic:orders", "Fly"), "actions of Topic:orders are some of"),
            (allowing("Topic:orders", "Pub", sourceIps=["here"]), "'here' does not appear"),
        ]:
            answer = await admin.ask(Code.AUTH_UPDATE_ACL, subject, body)
            assert answer.code == 16
            assert problem in (answer.remark or "")
        unknown = await admin.ask(Code.AUTH_CREATE_ACL, {"subject": "User:no"}, allowing("Topic:orders", "Pub"))
        assert said(unknown) == (16, "The subject of User:no is not exist.")
        assert said(await admin.ask(Code.AUTH_DELETE_ACL, {"subject": "User:no"})) == (16, "The acl is not exist.")
        super_user = info(username="chief", password="x", userType="Super")
        assert (await user.ask(Code.AUTH_CREATE_USER, {"username": "chief"}, super_user)).code == 1
        assert (await user.ask(Code.AUTH_DELETE_USER, {"username": ADMIN})).code == 16
        assert (await user.ask(Code.AUTH_UPDATE_USER, {"username": "no"}, info(password="x"))).code == 16
        assert (await admin.ask(Code.AUTH_CREATE_USER, {"username": " "}, super_user)).code == 29
        assert len(json.loads((await user.ask(Code.AUTH_LIST_USER, {})).body)) == 2


async def test_the_broker_s_own_page_asks_with_the_present_keys_of_a_user_that_may_do_everything() -> None:
    files = MemoryFiles()
    save(files, {"users": [{"username": ADMIN, "password": "of the file", "userType": "Super"}], "acls": []})
    async with running(files, **ON) as broker:
        assert broker.broker.operator_keys() == (ADMIN, "of the file")
        admin = await asker(broker, ADMIN, "of the file")
        await admin.ask(Code.AUTH_UPDATE_USER, {"username": ADMIN}, info(password="changed"))
        assert broker.broker.operator_keys() == (ADMIN, "changed")
    async with running() as broker:
        assert broker.broker.operator_keys() is None


async def test_keys_that_are_enough_to_reply_store_into_no_topic_but_that_of_replies() -> None:
    async with running(files_with({"resource": "Group:x", "actions": ["Sub"]}), **ON) as broker:
        admin, user = await asker(broker, ADMIN, SECRET), await asker(broker)
        topics = ("orders", "new", "%RETRY%billing", "DefaultCluster_REPLY_TOPIC")
        await admin.ask(Code.SEND_MESSAGE_V2, SendRequest("makers", "orders", queue_id=0).to_fields(), b"x")
        for topic in topics:
            fields = SendRequest("makers", topic, queue_id=0).to_fields()
            await user.ask(Code.SEND_REPLY_MESSAGE_V2, fields, b"forged")
        asked = [await admin.ask(Code.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"}) for topic in topics]
        assert [(answer.fields or {}).get("offset") for answer in asked] == ["1", "0", "0", "1"]
        known = json.loads((await admin.ask(Code.GET_ALL_TOPIC_CONFIG)).body)["topicConfigTable"]
        assert not {"new", "%RETRY%billing"} & set(known)


@pytest.mark.parametrize(
    "code", [Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER, Code.AUTH_CREATE_ACL, Code.AUTH_DELETE_ACL]
)
@in_virtual_time
async def test_a_change_without_its_field_is_answered(code: int) -> None:
    async with running(**ON) as broker:
        assert (await (await asker(broker, ADMIN, SECRET)).ask(code)).code == 1


@in_virtual_time
async def test_a_change_whose_body_is_too_deep_is_answered() -> None:
    async with running(**ON) as broker:
        body = b'{"x":' + b"[" * 8000 + b"]" * 8000 + b"}"
        answer = await (await asker(broker, ADMIN, SECRET)).ask(Code.AUTH_CREATE_USER, {"username": "u"}, body)
        assert answer.code == 29


async def test_a_subject_is_named_as_a_user() -> None:
    async with running(files_with(), **ON) as broker:
        admin = await asker(broker, ADMIN, SECRET)
        answer = await admin.ask(Code.AUTH_CREATE_ACL, {"subject": "orders"}, allowing("Topic:t", "Pub"))
        assert said(answer) == (16, "the subject orders is not User: and the name of a user")
        assert (await admin.ask(Code.AUTH_DELETE_USER, {"username": "orders"})).code == 0


@in_virtual_time
async def test_a_change_that_cannot_be_written_does_not_count_after_a_restart_either() -> None:
    disk = Disk()
    async with running(disk, **ON) as broker:
        admin = await asker(broker, ADMIN, SECRET)

        def fail(_: Disk, name: str, path: str) -> None:
            if (name, path) == ("sync_directory", "config"):
                raise OSError(errno.EIO, "no sync")

        disk.on_call = fail
        eve = info(username="eve", password="eves", userType="Super")
        answer = await admin.ask(Code.AUTH_CREATE_USER, {"username": "eve"}, eve)
        assert said(answer)[0] == 1
        disk.on_call = None
        assert not (await admin.ask(Code.AUTH_GET_USER, {"username": "eve"})).body
        await broker.broker.stop()
    async with running(disk.killed(), **ON) as broker:
        assert not (await (await asker(broker, ADMIN, SECRET)).ask(Code.AUTH_GET_USER, {"username": "eve"})).body
