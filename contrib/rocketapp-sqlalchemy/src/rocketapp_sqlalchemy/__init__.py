"""Exactly-once effects, a transactional outbox and a store of offsets for rocketapp, in the user's own database."""

from rocketapp_sqlalchemy.database import Database
from rocketapp_sqlalchemy.offsets import Offsets
from rocketapp_sqlalchemy.outbox import Outbox

__all__ = ["Database", "Offsets", "Outbox"]
