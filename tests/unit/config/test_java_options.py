"""The broker's options in Apache RocketMQ's words."""

from __future__ import annotations

import dataclasses

import pytest

from rocketapp.config.broker import BrokerConfig
from rocketapp.config.properties import encode, from_java, to_java
from rocketapp.errors import ConfigError
from tests.cases import cases

CONF = """
# of production
brokerName = broker-b
brokerId=0
listenPort=10911
flushDiskType=SYNC_FLUSH
transactionTimeOut=2500
autoCreateTopicEnable=false
defaultTopicQueueNums=4
storePathRootDir=/var/store
"""


def test_a_file_of_apaches_sets_our_options() -> None:
    found = from_java(CONF, "broker.conf")
    assert found == {
        "name": "broker-b",
        "id": 0,
        "listen": "127.0.0.1:10911",
        "flush": "sync",
        "transaction_timeout": 2.5,
        "auto_create_topics": False,
        "topic_queues": 4,
        "dir": "/var/store",
    }
    assert BrokerConfig(**found).flush == "sync"
    assert from_java("bindAddress=::1", "broker.conf") == {"listen": "[::1]:9876"}
    assert from_java("", "broker.conf") == {}
    slaves = "brokerRole=SYNC_MASTER\nhaListenPort=10912\nslaveTimeout=500"
    assert from_java(slaves, "broker.conf") == {"role": "sync_master", "ha_port": 10912, "slave_timeout": 0.5}
    assert from_java("brokerRole=SLAVE\nbrokerId=1", "broker.conf") == {"role": "slave", "id": 1}
    joined = "namesrvAddr=192.0.2.1:9876;192.0.2.2:9876\nregisterNameServerPeriod=20000"
    servers = {"name_server": "192.0.2.1:9876;192.0.2.2:9876", "register_interval": 20.0}
    assert from_java(joined, "broker.conf") == servers
    asked = 'authenticationEnabled=true\ninitAuthenticationUser={"username":"a"}\ntls.server.mode=enforcing'
    keys = {"authentication": True, "admin_user": '{"username":"a"}', "tls": "enforcing"}
    assert from_java(asked, "broker.conf") == keys


@cases(
    "line, said",
    [
        ("flushDiskTyp=x", "the embedded broker has no option flushDiskTyp: did you mean flushDiskType?"),
        ("xyzzy=1", "the embedded broker has no option xyzzy"),
        ("brokerName", "'brokerName' is not name=value"),
        ("transactionTimeOut=soon", "transactionTimeOut='soon' is not a value of it"),
        ("flushDiskType=never", "flushDiskType='never' is not a value of it"),
        ("brokerRole=QUEEN", "brokerRole='QUEEN' is not a value of it"),
        ("autoCreateTopicEnable=maybe", "autoCreateTopicEnable='maybe' is not a value of it"),
    ],
)
def test_a_line_that_is_none_is_named(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        from_java(f"# first\n{line}", "broker.conf")
    assert (refused.value.place, refused.value.problem) == ("broker.conf:2", said)


def test_what_is_shown_can_be_read_again() -> None:
    config = BrokerConfig(name="broker-b", listen="[::1]:9999", flush="sync", client_expiry=30.5)
    secret = dataclasses.replace(config, admin_user="s3cret", cert_file="/s3cret", key_password="s3cret")
    assert "s3cret" not in str(to_java(secret))
    shown = to_java(config)
    assert (shown["channelExpiredTimeout"], shown["fileReservedTime"]) == ("30500", "72")
    assert "storePathRootDir" not in shown
    assert BrokerConfig(**from_java(encode(shown).decode(), "shown")) == config
