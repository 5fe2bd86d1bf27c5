"""A small shop: read app.py first, then handlers/."""
