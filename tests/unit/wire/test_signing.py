from __future__ import annotations

import pytest

from rocketapp.wire.signing import Keys

GOLDEN = {"consumerGroup": "G1", "queueId": "0", "topic": "T1"}


def test_the_signature_is_the_one_that_java_computes() -> None:
    found = Keys(access_key="AK", secret_key="SKSKSKSK").sign(GOLDEN, b"")
    assert found == {**GOLDEN, "AccessKey": "AK", "Signature": "O+64igEAZXFJMRRpi48kY8g97LE="}


def test_an_older_signature_is_replaced_and_not_signed() -> None:
    once = Keys(access_key="AK", secret_key="SKSKSKSK").sign(GOLDEN, b"")
    assert Keys(access_key="AK", secret_key="SKSKSKSK").sign(once, b"") == once


@pytest.mark.parametrize(
    "other",
    [
        Keys(access_key="AK", secret_key="SKSKSKSK").sign(GOLDEN, b"x"),
        Keys(access_key="AK", secret_key="other").sign(GOLDEN, b""),
        Keys(access_key="AK", secret_key="SKSKSKSK", security_token="T").sign(GOLDEN, b""),
        Keys(access_key="AK", secret_key="SKSKSKSK").sign({**GOLDEN, "queueId": "1"}, b""),
    ],
    ids=["body", "secret", "token", "field"],
)
def test_body_secret_token_and_fields_are_signed(other: dict[str, str]) -> None:
    assert other["Signature"] != Keys(access_key="AK", secret_key="SKSKSKSK").sign(GOLDEN, b"")["Signature"]


def test_a_request_without_fields_is_signed_too() -> None:
    assert set(Keys(access_key="AK", secret_key="S", security_token="T").sign(None, b"body")) == {
        "AccessKey",
        "SecurityToken",
        "Signature",
    }
