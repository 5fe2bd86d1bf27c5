"""How Sphinx builds the site: `make docs`.

The root of the checkout is the source, so that links between docs/, contrib/ and the changelog are the same on the site
as in the checkout. Pages are plain Markdown; `docs/_ext` adds what is made from the code, and the navigation.
"""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]  # the code beside these pages, not an installed one

project = "rocketapp"
author = "The rocketapp developers"
release = version = version_of("rocketapp")
extensions = ["myst_parser", "sphinx_copybutton", "rocketapp_site.site"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "contrib/*.md",
    "contrib/*/*.md",
    "example_app/README.md",
    "templates/README.md",
    "CHANGELOG.md",
    "SECURITY.md",
]
exclude_patterns = [".*", "**/.*", "**/src", "**/tests", "rocketapp", "benchmarks", "build", "dist"]
myst_heading_anchors = 4
nitpicky = True
smartquotes = False
highlight_language = "text"
html_theme = "furo"
html_title = f"rocketapp {release}"
html_copy_source = False
html_use_index = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
# What is copied runs: neither prompts nor what commands print. Blocks of plain text are output and drawings.
copybutton_selector = "div.highlight:not(.highlight-text *) > pre"
copybutton_exclude = ".linenos, .gp, .go"
