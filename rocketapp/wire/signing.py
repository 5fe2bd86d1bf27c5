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


def signed(
    fields: Mapping[str, str] | None, body: bytes, *, access_key: str, secret_key: str, security_token: str = ""
) -> dict[str, str]:
    """The fields with access key and signature. An empty token is left out."""
    whole = {**(fields or {}), ACCESS_KEY: access_key}
    whole.pop(SIGNATURE, None)
    if security_token:
        whole[SECURITY_TOKEN] = security_token
    text = "".join(whole[name] for name in sorted(whole)).encode()
    digest = hmac.digest(secret_key.encode(), text + body, "sha1")
    whole[SIGNATURE] = base64.b64encode(digest).decode()
    return whole
