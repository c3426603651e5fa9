"""The command `vecmill describe`, which says what becomes of a model before its weights are downloaded."""

import json
import sys

import click

from vecmill.commands.describe.page import describe_outcome, lay_out
from vecmill.commands.options import TRUST, show_downloads
from vecmill.config import MillConfig
from vecmill.models.outline import outline_model
from vecmill.serving_plan.outcome import OutcomeKind, foresee_outcome

REFUSED = 2
UNKNOWN = 1


@click.command()
@click.argument("model", required=False)
@TRUST
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def describe(model: str | None, trusts_code: bool, as_json: bool) -> None:
    """Say what becomes of MODEL when it is served, without its weights.

    MODEL is a model directory, or owner/name or owner/name@revision on a hub, of which all files but the
    weights are downloaded. Default: the embedded all-MiniLM-L6-v2. Exits with 0 if MODEL would be served,
    with 2 if it would be refused, and with 1 if only the weights can tell.
    """
    with show_downloads(), outline_model(model, trusts_code=trusts_code) as outline:
        outcome = foresee_outcome(outline, MillConfig())
        page = describe_outcome(outline, outcome)
    click.echo(json.dumps(page, indent=2) if as_json else "\n".join(lay_out(page)))
    if not outcome.is_served:
        click.echo(f"Error: {outcome.reason}", err=True)
        sys.exit(REFUSED if outcome.kind is OutcomeKind.REFUSED else UNKNOWN)
