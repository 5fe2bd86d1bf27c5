"""The fields and bodies of requests and responses: one file per conversation."""
