"""What most ways of consuming have in common: they handle single messages, from the offset of the group on."""

from __future__ import annotations

from rocketapp.consumer.pull.puller import Decode
from rocketapp.consumer.ways.delivery import NewQueue
from rocketapp.model.queue_start import Begin
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import decode_records


class Pulled:
    """Its process queues hold messages, from the offset that the group has committed."""

    decode: Decode = staticmethod(decode_records)
    new_queue: NewQueue = ProcessQueue

    @property
    def own_start(self) -> Begin | None:
        return None
