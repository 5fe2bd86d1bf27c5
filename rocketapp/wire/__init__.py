"""Encodes values as bytes and decodes them. No sockets, clocks or tasks here."""
