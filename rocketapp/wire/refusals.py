"""Is it the access keys that a server refuses, or what they may do?

Brokers have one code for both and tell the difference in words. Java: DefaultAuthenticationProvider and its chain
(5.x), PlainPermissionManager (4.x, whose exception comes with code 1).
"""

from __future__ import annotations

from rocketapp.wire.codes import ResponseCode

_UNKNOWN_KEYS = (
    "username cannot be null",
    "check signature failed",
    "authentication failed",
    "no accesskey is configured",
    "no acl config for",
)
_UNKNOWN_USER = ("is not found", "is disabled")


def are_keys_refused(code: int, remark: str) -> bool:
    """Whether this refusal says that the access key is missing, unknown or disabled, or the signature wrong."""
    if code not in (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR):
        return False
    said = remark.lower()
    if any(words in said for words in _UNKNOWN_KEYS):
        return True
    return code == ResponseCode.NO_PERMISSION and "user:" in said and any(words in said for words in _UNKNOWN_USER)
