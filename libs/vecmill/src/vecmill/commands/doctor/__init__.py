"""The command `vecmill doctor`, which prints what a bug report needs."""

from pathlib import Path

import click

from vecmill.commands.options import CACHE_DIR


@click.command()
@CACHE_DIR
def doctor(cache_dir: Path | None) -> None:
    """Print the versions, machine, limits, engines and caches that a bug report needs.

    No secret is printed: of environment variables only the names are.
    """
    from vecmill.commands.doctor.bug_report import write_bug_report
    from vecmill.config import default_cache_dir

    for line in write_bug_report(cache_dir or default_cache_dir()):
        click.echo(line)
