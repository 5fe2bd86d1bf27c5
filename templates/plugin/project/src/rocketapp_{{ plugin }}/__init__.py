"""A line in the log for each message that is done."""
