"""Recorded references: what libraries made and answered for the models of the tests.

How it works. transformers, sentence-transformers and torch take seconds to import and most of the time of a
comparison, and give the same for the same model each time. So a test asks through this module: `answer` for a
library's answer to a question, `make_directory` for a directory that a library writes. Both are recorded in
`tests/references`, one zip file for each folder of tests, and a run that finds the record calls no library.

A record is found by its content: the key is a digest of the question, and whoever asks puts everything into
the question on which the answer depends, `digest_directory` of the model above all. So no record can be
stale: a changed model or text is another question, which has no record. What the key does not see, the
versions of the libraries and the code that calls them, is compared: `tests/references/versions.json` with the
pinned versions by `make test`, and each record with a new answer by `make test-all`.

Weights are not recorded but drawn, by numpy and from seeds, by name and shape. A directory that a library has
just made gets the drawn weights too, before anything is loaded from it.

The environment variable REFERENCES says what happens:

- `read`, the default: a question without a record is an error.
- `record`: a question without a record is answered by the library, and recorded (`make references`).
- `compute`: the library answers each question, and a record that differs is an error (`make test-all`).

What a library makes in another way each time, such as a trained tokenizer, is not `repeatable`: a record is
used in every mode.
"""

import hashlib
import io
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from vecmill.values.embeddings import SparseEmbedding

TESTS = Path(__file__).parents[1]
FOLDER = TESTS / "references"
VERSIONS = FOLDER / "versions.json"
# Where the processes of a run leave what they record, for `collect_records`.
LEFT = TESTS.parent / "build" / "references"
VARIABLE = "REFERENCES"
LIBRARIES = ("pillow", "safetensors", "sentence-transformers", "tokenizers", "torch", "transformers")
# How much an answer may differ from its record: another processor rounds otherwise.
LARGEST_DIFFERENCE = 2e-5
DRAWN = ("F32", "F16")
# Of uniform numbers with a standard deviation of 1.
WIDEST = 3**0.5

Array = npt.NDArray[Any]
Draw = Callable[[str, tuple[int, ...]], npt.NDArray[np.float32]]


class Mode(StrEnum):
    """What happens to a question."""

    READ = "read"
    RECORD = "record"
    COMPUTE = "compute"


class MissingReference(AssertionError):
    """A question has no record."""


class ChangedReference(AssertionError):
    """A library answers otherwise than recorded."""


def answer(question: object, compute: Callable[[], Any], *, repeatable: bool = True) -> Any:
    """Return the recorded answer to `question`, or that of `compute`.

    A question is made of what JSON has, and of bytes and arrays. An answer may have arrays and sparse
    embeddings beside. Raises `MissingReference`, `ChangedReference`.
    """
    return _records().answer(_digest(question), lambda: _pack(compute()), _unpack, repeatable=repeatable)


def make_directory(
    folder: Path, recipe: object, make: Callable[[Path], object], draw: Draw, *, repeatable: bool = True
) -> Path:
    """Fill `folder` as `make(folder)` does, and return it; `recipe` is the question.

    All tensors of floats in its safetensors files get what `draw` gives for their names and shapes. A name
    begins with the folder of its file, if that is another than `folder`.
    """

    is_made = False

    def compute() -> Packed:
        nonlocal is_made
        # By itself, because `folder` may have files already.
        with tempfile.TemporaryDirectory() as place:
            made = Path(place) / folder.name
            make(made)
            packed = _pack_directory(made)
            shutil.copytree(made, folder, dirs_exist_ok=True)
        is_made = True
        return packed

    key = _digest(["directory", recipe])
    packed = _records().answer(key, compute, _same, repeatable=repeatable)
    if not is_made:
        _write_files(packed, folder)
    _write_tensors(packed, folder, draw)
    return folder


