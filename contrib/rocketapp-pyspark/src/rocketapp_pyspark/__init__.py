"""A sink for topics: batches of messages land in a table exactly once, through Spark."""
