"""Exactly-once effects and a transactional outbox for rocketapp, in the user's own database."""

from rocketapp_sqlalchemy.database import Database
from rocketapp_sqlalchemy.outbox import Outbox

__all__ = ["Database", "Outbox"]
