"""A concurrent queue changes hands between living members: who waits for whom, and how long.

The member that gives a queue away drops what was not started, commits at once, lets running handlers go on for
`RUN_ON` seconds, and commits again. Members cannot tell each other more than offsets. So the next owner waits until
the member before must be through.
"""

from __future__ import annotations

RUN_ON = 1.0
"""Seconds that running handlers of a queue get when it is given to another member."""
WAIT = 1.4
"""Seconds after which the next owner begins at the committed offset: `RUN_ON`, and time to hear the news and commit."""
