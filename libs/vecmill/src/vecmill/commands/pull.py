"""The command `vecmill pull`, which downloads a model."""

import sys

import click

from vecmill.values.download_log import show_downloads

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
    from vecmill.directory_layouts import describe_model
    from vecmill.models import locate_model

    try:
        with show_downloads():
            location = locate_model(model, exported=exported, trusts_code=trusts_code)
    except KeyboardInterrupt:
        click.echo("Interrupted. The same command continues the download.", err=True)
        sys.exit(INTERRUPTED)
    task = describe_model(location).task
    click.echo(f"{location.name} is in {location.directory}, a model for {task}.")
