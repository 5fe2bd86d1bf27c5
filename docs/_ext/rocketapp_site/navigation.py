"""The order of the pages. A page that is not named here comes behind those that are: a new one needs no line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple


class Group(NamedTuple):
    """Some pages below a caption."""

    caption: str
    pages: Sequence[str]
    others: str = ""
    """The folder whose other pages come behind, without those of its folders."""


HOME = "docs/index"
TREES: Mapping[str, Sequence[Group]] = {
    HOME: (
        Group("Begin", ("docs/tutorial", "docs/how-to/index")),
        Group("Look up", ("docs/reference/index",)),
        Group(
            "Subjects",
            ("docs/testing", "docs/payloads", "docs/idempotency", "docs/telemetry", "docs/administration"),
            others="docs/",
        ),
        Group("Understand", ("docs/explanation/index",)),
        Group(
            "Beside rocketapp", ("example_app/README", "contrib/README", "templates/README", "CHANGELOG", "SECURITY")
        ),
    ),
    "docs/how-to/index": (
        Group("Begin", ("docs/how-to/develop", "docs/how-to/arrange-handlers")),
        Group(
            "Complete recipes",
            tuple(f"docs/how-to/{name}" for name in ("fastapi", "django", "jupyter", "postgresql", "keda")),
        ),
        Group(
            "Handle",
            (
                "docs/how-to/payload-types",
                "docs/how-to/orderly",
                "docs/how-to/exactly-once",
                "docs/how-to/limits",
                "docs/how-to/dependencies",
                "docs/how-to/broadcast",
                "docs/how-to/poll",
                "docs/how-to/pop",
                "docs/how-to/allocation",
            ),
        ),
        Group("Fail", ("docs/how-to/retry-and-failure", "docs/how-to/pause-and-breaker")),
        Group("Publish", ("docs/how-to/publishing", "docs/how-to/delays", "docs/how-to/clusters")),
        Group("Extend", ("docs/how-to/plugins", "docs/how-to/offset-store")),
        Group(
            "Operate",
            (
                "docs/how-to/from-embedded-to-apache",
                "docs/how-to/apache-slave",
                "docs/how-to/security",
                "docs/how-to/deployment-systemd",
                "docs/how-to/containers",
                "docs/how-to/rolling-out",
                "docs/how-to/slaves",
                "docs/how-to/telemetry-in-production",
                "docs/how-to/statsd",
                "docs/how-to/message-trace",
                "docs/how-to/describe-with-asyncapi",
            ),
        ),
        Group(
            "Come from elsewhere",
            ("docs/how-to/from-java", "docs/how-to/from-faststream", "docs/how-to/from-celery"),
        ),
        Group("More", (), others="docs/how-to/"),
    ),
    "docs/reference/index": (
        Group(
            "",
            (
                "docs/reference/commands",
                "docs/reference/settings",
                "docs/reference/handlers",
                "docs/reference/publishing",
                "docs/reference/running",
                "docs/reference/logs",
                "docs/reference/http",
                "docs/reference/names",
                "docs/reference/testing-names",
                "docs/reference/hooks",
                "docs/reference/plugin-names",
                "docs/reference/events",
            ),
            others="docs/reference/",
        ),
    ),
    "docs/explanation/index": (
        Group(
            "",
            (
                "docs/explanation/how-delivery-works",
                "docs/explanation/why-it-stands-still",
                "docs/explanation/speed",
                "docs/explanation/glossary",
                "docs/explanation/design",
                "docs/decisions/README",
                "docs/explanation/house",
            ),
            others="docs/explanation/",
        ),
    ),
    "contrib/README": (
        Group(
            "",
            (
                "contrib/rocketapp-lake/README",
                "contrib/rocketapp-pyspark/README",
                "contrib/rocketapp-sqlalchemy/README",
                "contrib/rocketapp-redis/README",
            ),
        ),
    ),
    "contrib/rocketapp-lake/README": (
        Group(
            "",
            tuple(f"contrib/rocketapp-lake/{name}" for name in ("TUTORIAL", "HOW-TO", "SINK", "COMMITS")),
            others="contrib/rocketapp-lake/",
        ),
    ),
    "contrib/rocketapp-pyspark/README": (
        Group("", ("contrib/rocketapp-pyspark/CLUSTER",), others="contrib/rocketapp-pyspark/"),
    ),
}
"""Page -> what stands below it."""
FOUND_BY = {"docs/how-to/retry-and-failure": "dead letters"}
"""Page -> what a reader may search for, who then gets this page first."""
SHOWN = {"docs/how-to/index"}
"""Pages that show what stands below them. The others name it in their text."""


def below(page: str, found: Collection[str]) -> list[tuple[str, list[str]]]:
    """Captions and pages below a page, of those that were found."""
    groups = [(group.caption, _pages_of(group, page, found)) for group in TREES.get(page, ())]
    return [(caption, pages) for caption, pages in groups if pages]


def with_tree(page: str, text: str, found: Collection[str]) -> str:
    """The text of a page, and directives for what stands below it, and for what the search finds it by."""
    parts = [text]
    if page in FOUND_BY:
        title, _, rest = text.partition("\n")
        parts = [title, f"```{{index}} !{FOUND_BY[page]}\n```", rest]
    for caption, pages in below(page, found):
        options = [
            ":titlesonly:",
            *([] if page in SHOWN else [":hidden:"]),
            *([f":caption: {caption}"] if caption else []),
        ]
        parts.append("\n".join(["```{toctree}", *options, "", *(f"/{one}" for one in pages), "```"]))
    return "\n\n".join(parts)


def _pages_of(group: Group, page: str, found: Collection[str]) -> list[str]:
    named = {one for groups in TREES.values() for some in groups for one in some.pages} | {HOME, page}
    others = [
        one
        for one in sorted(found)
        if group.others and one.startswith(group.others) and "/" not in one[len(group.others) :] and one not in named
    ]
    return [*(one for one in group.pages if one in found), *others]
