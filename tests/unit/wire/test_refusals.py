from __future__ import annotations

import pytest

from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.refusals import are_keys_refused
from tests.cases import cases

NO_PERMISSION, ERROR = ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR


@cases(
    "code, remark",
    [
        (NO_PERMISSION, "username cannot be null."),
        (NO_PERMISSION, "User:ann is not found."),
        (NO_PERMISSION, "User:ann is disabled."),
        (NO_PERMISSION, "check signature failed."),
        (NO_PERMISSION, "Authentication failed. Please verify the credentials and try again."),
        (ERROR, "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, Plain..."),
        (ERROR, "org.apache.rocketmq.acl.common.AclException: No acl config for ann, Plain..."),
        (ERROR, "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=ann, Plain..."),
    ],
)
def test_keys_that_are_missing_unknown_or_wrong(code: int, remark: str) -> None:
    assert are_keys_refused(code, remark)


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (NO_PERMISSION, "User:ann has no permission to access Topic:t from 127.0.0.1, no matched policies."),
        (NO_PERMISSION, "the topic[t] sending message is forbidden"),
        (ERROR, "org.apache.rocketmq.acl.common.AclException: No default permission for t, Plain..."),
        (ERROR, "the consumer group is not found"),
        (ResponseCode.TOPIC_NOT_EXIST, "check signature failed"),
        (ERROR, ""),
    ],
)
def test_keys_that_are_known_and_may_not(code: int, remark: str) -> None:
    assert not are_keys_refused(code, remark)
