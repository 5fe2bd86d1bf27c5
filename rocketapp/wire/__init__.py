"""Bytes to values and back: nothing here knows a socket, a clock or a task."""
