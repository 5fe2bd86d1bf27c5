"""No two members of a group may have the same id."""

from __future__ import annotations

from random import Random

import pytest

from rocketapp.client.identity import ip_bytes, local_ip, make_client_id, subscribed_of


def test_two_containers_with_equal_address_pid_and_second_differ() -> None:
    ids = {make_client_id("10.0.0.5", 1, "", 1_795_000_000.0, Random(seed)) for seed in range(100)}
    assert len(ids) == 100
    assert all(each.startswith("10.0.0.5@1#179") for each in ids)


def test_an_instance_name_can_be_read_in_the_id_and_gives_no_two_clients_one_id() -> None:
    workers = {make_client_id("10.0.0.5", pid, "left", 0.0, Random(0)) for pid in (1, 2)}
    containers = {make_client_id("10.0.0.5", 1, "left", 0.0, Random(seed)) for seed in (1, 2)}
    assert len(workers) == len(containers) == 2
    assert all(each.startswith("10.0.0.5@left#") for each in workers | containers)


@pytest.mark.parametrize(
    "name_servers", [["127.0.0.1:9876"], ["some.name:9876", "127.0.0.1:9876"], ["", "127.0.0.1:1"]]
)
def test_the_local_address_is_the_one_that_reaches_the_name_server(name_servers: list[str]) -> None:
    assert local_ip(name_servers) == "127.0.0.1"


def test_without_a_numeric_name_server_there_is_an_address_all_the_same() -> None:
    assert len(ip_bytes(local_ip(["some.name:9876"]))) in (4, 16)


def test_addresses_as_bytes() -> None:
    assert ip_bytes("10.0.0.5") == b"\x0a\x00\x00\x05"
    assert len(ip_bytes("fd00::2")) == 16
    assert ip_bytes("no address") == b"\x7f\x00\x00\x01"


def test_an_id_ends_with_the_digest_of_what_its_process_subscribes() -> None:
    for name in ("", "left", "a#b"):
        client_id = make_client_id("10.0.0.5", 1, name, 0.0, Random(0), subscribed="0123456789ab")
        assert subscribed_of(client_id) == "0123456789ab"
        assert subscribed_of(make_client_id("10.0.0.5", 1, name, 0.0, Random(0))) == ""
    assert subscribed_of("10.0.0.5@4711#52093874021") == subscribed_of("10.0.0.5@billing") == ""
