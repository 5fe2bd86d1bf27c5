"""Which queues this member owns, from the list of members to the last commit.

The rebalancer asks brokers who is in the group, and makes an assignment for each queue that is ours. An assignment
lives in sessions: it waits for its lock (`leases`) or for the member before, learns where to begin (`start`), has its
queue pulled and delivered, and commits. A queue that goes to another member is a handover: what was started ends, its
offset is committed, and its lock is given back. A popped topic has an assignment of its own kind (`popped`).
"""
