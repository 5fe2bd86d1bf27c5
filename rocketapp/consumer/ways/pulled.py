"""What ways of consuming have in common whose queues are filled by pulls."""

from __future__ import annotations

from rocketapp.consumer.pull.puller import Decode
from rocketapp.consumer.ways.delivery import NewQueue
from rocketapp.model.queue_start import Begin
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import decode_records


class Pulled:
    """Fills its queues by pulls of messages, from the offset that the group has committed."""

    decode: Decode = staticmethod(decode_records)
    """Makes of a pull's answer what its process queues hold."""
    new_queue: NewQueue = ProcessQueue

    @property
    def own_start(self) -> Begin | None:
        return None
