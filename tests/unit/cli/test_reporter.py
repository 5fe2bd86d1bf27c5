"""How a worker's reports reach its parent: whole, whatever the pipe holds at once."""

from __future__ import annotations

import os
import threading

from rocketapp.cli.processes.child_main import Reporter
from rocketapp.cli.processes.reports import Report


def test_a_report_that_the_pipe_does_not_hold_arrives_without_another_one() -> None:
    reading, writing = os.pipe()
    reporter, report = Reporter(writing), Report("view", said="x" * 5_000_000)
    reporter.tell(report)
    found: list[bytes] = []

    def read() -> None:
        while not found or not found[-1].endswith(b"\n"):
            found.append(os.read(reading, 65536))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(10)
    assert Report.decode(b"".join(found)) == report
    os.close(reading)


def test_the_end_of_the_parent_ends_a_report_that_is_on_its_way() -> None:
    reading, writing = os.pipe()
    reporter = Reporter(writing)
    reporter.tell(Report("view", said="x" * 5_000_000))
    (sender,) = [one for one in threading.enumerate() if one.name == "rocketapp-reports"]
    os.close(reading)
    sender.join(10)
    assert not sender.is_alive()
