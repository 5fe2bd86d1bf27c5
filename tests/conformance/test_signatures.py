"""Requests are signed as the Java client signs them."""

from __future__ import annotations

import base64
import random

from rocketapp.wire.signing import Keys
from tests.peers.java_client import Peer

_NAMES = (
    "topic",
    "consumerGroup",
    "queueId",
    "a",
    "b",
    "A",
    "Z",
    "bname",
    "ns",
    "_UNIQUE_KEY_QUERY",
    "AccessKeyX",
    "z9",
)
_VALUES = ("", "0", "-1", "orders", "%RETRY%g", "标签 || été", "a\x01b\x02", " ", "x" * 5000)


def test_generated_requests_get_the_signature_of_java(peer: Peer) -> None:
    chance = random.Random(20)
    asked, ours = [], []
    for number in range(200):
        fields = {name: chance.choice(_VALUES) for name in chance.sample(_NAMES, chance.randrange(len(_NAMES)))}
        body = chance.randbytes(chance.choice((0, 0, 1, 700)))
        keys = {"access_key": chance.choice(("AK", "clé", "a" * 40)), "secret_key": chance.choice(("12345678", "秘密"))}
        if number % 3 == 0:
            keys["security_token"] = "STS.token"
        asked.append({"code": 10, "fields": fields, "base64": base64.b64encode(body).decode(), **keys})
        ours.append(Keys(**keys).sign(fields, body))
    java = peer.call("sign", requests=asked)
    assert len(java) == 200
    assert ours == java
