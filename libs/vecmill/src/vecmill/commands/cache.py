"""The command group `vecmill cache`, which lists and removes the prepared models in the cache."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vecmill.commands.options import CACHE_DIR

if TYPE_CHECKING:
    from vecmill.engines.kept_models import KeptModel

_DAY_S = 86_400.0
_MB = 10**6


@click.group()
def cache() -> None:
    """List the prepared models in the cache, or remove some of them.

    A model is prepared at its first start, which makes a copy of its weights for this processor. What is
    removed is prepared again when it is needed. Downloads are not here, but in the cache of the hub.
    """


@cache.command(name="list")
@CACHE_DIR
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_models(cache_dir: Path | None, as_json: bool) -> None:
    """List the prepared models: size, last use, whether a program has them open, and model."""
    import json

    from vecmill.config import default_cache_dir
    from vecmill.engines.kept_models import list_kept, rest_bytes

    place = cache_dir or default_cache_dir()
    kept = list_kept(place)
    if as_json:
        for each in kept:
            facts = {"name": each.name, "variant": each.variant, "bytes": each.size_bytes}
            used = {"used_at": each.used_at, "is_open": each.is_open, "folder": str(each.folder)}
            click.echo(json.dumps({**facts, **used}))
        return
    for line in _list_lines(kept, time.time()):
        click.echo(line)
    beside = rest_bytes(place)
    total = sum(each.size_bytes for each in kept) + beside
    click.echo(f"{total / _MB:.0f} MB in {place}, {beside / _MB:.1f} MB of them digests, samples and checks")


@cache.command()
@CACHE_DIR
@click.option("--unused-for", "unused_days", type=click.FloatRange(min=0), help="Days without use.")
@click.option("--keep-mb", type=click.FloatRange(min=0), help="What may stay; the longest unused goes first.")
@click.option("--all", "is_all", is_flag=True, help="Remove everything, also digests, samples and checks.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(
    cache_dir: Path | None, unused_days: float | None, keep_mb: float | None, is_all: bool, yes: bool
) -> None:
    """Remove prepared models that no program has open: those unused for long, the oldest, or all.

    Asks before it removes anything. It is safe beside servers that run: what they have open stays.
    """
    from vecmill.config import default_cache_dir
    from vecmill.engines.kept_models import choose_kept, list_kept, remove_kept, remove_rest

    if is_all == (unused_days is not None or keep_mb is not None):
        raise click.UsageError("Say what to remove: --unused-for DAYS, --keep-mb MB, or --all.")
    place, now = cache_dir or default_cache_dir(), time.time()
    kept = list_kept(place)
    unused_s = None if unused_days is None else unused_days * _DAY_S
    chosen = choose_kept(
        kept, now=now, unused_s=unused_s, most_bytes=None if keep_mb is None else int(keep_mb * _MB)
    )
    for line in _list_lines(chosen, now):
        click.echo(line)
    is_open = sum(each.is_open for each in kept)
    if is_open:
        click.echo(f"{is_open} prepared models stay, because a program has them open.")
    if not chosen and not is_all:
        click.echo(f"There is nothing to remove in {place}.")
        return
    size_mb = sum(each.size_bytes for each in chosen) / _MB
    what = f"{len(chosen)} prepared models ({size_mb:.0f} MB)"
    if not yes:
        click.confirm(f"Remove {what} from {place}?", abort=True)
    removed = [each for each in chosen if remove_kept(each)]
    if is_all and not is_open:
        remove_rest(place)
    click.echo(f"Removed {len(removed)} of {what}.")


def _list_lines(kept: "Sequence[KeptModel]", now: float) -> list[str]:
    rows = [
        (
            f"{each.size_bytes / _MB:.0f} MB",
            "open now" if each.is_open else _say_age(now - each.used_at),
            each.name,
            each.variant,
        )
        for each in kept
    ]
    if not rows:
        return []
    table = [("size", "last use", "model", "prepared for"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    return [
        f"{size:>{widths[0]}}  {used:<{widths[1]}}  {name:<{widths[2]}}  {variant}"
        for size, used, name, variant in table
    ]


def _say_age(seconds: float) -> str:
    if seconds < 3_600:
        return "in this hour"
    if seconds < _DAY_S:
        return f"{seconds / 3_600:.0f} h ago"
    return f"{seconds / _DAY_S:.0f} d ago"
