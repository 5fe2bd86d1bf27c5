"""The two services that the shop calls: what it expects of them, and the clients that call them by HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec

from example_app.failures import RefusedError


class BankBusyError(Exception):
    """The bank asks for time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the bank is busy for {seconds:g} s")
        self.seconds = seconds


class CardRefusedError(RefusedError):
    """The bank does not take this card."""


class Bank(Protocol):
    """Takes money from cards."""

    def charge(self, order_id: str, card: str, cents: int) -> str:
        """Returns the receipt. A second call for an order takes no money, and returns the same receipt.

        Raises BankBusyError, CardRefusedError, and OSError when the bank cannot be reached.
        """
        ...


class Carrier(Protocol):
    """Fetches parcels."""

    def fetch(self, order_id: str, customer: str) -> str:
        """Returns the number to track it by; a second call for an order returns the same one.

        Raises OSError when the carrier cannot be reached.
        """
        ...


class HttpBank:
    """The bank by HTTP. Blocks: it is for sync handlers."""

    def __init__(self, url: str, key: str, timeout: float) -> None:
        self._url, self._key, self._timeout = url.rstrip("/"), key, timeout

    def charge(self, order_id: str, card: str, cents: int) -> str:
        headers = {"Authorization": f"Bearer {self._key}", "Idempotency-Key": order_id}
        try:
            answer = _post(f"{self._url}/charges", {"card": card, "cents": cents}, headers, self._timeout)
        except HTTPError as error:
            error.close()  # what it answers beside its status is not read
            if error.code in (402, 403):
                raise CardRefusedError(f"order {order_id}: the bank refuses the card") from error
            if error.code == 429:
                raise BankBusyError(float(error.headers.get("Retry-After", "1"))) from error
            raise
        return str(answer["receipt"])


class HttpCarrier:
    """The carrier by HTTP. Blocks as well."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url, self._timeout = url.rstrip("/"), timeout

    def fetch(self, order_id: str, customer: str) -> str:
        answer = _post(f"{self._url}/parcels/{order_id}", {"to": customer}, {}, self._timeout)
        return str(answer["tracking"])


def _post(url: str, body: Mapping[str, object], headers: Mapping[str, str], timeout: float) -> dict[str, Any]:
    """The JSON that is answered. Raises OSError: HTTPError and TimeoutError are some."""
    data, kind = msgspec.json.encode(body), {"Content-Type": "application/json"}
    with urlopen(Request(url, data=data, headers={**kind, **headers}), timeout=timeout) as answer:
        return msgspec.json.decode(answer.read(), type=dict[str, Any])
