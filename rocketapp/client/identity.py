"""Who we are in the cluster: `ip@pid#digits#sdigest`, or `ip@instance_name#pid#digits#sdigest`.

The digest is of what the process subscribes. Every list of members brings it along, so members that subscribe alike
need not ask each other. A process that subscribes nothing has none.

Two members of a group with equal ids would take the same queues, so the id differs between the workers of
one host, between containers whose addresses and process ids are equal, and between clients of one process.
Brokers compare client ids as texts and read nothing out of them (Java: ClientConfig.buildMQClientId).
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from random import Random

from rocketapp.transport.stream import split_address

LOOPBACK = "127.0.0.1"
_ELSEWHERE = "192.0.2.1"
"""An address reserved for documentation (RFC 5737). No host has it, but the system still chooses a route to it."""


_DIGEST = re.compile(r"#\d+#s([0-9a-f]{12})$", re.ASCII)


def make_client_id(ip: str, pid: int, instance_name: str, now: float, random: Random, *, subscribed: str = "") -> str:
    """`now`: the time of day in seconds. Its nanoseconds are mixed with chance: clients may start at the same time.

    `subscribed`: 12 hexadecimal digits, the digest of what the process subscribes.
    """
    digits = int(now * 1_000_000_000) ^ random.getrandbits(40)
    name = f"{instance_name}#" if instance_name else ""
    return f"{ip}@{name}{pid}#{digits}" + (f"#s{subscribed}" if subscribed else "")


def subscribed_of(client_id: str) -> str:
    """The digest of what this client subscribes; empty when its id does not tell, as Java's."""
    found = _DIGEST.search(client_id)
    return "" if found is None else found[1]


def local_ip(name_servers: Iterable[str]) -> str:
    """The address that this machine uses to reach the first name server.

    Nothing is sent and no name is looked up: a datagram socket only chooses its route.
    """
    for target in (*_numeric_hosts(name_servers), _ELSEWHERE):
        family = socket.AF_INET6 if ":" in target else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return LOOPBACK


def ip_bytes(ip: str) -> bytes:
    """The address as 4 or 16 bytes; the loopback address when `ip` is not an IP address."""
    try:
        return ipaddress.ip_address(ip).packed
    except ValueError:
        return ipaddress.ip_address(LOOPBACK).packed


def _numeric_hosts(addresses: Iterable[str]) -> list[str]:
    hosts = []
    for address in addresses:
        try:
            hosts.append(str(ipaddress.ip_address(split_address(address)[0])))
        except ValueError:
            continue
    return hosts
