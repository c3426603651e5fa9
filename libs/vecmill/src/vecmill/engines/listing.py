"""`vecmill engines`: what is installed, and what it finds on this machine."""

from collections.abc import Iterator, Sequence

from vecmill.engines import ENGINES, EngineEntry, find_engine
from vecmill.errors import SetupError

_HEADINGS = ("engine", "installed", "device", "precisions")


def list_engines() -> list[str]:
    """The lines of a table: a line for each device of each engine, or one that says what is missing.

    Imports the engines that are installed, and no others.
    """
    return list(
        _lay_out([_HEADINGS, *(row for name, entry in ENGINES.items() for row in _rows(name, entry))])
    )


def _rows(name: str, entry: EngineEntry) -> Iterator[tuple[str, ...]]:
    if not entry.is_installed:
        yield name, "no", f"pip install 'vecmill[{entry.extra}]'"
        return
    try:
        devices = find_engine(name).survey().devices
    except SetupError as error:
        yield name, "broken", _one_line(error.message)
        return
    except Exception as error:  # whatever a runtime raises when it looks for devices
        yield name, "broken", _one_line(f"{type(error).__name__}: {error}")
        return
    if not devices:
        yield name, "yes", "no device found"
    for device, precisions in devices.items():
        yield name, "yes", device, ", ".join(precisions) or "-"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _lay_out(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Columns as wide as their widest cells; a sentence instead of a device and precisions may run on."""
    whole = [row for row in rows if len(row) == len(_HEADINGS)]
    widths = [max(len(row[column]) for row in whole) for column in range(len(_HEADINGS))]
    widths[0] = max(len(row[0]) for row in rows)
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        yield "  ".join(cells).rstrip()
