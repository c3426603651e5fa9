"""The files and the messages of one target, and the templates that the files are made from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import jinja2

_PACKAGE = "vecmill_server.deploy"


@dataclass(frozen=True, slots=True)
class Rendering:
    """The text of each file by its path in the output directory.

    `commands` are what to run next. `notes` are sentences about what the files need. `own_changes` says where
    changes of the files belong.
    """

    files: Mapping[str, str]
    commands: tuple[str, ...]
    own_changes: str
    notes: tuple[str, ...] = field(default=())


def fill_template(folder: str, name: str, /, **values: Any) -> str:
    """Return the template `name` of a data folder with these values. The filter `quoted` writes JSON."""
    environment = jinja2.Environment(
        autoescape=False,  # the files are not HTML
        keep_trailing_newline=True,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["quoted"] = quote
    return environment.from_string(read_data(folder, f"{name}.jinja")).render(values)


def quote(value: object) -> str:
    """Return a string, or the text of another value, in double quotes, as JSON and YAML read it."""
    return json.dumps(str(value), ensure_ascii=False)


def read_data(folder: str, name: str) -> str:
    """Return the text of a file in a data folder of this package."""
    return files(_PACKAGE).joinpath(folder, name).read_text(encoding="utf-8")


def list_data(folder: str) -> list[str]:
    """Return the paths of all files in a data folder of this package, relative to the folder, sorted."""
    found = []
    waiting = [("", files(_PACKAGE).joinpath(folder))]
    while waiting:
        place, directory = waiting.pop()
        for entry in directory.iterdir():
            if entry.is_dir():
                waiting.append((f"{place}{entry.name}/", entry))
            else:
                found.append(f"{place}{entry.name}")
    return sorted(found)
