"""The room of public helpers for tests; nothing is public yet."""
