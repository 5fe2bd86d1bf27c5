"""A reader may paste what the pages show: addresses of this machine, or of the ranges that are kept for documents."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network

from tests.docs.pages import PAGES, ROOT, name_of

FOR_DOCUMENTS = [
    ip_network(network) for network in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32")
]
TEXTS = [
    *PAGES,
    *sorted((ROOT / "contrib").rglob("*.md")),
    *sorted(file for file in (ROOT / "templates").rglob("*") if file.is_file() and file.suffix != ".pyc"),
]
_ADDRESS = re.compile(
    r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.]\d)|(?<=\[)[0-9a-fA-F]*:[0-9a-fA-F:]*:[0-9a-fA-F]*(?=\])"
)


def strange_in(text: str) -> list[str]:
    """The addresses that may belong to a reader's neighbour."""
    found = [ip_address(address) for address in _ADDRESS.findall(text)]
    known = [
        one
        for one in found
        if one.is_loopback or one.is_unspecified or any(one in network for network in FOR_DOCUMENTS)
    ]
    return [str(one) for one in found if one not in known]


def test_addresses_are_of_this_machine_or_for_documents() -> None:
    assert {name_of(page): found for page in TEXTS if (found := strange_in(page.read_text()))} == {}


def test_another_address_is_found() -> None:
    text = "on 10.0.0.1:9876;127.0.0.1:1, 192.0.2.7. [2001:db8::1]:9876 [::1]:1 [fd00::1]:2 and 8.8.8.8."
    assert strange_in(text) == ["10.0.0.1", "fd00::1", "8.8.8.8"]
