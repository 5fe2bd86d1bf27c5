"""docs/explanation/why-it-stands-still.md has every reason, in the words of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from rocketapp.operate.verdict import _MENDS, mend_of
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/explanation/why-it-stands-still.md"
TEXT = " ".join(PAGE.read_text().replace("\n>", "\n").split())
CODE = ROOT / "rocketapp"

REASONS = {
    "consumer/assignment.py": ["its offset cannot be read: "],
    "consumer/wanted_elsewhere.py": [" message", " that this app has no handler for wait", " does not take it: "],
    "consumer/group/beginning.py": ["no lock: "],
    "consumer/group/leases.py": ["no lock: "],
    "consumer/applied_pauses.py": [],  # those of state/pauses.py
    "consumer/pop/acknowledging.py": [" handled message", " cannot be acknowledged: "],
    "consumer/pop/assignment.py": ["its offset cannot be read: ", " messages are in hand, limit pop_max_messages "],
    "consumer/pop/hiding.py": ["failed messages wait to be hidden until their retry: "],
    "consumer/pop/popper.py": ["pop failed: "],
    "consumer/pull/gate.py": [],  # it says what pullers, poppers and pauses give it
    "consumer/pull/puller.py": ["pull failed: ", "the slave of ", " has no messages before offset "],
    "consumer/push_consumer.py": ["its offset cannot be read: "],
    "consumer/retry/waiting.py": [" failed message", "s wait", " waits", " to be sent back: "],
    "consumer/ways/serial_way.py": ["waits for a free call of handler ", " (concurrency "],
    "consumer/ways/polled.py": [
        " has been running for ",
        " and has pulled nothing",
        "which wait for the next call of ",
    ],
    "consumer/behind_suspects.py": [],  # those of consumer/suspect_line.py
    "consumer/suspect_line.py": [
        "waits while 1 message that may have ended the process is handled alone",
        " messages that may have ended the process are handled one at a time",
    ],
    "consumer/ways/plugged.py": [],  # what plugins say
    "state/pauses.py": ["paused: "],
    "cli/processes/operation.py": ["by an operator"],
    "app/declare/pausing.py": ["paused by the app"],
    "consumer/retry/stopping.py": [" said stop: ", "circuit breaker of ", " failed attempts within ", "the last: "],
    "model/event.py": [" has been running for "],
    "plugins/log_lines.py": [" stands still: ", "moves again", " has blocked the event loop for "],
}
"""By the file that says them, the words of reasons."""
FOUND_IN = "operate/verdict.py", "operate/cluster.py", "cli/commands/doctor.py"
"""The files that make findings."""
_SHORT = 9
"""Pieces of a sentence with fewer characters say nothing by themselves."""


def words_in(module: ast.AST) -> Iterator[str]:
    """The literal pieces of the texts and mends that a module makes."""
    for node in ast.walk(module):
        made: ast.AST | None = None
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            made = node.value if node.targets[0].id in ("text", "mend", "waiting", "reason") else None
        elif isinstance(node, ast.keyword) and node.arg in ("text", "mend"):
            made = node.value
        for piece in ast.walk(made) if made is not None else ():
            if isinstance(piece, ast.Constant) and isinstance(piece.value, str) and len(piece.value) >= _SHORT:
                yield piece.value


def findings() -> Iterator[tuple[str, str]]:
    for file in FOUND_IN:
        yield from ((file, words) for words in words_in(ast.parse((CODE / file).read_text())))


def said(words: str) -> bool:
    return " ".join(words.split()) in TEXT


def test_each_file_that_says_a_reason_is_known_here() -> None:
    speakers = {
        str(file.relative_to(CODE))
        for file in sorted(CODE.rglob("*.py"))
        if re.search(r"(?:stall_reasons|waits)\.still\(", file.read_text())
    }
    assert speakers <= set(REASONS), "write the new reason on the page, and its words here"


@pytest.mark.parametrize(("file", "words"), [(file, one) for file, some in REASONS.items() for one in some])
def test_the_words_of_a_reason_are_those_of_the_code_and_on_the_page(file: str, words: str) -> None:
    assert words in (CODE / file).read_text()
    assert said(words)


def test_every_problem_of_a_lock_is_on_the_page() -> None:
    problems = re.findall(
        r'\.problem(?:, lock\.ask_at)? = f?"([^"{]+)', (CODE / "consumer/group/leases.py").read_text()
    )
    assert len(problems) >= 5
    assert [one for one in problems if not said(one)] == []


def test_every_limit_of_flow_control_is_on_the_page() -> None:
    code = (CODE / "state/flow_control.py").read_text()
    limits = set(re.findall(r"limit (\w+) \{", code))
    of_topics = {"topic_max_messages", "topic_max_bytes"}
    assert limits == {"queue_max_messages", "queue_max_bytes", "queue_max_span", "cache_max_bytes", *of_topics}
    for words in (*limits, " unfinished messages", " unfinished bytes", "all queues together hold", "for other topics"):
        assert words in code
        assert said(words)


@pytest.mark.parametrize("mend", [*(mend for _, mend in _MENDS), mend_of("unknown", "")])
def test_every_mend_of_doctor_is_on_the_page(mend: str) -> None:
    assert said(mend.replace("{topic!r}", "'orders'"))


@pytest.mark.parametrize(("place", "words"), list(findings()))
def test_every_finding_is_on_the_page(place: str, words: str) -> None:
    assert said(words)


def test_the_page_has_findings_to_compare_with() -> None:
    assert len(list(findings())) > 15
