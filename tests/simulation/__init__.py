"""A cluster in one process, in virtual time, with seeded faults."""
