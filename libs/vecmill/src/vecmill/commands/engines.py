"""The command `vecmill engines`, which lists the installed engines with their devices and precisions."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from vecmill.errors import SetupError
from vecmill.values.messages import pip_command

if TYPE_CHECKING:
    from vecmill.engines import EngineEntry

_HEADINGS = ("engine", "installed", "device", "precisions")


@click.command()
def engines() -> None:
    """List the engines, whether they are installed, and their devices and precisions on this machine."""

    for line in list_engines():
        click.echo(line)


def list_engines() -> list[str]:
    """Return the lines of a table: one for each device of an engine, or one that names the missing packages.

    Imports the installed engines only.
    """
    from vecmill.engines import ENGINES, list_engine_names

    return list(
        _lay_out([_HEADINGS, *(row for name in list_engine_names() for row in _rows(name, ENGINES[name]))])
    )


def _rows(name: str, entry: "EngineEntry") -> Iterator[tuple[str, ...]]:
    from vecmill.engines import find_engine

    if not entry.is_installed:
        yield name, "no", pip_command("install", entry.package)
        return
    try:
        devices = find_engine(name).find_capabilities().devices
    except SetupError as error:
        yield name, "broken", _one_line(error.message)
        return
    except Exception as error:  # of a runtime that looks for devices
        yield name, "broken", _one_line(f"{type(error).__name__}: {error}")
        return
    if not devices:
        yield name, "yes", "no device found"
    for device, precisions in devices.items():
        yield name, "yes", device, ", ".join(precisions) or "-"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _lay_out(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Return the rows with aligned columns; rows with fewer cells do not count for the widths."""
    whole = [row for row in rows if len(row) == len(_HEADINGS)]
    widths = [max(len(row[column]) for row in whole) for column in range(len(_HEADINGS))]
    widths[0] = max(len(row[0]) for row in rows)
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        yield "  ".join(cells).rstrip()
