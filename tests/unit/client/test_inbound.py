"""What brokers may ask of a client."""

from __future__ import annotations

from rocketapp.client.instance import Inbound
from rocketapp.transport.connection import Connection
from rocketapp.wire.command import Command
from tests.unit.scripted import in_virtual_time, ok


@in_virtual_time
async def test_a_registered_code_is_served_and_any_other_refused_by_number() -> None:
    inbound = Inbound()
    inbound.register(307, lambda _, command: ok(command))
    connection = Connection(serve=inbound.serve, max_frame_bytes=1024)
    served, refused = inbound.serve(connection, Command(307)), inbound.serve(connection, Command(309, opaque=4))
    assert served is not None
    assert refused is not None
    assert (served.code, refused.code, refused.opaque) == (0, 3, 4)
    assert refused.remark == " request type 309 not supported"
