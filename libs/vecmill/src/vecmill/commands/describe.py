"""The command `vecmill describe`, which prints the settings of a model directory."""

import click

from vecmill.commands.download_log import show_downloads
from vecmill.commands.options import TRUST
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model


@click.command()
@click.argument("model", required=False)
@TRUST
def describe(model: str | None, trusts_code: bool) -> None:
    """Print the settings of MODEL without reading its weights.

    MODEL is a model directory, or a model on a hub. Default: the embedded all-MiniLM-L6-v2.
    """

    with show_downloads():
        found = describe_model(locate_model(model, trusts_code=trusts_code))
    lines = {
        "name": found.name,
        "directory": found.directory,
        "task": found.task,
        "architecture": found.architecture,
        "dimensions": found.dim,
        "longest input": f"{found.max_tokens} tokens",
        "vocabulary": f"{found.vocab_size} tokens",
        "stages": ", ".join(type(stage).__name__ for stage in found.stages) or "none",
        "normalised": "yes" if found.normalize else "no",
        "prompts": ", ".join(sorted(found.prompts)) or "none",
    }
    for label, value in lines.items():
        click.echo(f"{label:<15}{value}")
