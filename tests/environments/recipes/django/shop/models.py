from django.db import models


class Account(models.Model):
    name = models.CharField(max_length=50, primary_key=True)
    balance = models.IntegerField()


class Bill(models.Model):
    order = models.CharField(max_length=50)


class Mark(models.Model):
    """A message that a handler has done."""

    key = models.CharField(max_length=32, primary_key=True)
    done_at = models.DateTimeField(auto_now_add=True, db_index=True)


class Outgoing(models.Model):
    """A message that waits to be sent: a row of rocketapp_sqlalchemy's outbox."""

    id = models.BigAutoField(primary_key=True)
    slot = models.IntegerField()
    topic = models.CharField(max_length=255)
    body = models.BinaryField()
    options = models.JSONField()

    class Meta:
        managed = False
        db_table = "rocketapp_outbox"
