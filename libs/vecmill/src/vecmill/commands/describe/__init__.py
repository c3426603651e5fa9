"""The command `vecmill describe`, which says what becomes of a model before its weights are downloaded."""

import json
import sys

import click

from vecmill.commands.options import TRUST
from vecmill.values.download_log import show_downloads

REFUSED = 2
UNKNOWN = 1


@click.command()
@click.argument("model", required=False)
@TRUST
@click.option("--space", "names_space", is_flag=True, help="Add the space of the vectors and its parts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def describe(model: str | None, trusts_code: bool, names_space: bool, as_json: bool) -> None:
    """Say what becomes of MODEL when it is served, without its weights.

    MODEL is a model directory, or owner/name or owner/name@revision on a hub, of which all files but the
    weights are downloaded. Default: the embedded all-MiniLM-L6-v2. Exits with 0 if MODEL would be served,
    with 2 if it would be refused, and with 1 if only the weights can tell.

    With --space the weights must be there. Their values are read once; later calls recall what was found.
    """
    from vecmill.commands.describe.page import describe_outcome, describe_space_of, lay_out
    from vecmill.config import MillConfig
    from vecmill.models.outline import outline_model
    from vecmill.serving_plan.outcome import OutcomeKind, foresee_outcome

    with show_downloads(), outline_model(model, trusts_code=trusts_code) as outline:
        outcome = foresee_outcome(outline, MillConfig())
        page = describe_outcome(outline, outcome)
        lacks_weights = names_space and outcome.is_served and bool(outline.missing)
        if names_space and outcome.is_served and not lacks_weights:
            page |= describe_space_of(outcome)
    click.echo(json.dumps(page, indent=2) if as_json else "\n".join(lay_out(page)))
    if not outcome.is_served:
        click.echo(f"Error: {outcome.reason}", err=True)
        sys.exit(REFUSED if outcome.kind is OutcomeKind.REFUSED else UNKNOWN)
    if lacks_weights:
        click.echo(
            "Error: The space is made of the values of the weights, which have not been downloaded: "
            f"vecmill pull {model}",
            err=True,
        )
        sys.exit(UNKNOWN)