def draw_weights(seed: int, jitter: float, spreads: Mapping[str, float] | None = None) -> Draw:
    """Return a function that draws tensors far from their usual start, so that every part of a model matters.

    The weights of norms and scales of layers are around 1, all else around 0. `spreads` are those of other
    tensors than `jitter`.
    """

    def draw(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        # Uniform numbers are the same on every system; normal ones come from its logarithm.
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        tensor = name.rpartition("/")[2]
        module = tensor.removesuffix(".weight").rpartition(".")[2].lower()
        is_scale = ("norm" in module and name.endswith("weight")) or name.endswith("layer_scalar")
        around = 1.0 if is_scale else 0.0
        spread = (spreads or {}).get(tensor, jitter)
        numbers = WIDEST * (2.0 * random.random(shape) - 1.0)
        return (around + spread * numbers).astype(np.float32)

    return draw


def copy_weights(sources: Mapping[str, Path], draw: Draw) -> Draw:
    """Return a function that takes the tensors of copied models from their sources, and draws all others.

    `sources` are the folders of models by the names of their folders in the directory that is made, which is
    "" for the directory itself.
    """
    found = {
        f"{name}/{tensor}".removeprefix("/"): value
        for name, source in sources.items()
        for tensor, value in safetensors.numpy.load_file(source / "model.safetensors").items()
    }
    return lambda name, shape: found[name] if name in found else draw(name, shape)


def digest_directory(folder: Path) -> str:
    """Return a digest of the names and bytes of all files below `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return _digest([[str(path.relative_to(folder)), path.read_bytes()] for path in files])


def pinned_versions() -> dict[str, str]:
    """Return the installed versions of the libraries whose answers are recorded."""
    return {name: version(name).partition("+")[0] for name in LIBRARIES}


class Reference:
    """A model of a library, which is loaded when it is first asked for something that is not recorded.

    `load` loads it from files with the digest `digest`. Attributes are the model's own.
    """

    def __init__(self, load: Callable[[], Any], digest: str) -> None:
        self._load, self._digest = load, digest
        # Before anything changes the files.
        self._model = load() if _records().calls_libraries else None

    def ask(self, question: object, compute: Callable[[Any], Any]) -> Any:
        """Return the recorded answer to `question`, or what `compute` makes of the model."""
        return answer([self._digest, question], lambda: compute(self.model))

    def part(self, name: str, take: Callable[[Any], Any]) -> "Reference":
        """Return what `take` makes of the model, as a reference of its own."""
        return Reference(lambda: take(self.model), f"{self._digest} {name}")

    @classmethod
    def of_many(cls, references: Sequence["Reference"], combine: Callable[[list[Any]], Any]) -> "Reference":
        """Return what `combine` makes of several models, as one."""
        digest = " ".join(one._digest for one in references)
        return cls(lambda: combine([one.model for one in references]), digest)

    @property
    def model(self) -> Any:
        if self._model is None:
            self._model = self._load()
        return self._model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)


# ---------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class Packed:
    """A value as JSON and the arrays that it names."""

    document: Any
    arrays: Mapping[str, Array] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(self.document).encode(), np.uint8)
        np.savez(buffer, allow_pickle=False, document=text, **self.arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Packed":
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        return cls(json.loads(arrays.pop("document").tobytes()), arrays)

    def difference(self, other: "Packed") -> float:
        """Return the largest difference of numbers; infinity if anything else differs."""
        if self.arrays.keys() != other.arrays.keys():
            return float("inf")
        apart = (_difference(array, other.arrays[name]) for name, array in self.arrays.items())
        return max((_document_difference(self.document, other.document), *apart))


def _document_difference(one: Any, other: Any) -> float:
    if isinstance(one, float) and isinstance(other, float):
        return _difference(np.asarray(one), np.asarray(other))
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return max((_document_difference(value, other[key]) for key, value in one.items()), default=0.0)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return max(map(_document_difference, one, other), default=0.0)
    return 0.0 if one == other else float("inf")


def _difference(one: Array, other: Array) -> float:
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if not np.issubdtype(one.dtype, np.floating):
        return 0.0 if np.array_equal(one, other) else float("inf")
    # Relative to large numbers, absolute for small ones. Infinities are equal to each other.
    with np.errstate(invalid="ignore"):
        apart = np.where(one == other, 0.0, np.abs(one - other) / np.maximum(1.0, np.abs(other)))
    apart = np.where(np.isnan(one) & np.isnan(other), 0.0, apart)
    return float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0))


class Records:
    """The records of all folders, and those that this process adds."""

    def __init__(self, folder: Path, mode: Mode, left: Path) -> None:
        self._folder, self._mode, self._left = folder, mode, left
        self._places = dict(_index(folder))
        self._files: dict[Path, zipfile.ZipFile] = {}  # open, as each opening reads all names
        self._added: set[str] = set()

    def answer(
        self,
        key: str,
        compute: Callable[[], Packed],
        unpack: Callable[[Packed], Any],
        *,
        repeatable: bool = True,
    ) -> Any:
        """Return the answer of `key`, by the mode."""
        recorded = self._read(key)
        if recorded is None and self._mode is Mode.READ:
            raise MissingReference(
                f"no reference is recorded for this model and question ({key}).\n"
                f"Record it: make references ARGS={_test_file() or 'tests'}\n"
                f"or compute it, as tests with the mark `full` need: {VARIABLE}={Mode.COMPUTE}"
            )
        if recorded is not None and (self._mode is not Mode.COMPUTE or not repeatable):
            self._note(key, None)
            return unpack(recorded)
        found = compute()
        if recorded is not None and (apart := found.difference(recorded)) > LARGEST_DIFFERENCE:
            raise ChangedReference(
                f"a library answers otherwise than recorded ({key}): by {apart:.1e}, more than "
                f"{LARGEST_DIFFERENCE:.0e}. If that is right, record again: make references-anew"
            )
        self._note(key, found if recorded is None else None)
        return unpack(found)

    @property
    def calls_libraries(self) -> bool:
        """Whether a model may be asked that is loaded already."""
        return self._mode is not Mode.READ

    def _read(self, key: str) -> Packed | None:
        if key not in self._places:
            return None
        path = self._places[key]
        if path not in self._files:
            self._files[path] = zipfile.ZipFile(path)
        return Packed.from_bytes(self._files[path].read(key))

    def _note(self, key: str, found: Packed | None) -> None:
        """Leave what was recorded, and which records are used."""
        if self._mode is not Mode.RECORD or key in self._added:
            return
        self._added.add(key)
        self._left.mkdir(parents=True, exist_ok=True)
        group = _test_file().split("/")[1].removesuffix(".py") if _test_file() else "shared"
        with zipfile.ZipFile(self._left / f"{os.getpid()}.zip", "a", zipfile.ZIP_DEFLATED) as left:
            left.writestr(f"{group}/{key}", b"" if found is None else found.to_bytes())


def collect_records(folder: Path = FOLDER, left: Path = LEFT, *, only_used: bool = False) -> int:
    """Put what the processes of a run have left into the records of `folder`, and return how many are new.

    `only_used` forgets all records that the run did not ask for.
    """
    kept = {key: (path.stem, _read_entry(path, key)) for key, path in _index(folder)}
    used: dict[str, tuple[str, bytes]] = {}
    for path in sorted(left.glob("*.zip")):
        with zipfile.ZipFile(path) as records:
            for name in records.namelist():
                group, _, key = name.partition("/")
                data = records.read(name)
                if data or key not in kept:
                    used.setdefault(key, (group, data))
    new = {key: entry for key, entry in used.items() if entry[1] and key not in kept}
    if only_used:
        names = _used_keys(left)
        kept = {key: entry for key, entry in kept.items() if key in names}
    _write(folder, {**kept, **new})
    VERSIONS.parent.mkdir(exist_ok=True)
    (folder / VERSIONS.name).write_text(json.dumps(pinned_versions(), indent=2) + "\n", "utf-8")
    return len(new)


def _used_keys(left: Path) -> set[str]:
    names: set[str] = set()
    for path in left.glob("*.zip"):
        with zipfile.ZipFile(path) as records:
            names |= {name.partition("/")[2] for name in records.namelist()}
    return names


def _write(folder: Path, entries: Mapping[str, tuple[str, bytes]]) -> None:
    for path in folder.glob("*.zip"):
        path.unlink()
    for group in sorted({group for group, _ in entries.values()}):
        with zipfile.ZipFile(folder / f"{group}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as records:
            for key in sorted(key for key, (found, _) in entries.items() if found == group):
                # Without the time of writing, so that equal records are equal files.
                info = zipfile.ZipInfo(key)
                info.compress_type = zipfile.ZIP_DEFLATED
                records.writestr(info, entries[key][1])


def _index(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.glob("*.zip")):
        with zipfile.ZipFile(path) as records:
            yield from ((name, path) for name in records.namelist())


def _read_entry(path: Path, key: str) -> bytes:
    with zipfile.ZipFile(path) as records:
        return records.read(key)


@cache
def _records() -> Records:
    return Records(FOLDER, Mode(os.environ.get(VARIABLE, Mode.READ)), LEFT)


def _test_file() -> str:
    """Return the path of the test that runs, or nothing."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]


# ---------------------------------------------------------------- questions and answers


def _digest(question: object) -> str:
    digest = hashlib.sha256()
    _feed(digest, question)
    return digest.hexdigest()[:32]


def _feed(digest: Any, value: object) -> None:
    """Add a value with its kind and length, so that no two values give the same bytes."""
    match value:
        case bytes():
            digest.update(b"b%d:" % len(value) + value)
        case np.ndarray():
            _feed(digest, [str(value.dtype), list(value.shape), np.ascontiguousarray(value).tobytes()])
        case Mapping():
            _feed(digest, ["{}", *([key, value[key]] for key in sorted(value, key=str))])
        case list() | tuple():
            digest.update(b"l%d:" % len(value))
            for one in value:
                _feed(digest, one)
        case None | bool() | int() | float() | str():
            text = json.dumps(value).encode()
            digest.update(b"j%d:" % len(text) + text)
        case _:
            raise TypeError(f"a question cannot have a {type(value).__name__}")


def _pack(value: Any) -> Packed:
    arrays: dict[str, Array] = {}

    def put(array: Array) -> str:
        name = f"array{len(arrays)}"
        arrays[name] = np.array(array)
        return name

    def walk(one: Any) -> Any:
        match one:
            case SparseEmbedding():
                return {"sparse": [put(one.columns), put(one.values)]}
            case np.ndarray() | np.generic():
                return {"array": put(np.asarray(one))}
            case list() | tuple():
                return {"list": [walk(item) for item in one]}
            case Mapping():
                return {"mapping": [[key, walk(item)] for key, item in one.items()]}
            case None | bool() | int() | float() | str():
                return {"plain": one}
            case _:
                raise TypeError(f"a {type(one).__name__} cannot be recorded: return arrays")

    return Packed(walk(value), arrays)


def _unpack(packed: Packed) -> Any:
    def walk(one: dict[str, Any]) -> Any:
        ((kind, content),) = one.items()
        match kind:
            case "sparse":
                return SparseEmbedding(*(packed.arrays[name] for name in content))
            case "array":
                return packed.arrays[content]
            case "list":
                return [walk(item) for item in content]
            case "mapping":
                return {key: walk(item) for key, item in content}
            case _:
                return content

    return walk(packed.document)


# ---------------------------------------------------------------- directories


def _pack_directory(folder: Path) -> Packed:
    """Record all files; of safetensors the names and shapes of what is drawn, and all other tensors whole.

    A file is a record of its own, because many models share a vocabulary. A model card is left out, since
    nothing reads it.
    """
    document: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    (folder / "README.md").unlink(missing_ok=True)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if path.suffix != ".safetensors":
            document[name] = _pack_file(path.read_bytes())
            continue
        with safetensors.safe_open(path, "numpy") as tensors:
            layout = []
            for tensor in tensors.keys():  # noqa: SIM118 (it has no other way)
                part = tensors.get_slice(tensor)
                kept = None
                if part.get_dtype() not in DRAWN:
                    kept = f"tensor{len(arrays)}"
                    arrays[kept] = tensors.get_tensor(tensor)
                layout.append([tensor, part.get_shape(), part.get_dtype(), kept])
            document[name] = {"metadata": tensors.metadata(), "tensors": layout}
    return Packed(document, arrays)


def _pack_file(data: bytes) -> str:
    key = _digest(["file", data])
    file = Packed(None, {"content": np.frombuffer(data, np.uint8)})
    _records().answer(key, lambda: file, _same)
    return key


def _write_files(packed: Packed, folder: Path) -> None:
    for name, content in packed.document.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            recorded = _records().answer(content, _fail, _same, repeatable=False)
            path.write_bytes(recorded.arrays["content"].tobytes())


def _write_tensors(packed: Packed, folder: Path, draw: Draw) -> None:
    dtypes = {"F32": np.float32, "F16": np.float16}
    for name, content in packed.document.items():
        if isinstance(content, str):
            continue
        place = name.rpartition("/")[0]
        tensors = {
            tensor: packed.arrays[kept]
            if kept
            else draw(f"{place}/{tensor}".removeprefix("/"), tuple(shape)).astype(dtypes[dtype])
            for tensor, shape, dtype, kept in content["tensors"]
        }
        safetensors.numpy.save_file(tensors, folder / name, content["metadata"])


def _same(packed: Packed) -> Packed:
    return packed


def _fail() -> Packed:
    raise MissingReference("a record of a directory names a file that is not recorded: make references-anew")


if __name__ == "__main__":
    import sys

    new = collect_records(only_used="--only-used" in sys.argv)
    size = sum(path.stat().st_size for path in FOLDER.glob("*.zip"))
    print(f"{new} new records; {size / 1e6:.1f} MB in {FOLDER}")
