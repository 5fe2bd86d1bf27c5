"""A small shop to copy from: README.md says what is in which file; app.py puts it together."""
