"""Requests by which a broker tells a name server that it is there.

Codes: REGISTER_BROKER 103, UNREGISTER_BROKER 104, QUERY_DATA_VERSION 322. Java: RegisterBrokerRequestHeader,
RegisterBrokerResponseHeader, UnRegisterBrokerRequestHeader, QueryDataVersionRequestHeader.
"""

from __future__ import annotations

from rocketapp.wire.fields import Header, java_names


class BrokerRequest(Header, frozen=True, rename=java_names(broker_name="brokerName", address="brokerAddr")):
    """Which broker speaks: all three requests begin with it."""

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str


class Registered(Header, frozen=True, rename=java_names(ha_address="haServerAddr", master_address="masterAddr")):
    """Tells a slave where its master is: for the log, and for questions."""

    ha_address: str
    master_address: str
