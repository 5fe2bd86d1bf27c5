"""One file per subject, each with a Router: app.py includes them."""
