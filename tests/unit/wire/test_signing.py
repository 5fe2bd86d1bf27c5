from __future__ import annotations

import pytest

from rocketapp.wire.signing import signed

GOLDEN = {"consumerGroup": "G1", "queueId": "0", "topic": "T1"}


def test_the_signature_is_the_one_that_java_computes() -> None:
    found = signed(GOLDEN, b"", access_key="AK", secret_key="SKSKSKSK")
    assert found == {**GOLDEN, "AccessKey": "AK", "Signature": "O+64igEAZXFJMRRpi48kY8g97LE="}


def test_an_older_signature_is_replaced_and_not_signed() -> None:
    once = signed(GOLDEN, b"", access_key="AK", secret_key="SKSKSKSK")
    assert signed(once, b"", access_key="AK", secret_key="SKSKSKSK") == once


@pytest.mark.parametrize(
    "other",
    [
        signed(GOLDEN, b"x", access_key="AK", secret_key="SKSKSKSK"),
        signed(GOLDEN, b"", access_key="AK", secret_key="other"),
        signed(GOLDEN, b"", access_key="AK", secret_key="SKSKSKSK", security_token="T"),
        signed({**GOLDEN, "queueId": "1"}, b"", access_key="AK", secret_key="SKSKSKSK"),
    ],
    ids=["body", "secret", "token", "field"],
)
def test_body_secret_token_and_fields_are_signed(other: dict[str, str]) -> None:
    assert other["Signature"] != signed(GOLDEN, b"", access_key="AK", secret_key="SKSKSKSK")["Signature"]


def test_a_request_without_fields_is_signed_too() -> None:
    assert set(signed(None, b"body", access_key="AK", secret_key="S", security_token="T")) == {
        "AccessKey",
        "SecurityToken",
        "Signature",
    }
