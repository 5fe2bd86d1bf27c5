"""Who we are in the cluster: `ip@pid#digits`, or `ip@instance_name#pid#digits`.

Two members of a group with equal ids would take the same queues, so the id differs between the workers of
one host, between containers whose addresses and process ids are equal, and between clients of one process.
Brokers compare client ids as texts and read nothing out of them (Java: ClientConfig.buildMQClientId).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from random import Random

from rocketapp.transport.stream import split_address

LOOPBACK = "127.0.0.1"
_ELSEWHERE = "192.0.2.1"
"""An address reserved for documentation (RFC 5737). No host has it, but the system still chooses a route to it."""


def make_client_id(ip: str, pid: int, instance_name: str, now: float, random: Random) -> str:
    """`now`: the time of day in seconds. Its nanoseconds are mixed with chance: clients may start at the same time."""
    digits = int(now * 1_000_000_000) ^ random.getrandbits(40)
    name = f"{instance_name}#" if instance_name else ""
    return f"{ip}@{name}{pid}#{digits}"


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
