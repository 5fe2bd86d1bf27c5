"""One file per subject, each with a Router."""
