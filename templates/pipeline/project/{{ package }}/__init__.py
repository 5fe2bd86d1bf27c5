"""Orders become a table, and revenue per half hour."""
