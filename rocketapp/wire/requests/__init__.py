"""One file per conversation: its fields and bodies, both ways."""
