"""Access keys: the signature that a request carries in its fields.

Signed are the values of all fields in the order of their names, and then the body. The signature is
computed last, when every field is set. Java: AclClientRPCHook, AclUtils, AclSigner.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping

ACCESS_KEY, SECURITY_TOKEN, SIGNATURE = "AccessKey", "SecurityToken", "Signature"
SECRET_FIELDS = frozenset((SECURITY_TOKEN, SIGNATURE))
"""Fields that are not shown to people."""


class Keys:
    """Signs requests in one name."""

    __slots__ = ("_access_key", "_begun", "_security_token")

    def __init__(self, access_key: str, secret_key: str, security_token: str = "") -> None:
        self._access_key, self._security_token = access_key, security_token
        # Begun once: a copy of it costs half of a new one, where other work has taken the caches of the processor.
        self._begun = hmac.new(secret_key.encode(), digestmod="sha1")

    def sign(self, fields: Mapping[str, str] | None, body: bytes) -> dict[str, str]:
        """The fields with access key and signature. An empty token is left out."""
        whole = {**(fields or {}), ACCESS_KEY: self._access_key}
        whole.pop(SIGNATURE, None)
        if self._security_token:
            whole[SECURITY_TOKEN] = self._security_token
        whole[SIGNATURE] = self.signature(whole, body)
        return whole

    def signature(self, fields: Mapping[str, str], body: bytes) -> str:
        """The signature of these fields, of which one that is called so is left out, and this body."""
        mac = self._begun.copy()
        mac.update("".join([fields[name] for name in sorted(fields) if name != SIGNATURE]).encode())
        mac.update(body)
        return base64.b64encode(mac.digest()).decode()
