"""`rocketapp docs`: what an app receives and sends, as an AsyncAPI document and as a page for people."""

from __future__ import annotations

from pathlib import Path

import click

from rocketapp.app.app import RocketApp
from rocketapp.app.settings import Settings
from rocketapp.asyncapi.document import document_of, encoded
from rocketapp.asyncapi.page import page_of
from rocketapp.cli.failure import DONE, FAILED, CommandError, problem_of
from rocketapp.cli.options import app_command, refuse_empty
from rocketapp.cli.output import say


@click.command("docs", epilog="Example: rocketapp docs app:app --output asyncapi.json --html asyncapi.html")
@click.option("-o", "--output", metavar="FILE", help="Write the document there; default: stdout.")
@click.option("--html", metavar="FILE", help="Write a page for people there.")
@app_command
def command(*, app: RocketApp, settings: Settings, output: str | None, html: str | None) -> int:
    """Describe APP as an AsyncAPI 3 document. It says what APP receives and sends."""
    refuse_empty({"--output": output, "--html": html})
    document = document_of(app, settings)
    if html:
        _write(Path(html), page_of(document))
    if output:
        _write(Path(output), encoded(document))
    elif not html:
        say(encoded(document).removesuffix("\n"))
    return DONE


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file}: cannot be written: {problem_of(error)}", FAILED) from error
    click.echo(f"{file} is written", err=True)
