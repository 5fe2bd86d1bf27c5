"""`rocketapp docs`: what an app receives and sends, as an AsyncAPI document and as a page for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from rocketapp.cli.failure import DONE, FAILED, CommandError, problem_of
from rocketapp.cli.options import app_command, app_named, refuse_empty
from rocketapp.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketapp.app.app import RocketApp
    from rocketapp.app.settings import Settings

Format = Literal["json", "yaml"]
MOST_LINES = 40
"""Lines of a difference that are shown."""
_YAML = (".yaml", ".yml")


@click.command(
    "docs",
    short_help="Describe APP as an AsyncAPI document.",
    epilog="Example: rocketapp docs app:app --output asyncapi.json --html asyncapi.html",
)
@click.option(
    "--format", "form", type=click.Choice(["json", "yaml"]), help="Default: what the file's name says, else json."
)
@click.option("-o", "--output", metavar="FILE", help="Write the document there; default: stdout.")
@click.option("--html", metavar="FILE", help="Write a page for people there.")
@click.option("--check", metavar="FILE", help="Write nothing; end with 1 when this file is another document.")
@app_command
def command(
    *,
    app: RocketApp,
    settings: Settings,
    form: Format | None,
    output: str | None,
    html: str | None,
    check: str | None,
) -> int:
    """Describe what APP receives and sends: an AsyncAPI 3 document, and a page."""
    refuse_empty({"--output": output, "--html": html, "--check": check})
    if check and (output or html):
        raise CommandError("--check writes nothing: leave out --output and --html")
    from rocketapp.asyncapi.document import document_of, encoded

    document = document_of(app, settings)
    if check:
        return _compare(document, Path(check), _form_of(check, form))
    if html:
        from rocketapp.asyncapi.page import page_of

        _write(Path(html), page_of(document))
    if output:
        _write(Path(output), encoded(document, _form_of(output, form)))
    elif not html:
        say(encoded(document, _form_of("", form)).removesuffix("\n"))
    return DONE


def _form_of(file: str, given: Format | None) -> Format:
    """What is asked for, or what the file's name says. Raises CommandError for YAML that cannot be written here."""
    form: Format = given or ("yaml" if file.endswith(_YAML) else "json")
    if form == "yaml":
        from rocketapp.cli.source import require

        require("YAML", "yaml", "yaml")
    return form


def _write(file: Path, text: str) -> None:
    """The file holds the whole text or, when that cannot be written, what it held before."""
    import os
    import shutil

    target = file.resolve()
    is_device = target.exists() and not target.is_file()
    beside = target if is_device else target.with_name(f".{target.name}.{os.getpid()}")
    try:
        try:
            beside.write_text(text, encoding="utf-8")
            if not is_device:
                if target.exists():
                    shutil.copymode(target, beside)
                beside.replace(target)
        finally:
            if not is_device:
                beside.unlink(missing_ok=True)
    except OSError as error:
        raise CommandError(f"{file}: cannot be written: {problem_of(error)}", FAILED) from error
    click.echo(f"{file} is written", err=True)


def _compare(document: Mapping[str, Any], file: Path, form: Format) -> int:
    """The exit code: 0 for the same document, however it is laid out."""
    from rocketapp.asyncapi.document import decoded, difference

    app = app_named()
    mend = f"rocketapp docs {app} --output {file}"
    try:
        committed = decoded(file.read_text(encoding="utf-8"), form)
    except OSError as error:
        raise CommandError(f"{file}: {problem_of(error)}: make it with {mend}") from error
    except ValueError as error:
        raise CommandError(f"{file}: is not {form.upper()} ({error}): make it with {mend}") from error
    lines = difference(committed, document, (str(file), app), most=MOST_LINES)
    for line in lines:
        say(line)
    if not lines:
        return DONE
    raise CommandError(f"{file}: {app} is described otherwise now: write it again with {mend}", FAILED)
