"""Every request of a client is signed, in one place; secrets are shown nowhere; refused keys are told from outages."""

from __future__ import annotations

from random import Random

import pytest

from rocketapp.client.instance import ClientInstance
from rocketapp.clock import SystemClock
from rocketapp.config.client import ClientConfig
from rocketapp.errors import ConfigError, TransportError
from rocketapp.transport.access import Access, access_of, keys_of, tls_of
from rocketapp.transport.connection import Listener
from rocketapp.transport.tcp import dial_tcp, listen_tcp
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.routes import encode_cluster_info
from rocketapp.wire.signing import Keys
from tests.unit.client.test_instance import Member, make
from tests.unit.scripted import Cluster, Events, in_virtual_time, ok, outcome, refuse

KEYS = {"access_key": "AK", "secret_key": "SK-very-secret", "security_token": "token-secret"}


def test_without_keys_nothing_is_signed() -> None:
    assert access_of(ClientConfig()).is_plain


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"access_key": "AK"}, "client.secret_key"),
        ({"secret_key": "SK"}, "client.access_key"),
        ({"security_token": "T"}, "client.security_token"),
    ],
)
def test_half_of_the_keys_is_a_mistake(given: dict[str, str], place: str) -> None:
    with pytest.raises(ConfigError) as raised:
        keys_of(ClientConfig(**given))  # type: ignore[arg-type]
    assert raised.value.place == place


def test_a_signature_is_the_last_thing_that_a_request_gets_and_the_caller_keeps_its_fields() -> None:
    access = access_of(ClientConfig(**KEYS))  # type: ignore[arg-type]
    fields = {"topic": "t"}
    command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, b"body")
    access.complete(command)
    access.complete(command)
    assert fields == {"topic": "t"}
    assert command.fields == Keys(**KEYS).sign(fields, b"body")


@in_virtual_time
async def test_every_request_is_signed_one_way_ones_and_heartbeats_too() -> None:
    cluster = await Cluster().start()
    cluster.add_topic("t")
    client = make(cluster, **KEYS)
    await client.start()
    client.register_consumer("g", Member())
    await client.routes.fetch("t")
    await client.heartbeat()
    connection = await client.connection(cluster.brokers[0].address)
    connection.send_one_way(Command(RequestCode.UPDATE_CONSUMER_OFFSET, {"topic": "t", "commitOffset": "1"}))
    await client.unregister("g")
    await client.stop()
    asked = [*cluster.name_server.asked, *cluster.brokers[0].asked]
    assert {RequestCode.HEART_BEAT, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNREGISTER_CLIENT} <= {
        one.code for one in asked
    }
    for one in asked:
        assert one.fields == Keys(**KEYS).sign(one.fields, one.body), one.code


@in_virtual_time
async def test_keys_that_a_broker_does_not_know_are_told_from_one_that_knows_them() -> None:
    cluster = await Cluster().start()
    broker = cluster.brokers[0]
    info = encode_cluster_info(cluster.route().brokers)
    cluster.name_server.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda one: Command.response(one, 0, body=info)
    client = make(cluster, **KEYS)
    await client.start()
    broker.answers[RequestCode.GET_BROKER_RUNTIME_INFO] = refuse(ResponseCode.NO_PERMISSION, "check signature failed.")
    error = await outcome(client.check_keys())
    assert isinstance(error, ConfigError)
    assert str(error).startswith("client.access_key: the cluster refuses the keys: ")
    assert str(error).endswith("check client.access_key and client.secret_key")
    for answer in (ok, refuse(ResponseCode.NO_PERMISSION, "User:AK has no permission to access Cluster:x from y")):
        broker.answers[RequestCode.GET_BROKER_RUNTIME_INFO] = answer
        assert await outcome(client.check_keys()) is None
    await broker.stop()
    assert await outcome(client.check_keys()) is None
    await client.stop()


def test_secrets_are_in_no_text_of_the_settings_nor_of_a_request() -> None:
    config = ClientConfig(**KEYS, key_password="pass-secret")  # type: ignore[arg-type]
    access = Access(keys=keys_of(config))
    command = Command(RequestCode.HEART_BEAT, {})
    access.complete(command)
    text = f"{config!r} {command!r} {access!r}"
    assert "AK" in text
    assert not [word for word in ("very-secret", "token-secret", "pass-secret") if word in text]


@pytest.mark.parametrize("name", ["ca_file", "tls_server_name", "cert_file", "key_file", "key_password"])
def test_what_says_something_about_tls_is_refused_without_it(name: str) -> None:
    with pytest.raises(ConfigError, match=r"set client\.tls = true") as raised:
        tls_of(ClientConfig(**{name: "x"}))  # type: ignore[arg-type]
    assert raised.value.place == f"client.{name}"


def test_a_key_without_its_certificate_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        tls_of(ClientConfig(tls=True, key_file="key.pem"))
    assert raised.value.place == "client.cert_file"


async def test_a_client_with_tls_speaks_to_no_plain_server() -> None:
    asked: list[Command] = []
    listener = Listener(serve=lambda _, command: asked.append(command), max_frame_bytes=1 << 20)
    listening = await listen_tcp("127.0.0.1", 0, listener.accept)
    client = ClientInstance(
        config=ClientConfig(name_server=listening.address, tls=True, tls_verify=False),
        dial=dial_tcp,
        clock=SystemClock(),
        random=Random(0),
        observe=Events(),
    )
    error = await outcome(client.start())
    await client.stop()
    await listening.close()
    assert isinstance(error, TransportError)
    assert "leave out client.tls" in str(error)
    assert asked == []
