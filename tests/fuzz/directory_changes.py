"""Changes of one value or one file of a model directory, as a stranger could make them."""

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

Keys = tuple[str | int, ...]

DEEP: Any = None
for _ in range(60):
    DEEP = [DEEP]
VALUES: tuple[Any, ...] = (
    None, True, False, "", "x", "x" * 100_000, "\ud800", "\x00", "../..", [], ["x"], [[None]], {},
    {"x": {"y": []}}, DEEP, 0, 1, -1, 7, 512.0, 0.5, -0.5, 1e-300, 1e308, float("nan"), float("inf"),
    2**31, 2**63, 10**12, -(10**12), 10**400, [10**12, -1], {"0": 10**12},
)  # fmt: skip

# Files that a library reads whole, so its message names no key.
BY_LIBRARY = ("tokenizer.json", "model.safetensors", "vocab.txt", "merges.txt")
# Keys that say which other keys or files are read, so the message names those.
CHOOSING = frozenset({"model_type", "architectures", "path", "type", "tokenizer_class", "weight_map"})

HUGE_BYTES = 10 * 2**30


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the file `name`: of the value at `keys`, or, without keys, of the whole file by `how`."""

    name: str
    keys: Keys = ()
    value: Any = None
    how: str = ""

    def __str__(self) -> str:
        shown = ascii(self.value)
        return f"{self.name}: {'.'.join(map(str, self.keys)) or self.how} = {shown[:80]}"

    def apply(self, directory: Path) -> None:
        """Change the file, which must not be a link to another directory's."""
        path = directory / self.name
        if self.keys:
            document = json.loads(path.read_text())
            _replace(document, self.keys, self.value)
            path.write_text(json.dumps(document))
            return
        BREAKS[self.how](path)

    def is_named_in(self, message: str) -> bool:
        """Return whether an error names what was changed."""
        file = Path(self.name).name
        if not self.keys or file in BY_LIBRARY:
            return file in message
        if CHOOSING & set(map(str, self.keys)):
            return True  # the message names what was not found where the value points
        is_part = isinstance(self.value, dict) and str(self.keys[-1]).endswith(("_config", "_config_dict"))
        if (self.value in (None, {}) or is_part) and file in message:
            return True  # a default, or the defaults of all keys, which may not fit the other values
        if "position_embedding_type" in self.keys and "auto_map" in message:
            return True  # without "alibi", the model's own code computes another architecture
        if (
            str(self.keys[-1]).endswith("_token")
            and isinstance(self.value, str)
            and f"'{self.value}'" in message
        ):
            return True  # the token itself
        if str(self.keys[-1]).startswith("pooling_mode_") and "pooling_mode" in message:
            return True  # a flag that is not set is one of many that are not
        named = [str(key) for key in self.keys if isinstance(key, str)]
        return any(key in message for key in (named[-2:] if named else [Path(self.name).name]))


def _make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _flip_byte(path: Path) -> None:
    content = path.read_bytes()
    position = 7 * len(content) // 13
    path.write_bytes(content[:position] + bytes([content[position] ^ 255]) + content[position + 1 :])


def _randomize(path: Path) -> None:
    size = path.stat().st_size
    path.write_bytes(random.Random(size).randbytes(max(8, size)))


BREAKS: Mapping[str, Callable[[Path], object]] = MappingProxyType(
    {
        "fifo": _make_fifo,
        "folder": _make_folder,
        "huge": lambda path: os.truncate(path, HUGE_BYTES),
        "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
        "empty": lambda path: path.write_bytes(b""),
        "random": _randomize,
        "many": lambda path: path.write_bytes(b"[" + b"{}," * 5_000_000 + b"{}]"),
        "deep": lambda path: path.write_bytes(b"[" * 100_000 + b"]" * 100_000),
        "list": lambda path: path.write_bytes(b"[]"),
        "flipped": _flip_byte,
    }
)


def list_changes(directory: Path) -> Iterator[Change]:
    """Yield every change of a directory."""
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        name = str(path.relative_to(directory))
        if name.endswith((".md", ".py")):
            continue
        yield from (Change(name, how=how) for how in BREAKS)
        if path.suffix in (".json", ".metadata"):
            for keys in _list_keys(json.loads(path.read_text()), ()):
                yield from (Change(name, keys, value) for value in VALUES)


def _list_keys(document: Any, above: Keys) -> Iterator[Keys]:
    if above:
        yield above
    if isinstance(document, dict):
        # A vocabulary has thousands of entries that are read alike.
        for key in list(document) if len(document) < 100 else list(document)[:3]:
            yield from _list_keys(document[key], (*above, key))
    elif isinstance(document, list):
        for index in sorted({0, len(document) - 1}) if document else ():
            yield from _list_keys(document[index], (*above, index))


def _replace(document: Any, keys: Keys, value: Any) -> None:
    for key in keys[:-1]:
        document = document[key]
    document[keys[-1]] = value
