"""docs/explanation/why-it-stands-still.md has every reason, in the words of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from rocketapp.operate.health import _MENDS, mend_of
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/explanation/why-it-stands-still.md"
TEXT = " ".join(PAGE.read_text().replace("\n>", "\n").split())
CODE = ROOT / "rocketapp"

REASONS = (
    "its offset cannot be read: ",
    "no lock: ",
    "pull failed: ",
    "pop failed: ",
    "the slave of ",
    " has no messages before offset ",
    " handled message",
    " cannot be acknowledged: ",
    "limit pop_max_messages ",
    "failed messages wait to be hidden until their retry: ",
    " failed message",
    " to be sent back: ",
    " that this app has no handler for wait",
    "does not take it",
    " has failed: what is behind it waits for its attempt ",
    "waits for a free call of handler ",
    "waits for the rate of handler ",
    " is parked: ",
    "another copy of this message is being handled",
    " (concurrency ",
    " has been running for ",
    " and has pulled nothing",
    " may have ended a process: ",
    " handles one such message at a time",
    "paused: ",
    "by an operator",
    "paused by the app",
    " said pause: ",
    "circuit breaker of ",
    " failed attempts within ",
    "the last: ",
    " stands still: ",
    "moves again",
    " has blocked the event loop for ",
    " failed and goes on: ",
    "flow control: ",
    " subscribes ",
    " beyond the broker's end ",
    " runs with ",
)
"""Pieces of what the log and `doctor` say. They have to be in the code and on the page."""
FOUND_IN = "operate/health.py", "operate/cluster.py", "cli/commands/doctor.py"
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


def reasons_of_queues() -> Iterator[tuple[str, str]]:
    """File and literal pieces of the reasons that the consumer gives for queues."""
    for file in sorted((CODE / "consumer").rglob("*.py")):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for call in filter(gives_a_reason, ast.walk(function)):
                    assert isinstance(call, ast.Call)
                    yield from ((file.name, words) for words in pieces_of(call, function))


def gives_a_reason(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) < 2:
        return False
    return node.func.attr == "because" and ast.unparse(node.func.value).endswith("blocked")


def pieces_of(call: ast.Call, function: ast.AST) -> Iterator[str]:
    """Of the reason itself, and of the value that a variable in it was last given before the call."""
    made = {"": call.args[1]}
    named = {node.id for node in ast.walk(call.args[1]) if isinstance(node, ast.Name)}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.lineno < call.lineno:
            name = node.targets[0].id
            if name in named and (name not in made or made[name].lineno < node.lineno):
                made[name] = node.value
    for piece in (piece for value in made.values() for piece in ast.walk(value)):
        if isinstance(piece, ast.Constant) and isinstance(piece.value, str) and len(piece.value) >= _SHORT:
            yield piece.value


def test_every_reason_that_the_consumer_gives_is_on_the_page() -> None:
    found = list(reasons_of_queues())
    assert len(found) > 5
    assert [one for one in found if not said(one[1])] == []


def test_the_words_of_a_reason_are_those_of_the_code_and_on_the_page() -> None:
    code = "".join(file.read_text() for file in sorted(CODE.rglob("*.py")))
    assert [words for words in REASONS if words not in code] == []
    assert [words for words in REASONS if not said(words)] == []


def test_every_section_of_the_page_is_of_a_reason_that_the_code_gives() -> None:
    titles = re.findall(r"^### (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    of_plugins = "What a plugin says"
    assert [title for title in titles if not any(words.strip() in title for words in REASONS)] == [of_plugins]


def test_every_problem_of_a_lock_is_on_the_page() -> None:
    (leases,) = (CODE / "consumer").rglob("leases.py")
    problems = re.findall(r'\.problem(?:, lock\.ask_at)? = f?"([^"{]+)', leases.read_text())
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


def test_every_mend_of_doctor_is_on_the_page() -> None:
    mends = [*_MENDS.values(), mend_of("unknown", "")]
    assert [mend for mend in mends if not said(mend.replace("{topic!r}", "'orders'"))] == []


def test_doctor_names_the_mend_that_the_page_has_for_a_reason() -> None:
    sections = [part.split("\n", 1) for part in re.split(r"^### ", PAGE.read_text(), flags=re.MULTILINE)[1:]]
    told = {reason: [mend for mend in _MENDS.values() if f"> `{mend}`" in text] for reason, text in sections}
    assert sum(map(bool, told.values())) > 7
    assert [reason for reason, mends in told.items() if mends and mend_of(reason, "") not in mends] == []


def test_every_finding_is_on_the_page() -> None:
    found = list(findings())
    assert len(found) > 15
    assert [one for one in found if not said(one[1])] == []
