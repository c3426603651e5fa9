"""The files and the messages of one target: made from templates, and written into an output directory."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from vecmill.errors import InvalidConfig
from vecmill.values.json_text import decode_json

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
    import jinja2

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


# What the rules say for the address of a server: the one that an alert is about, or one that answers.
_SCRAPED = ("http://{{ $labels.instance }}", 'http://{{ . | first | label "instance" }}')


def read_rules(url: str) -> str:
    """Return the alert rules, whose links lead to the pages of the server at `url`."""
    rules = read_data("monitoring", "vecmill-alerts.yaml")
    for address in _SCRAPED:
        rules = rules.replace(address, url)
    return rules


# Keeps the name of the server and the digests of all its files. A later call replaces or removes only files
# that still have these digests.
DIGESTS_FILE = ".vecmill-rendered.json"


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The paths that `write_files` wrote, left as they were, and removed, relative to the directory."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]


def write_files(
    folder: Path, files: Mapping[str, str], *, server: str, own_changes: str, force: bool = False
) -> WrittenFiles:
    """Write the files of `server`, and remove those of an earlier call that are no longer needed.

    What a person changed there is not lost: raises `InvalidConfig` if a file would be replaced that a person
    has changed or that belongs to another server, except with `force`. Raises it also if the directory cannot
    be written. `own_changes` says where changes of persons belong.
    """
    owner, known = _read_digests(folder)
    if owner not in (None, server) and not force:
        raise InvalidConfig(
            f"{folder} has the files of {owner}, which may be running with them. Nothing was written. Name "
            f"another directory for {server} with --output. --force replaces the files."
        )
    contents = {name: text.encode("utf-8") for name, text in files.items()}
    try:
        found = {name: _digest_of(folder / name) for name in {**known, **contents}}
        changed = [name for name in contents if found[name] != _digest(contents[name])]
        foreign = [name for name in changed if found[name] not in (None, known.get(name))]
        if foreign and not force:
            raise InvalidConfig(
                f"{', '.join(str(folder / name) for name in foreign)}: changed by hand, or not written by "
                f"this command. Nothing was written. {own_changes} --force replaces the files."
            )
        for name in changed:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents[name])
        left = [name for name in known if name not in contents and found[name] == known[name]]
        for name in left:
            (folder / name).unlink()
        digests = {name: _digest(content) for name, content in sorted(contents.items())}
        record = json.dumps({"server": server, "digests": digests}, indent=1)
        (folder / DIGESTS_FILE).write_text(f"{record}\n", encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"{error.filename or folder} cannot be written: {error.strerror}.") from error
    kept = tuple(name for name in contents if name not in changed)
    return WrittenFiles(tuple(changed), kept, tuple(left))


def _read_digests(folder: Path) -> tuple[str | None, dict[str, str]]:
    """Return the server whose files are in `folder`, `None` if there are none, and their digests."""
    try:
        found = decode_json((folder / DIGESTS_FILE).read_text(encoding="utf-8"))
        return str(found["server"]), dict(found["digests"])
    except (OSError, ValueError, LookupError, TypeError):
        return None, {}


def _digest_of(path: Path) -> str | None:
    return _digest(path.read_bytes()) if path.exists() else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
