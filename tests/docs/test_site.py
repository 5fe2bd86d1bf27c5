"""The site of `make docs`: complete, without warnings, and nothing in it comes from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from rocketapp import RocketApp, Router
from rocketapp.plugin import events
from rocketapp_site import commands, hooks, settings
from rocketapp_site.names import PACKAGES, members_of
from rocketapp_site.reference import completed
from tests.docs.pages import ROOT
from tests.docs.site import Site, build


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    built, said = build(tmp_path_factory.mktemp("docs"))
    assert said == ""
    return built


def places() -> Iterator[tuple[str, str]]:
    """Page of the reference, and heading that it has to have."""
    for name in commands.leaves():
        yield "commands", rf"## rocketapp {name}(?: .*)?"
    for table in settings.TABLES:
        for option in settings.fields_of(settings.TABLES[table]):
            yield "settings", re.escape(settings.heading_of(table, option))
    for hook in hooks.HOOKS:
        yield "hooks", re.escape(hooks.heading_of(hook))
    for page, package in PACKAGES.items():
        for name in import_module(package).__all__:
            yield page, f"## `{name}`"
    for name in ("Event", "Handled", "Retried", "DeadLettered"):
        assert hasattr(events, name)
        yield "events", f"## `{name}`"
    for kind in (RocketApp, Router):
        for name in members_of(kind):
            yield "names", rf"(?:### `{kind.__name__}\.{name}`|- `{name}: .*)"


def missing_in(site: Site) -> list[str]:
    texts = {page: site.text(f"docs/reference/{page}.md") for page, _ in places()}
    return [f"{page}: {heading}" for page, heading in places() if not re.search(f"(?m)^{heading}$", texts[page])]


def test_everything_public_has_its_place(site: Site) -> None:
    assert missing_in(site) == []


def test_a_missing_place_is_found(site: Site, tmp_path: Path) -> None:
    (tmp_path / "docs/reference").mkdir(parents=True)
    for page, _ in places():
        text = site.text(f"docs/reference/{page}.md")
        cut = text.replace("## `Retry`\n", "").replace("#### `consumer.threads`\n", "").replace("## rocketapp tail", "")
        (tmp_path / f"docs/reference/{page}.md").write_text(cut.replace("### `RocketApp.pause`\n", ""))
    found = {line.replace("\\", "") for line in missing_in(Site(tmp_path))}
    assert {"names: ## `Retry`", "settings: #### `consumer.threads`", "commands: ## rocketapp tail(?: .*)?"} <= found
    assert any("RocketApp.pause" in line for line in found)


def test_what_a_page_does_not_say_is_added_from_the_code() -> None:
    page = completed("docs/reference/commands", "# Commands\n\n## rocketapp tail TOPIC\n\nShows messages.\n")
    assert "Shows messages.\n\n```text\nrocketapp tail" in page
    assert "## rocketapp topic create\n" in page
    settings_page = completed(
        "docs/reference/settings", "# Settings\n\n### [app]\n\nThe process.\n\n### [client]\n\nOne.\n"
    )
    assert settings_page.count("### [app]") == 1
    assert "The process.\n\n#### `app.group`" in settings_page


def test_every_public_name_says_what_it_is(site: Site) -> None:
    silent = [
        name
        for page in PACKAGES
        for name, text in re.findall(r"(?ms)^## `(\w+)`\n(.*?)(?=^## |\Z)", site.text(f"docs/reference/{page}.md"))
        if not re.sub(r"(?ms)^```.*?^```$|^#.*?$", "", text).strip()
    ]
    assert silent == []


def test_links_of_the_site_lead_somewhere(site: Site) -> None:
    assert len(site.pages) > 50
    assert site.lost_links() == []


def test_nothing_is_loaded_from_elsewhere(site: Site) -> None:
    loads = [load for page in site.pages.values() for load in page.loads]
    assert [load for load in loads if re.match(r"(\w+:)?//", load)] == []
    styles = list(site.folder.rglob("*.css"))
    assert styles
    remote = re.compile(r"(?:@import\s+(?:url\()?|url\()\s*['\"]?\s*(?:https?:)?//")
    assert [file.name for file in styles if remote.search(file.read_text(encoding="utf-8"))] == []


def test_what_is_copied_runs(site: Site) -> None:
    """Prompts and output are left out; drawings and output alone have no button. The scripts are files of the site."""
    script = site.text("_static/copybutton.js")
    assert "'.linenos, .gp, .go'" in script
    assert "'div.highlight:not(.highlight-text *) > pre'" in script
    assert '<span class="gp">$ </span>rocketapp' in site.text("docs/tutorial.html")
    assert '<script src="../_static/copybutton.js' in site.text("docs/index.html")


def test_drawings_are_on_the_site_as_svg_and_in_its_texts_as_text(site: Site) -> None:
    assert site.text("docs/explanation/design.html").count('<figure class="drawn') == 13
    assert "```text\n wanted -->" in site.text("docs/explanation/design.md")


def test_the_search_works_without_a_server(site: Site) -> None:
    index = site.text("searchindex.js")
    assert index.startswith("Search.setIndex(")
    for word in ("dead", "letter", "rebalanc"):
        assert re.search(rf'"?\b{word}"?:', index), word
    assert "searchindex.js" in site.text("search.html")


def test_who_searches_for_dead_letters_is_led_to_the_how_to(site: Site) -> None:
    """What an entry of the index has in it counts up to 100, a heading or a word of a text at most 16."""
    index = json.loads(site.text("searchindex.js").removeprefix("Search.setIndex(").removesuffix(")"))
    entries = {name: [index["docnames"][one[0]] for one in found] for name, found in index["indexentries"].items()}
    assert entries == {"dead letters": ["docs/how-to/retry-and-failure"]}
    assert "100 * queryLower.length" in site.text("_static/searchtools.js")
    assert "## Look at dead letters" in site.text("docs/how-to/retry-and-failure.md")


def test_llms_txt_names_every_page_and_each_is_there(site: Site) -> None:
    contents = site.text("llms.txt")
    assert contents.startswith("# rocketapp\n\n> Flask for RocketMQ handlers")
    named = re.findall(r"^- \[.+\]\((.+)\): .+$", contents, re.MULTILINE)
    pages = {f"{page.relative_to(ROOT)}" for page in (ROOT / "docs").rglob("*.md")} - {"docs/index.md"}
    assert pages <= set(named)
    assert len(named) == len(set(named))
    assert [name for name in named if not (site.folder / name).is_file()] == []
    everything = site.text("llms-full.txt")
    assert [name for name in named if f"<!-- {name} -->" not in everything] == []


def test_the_distributions_beside_are_on_the_site(site: Site) -> None:
    for name in ("lake", "pyspark", "redis", "sqlalchemy"):
        assert f"rocketapp-{name}" in site.text(f"contrib/rocketapp-{name}/README.html")
    assert "docs/index.html" in site.text("index.html")
