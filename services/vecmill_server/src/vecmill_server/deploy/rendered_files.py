"""Writes rendered files into an output directory, without losing what a person changed there.

The file `.vecmill-rendered.json` keeps the name of the server and the digests of all its files. A later call
replaces or removes only files that still have these digests.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vecmill.errors import InvalidConfig

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

    Raises `InvalidConfig` if a file would be replaced that a person has changed or that belongs to another
    server, except with `force`, and if the directory cannot be written. `own_changes` says where changes of
    persons belong.
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
        found = json.loads((folder / DIGESTS_FILE).read_text(encoding="utf-8"))
        return str(found["server"]), dict(found["digests"])
    except (OSError, ValueError, LookupError, TypeError):
        return None, {}


def _digest_of(path: Path) -> str | None:
    return _digest(path.read_bytes()) if path.exists() else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
