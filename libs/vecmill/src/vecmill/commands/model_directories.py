"""The commands `vecmill pull`, which downloads a model, and `vecmill describe`, which prints its settings."""

import sys

import click

from vecmill.commands.options import TRUST, show_downloads
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model

INTERRUPTED = 130


@click.command()
@click.argument("model")
@click.option("--onnx", "exported", is_flag=True, help="Also download the ONNX graph of the repository.")
@click.option(
    "--trust-remote-code",
    "trusts_code",
    is_flag=True,
    help="Also download the Python code of the repository, which --trust-remote-code of other commands runs.",
)
def pull(model: str, exported: bool, trusts_code: bool) -> None:
    """Download MODEL from a hub, so that it can be served offline.

    MODEL is owner/name or owner/name@revision. An interrupted download continues where it stopped. Mirrors,
    proxies, tokens and the cache are set as for the hub's own client: HF_ENDPOINT, HF_TOKEN, HF_HOME.
    """
    try:
        with show_downloads():
            location = locate_model(model, exported=exported, trusts_code=trusts_code)
    except KeyboardInterrupt:
        click.echo("Interrupted. The same command continues the download.", err=True)
        sys.exit(INTERRUPTED)
    task = describe_model(location).task
    click.echo(f"{location.name} is in {location.directory}, a model for {task}.")


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
