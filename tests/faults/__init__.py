"""Fault runs: kill, bounce and crowd the real parts, and count what got lost."""
