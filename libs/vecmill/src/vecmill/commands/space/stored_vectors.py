"""A sample of the rows of a file of vectors: Parquet, JSON lines or numpy, as `vecmill embed` writes them.

The rows are chosen by chance, from a seed. Of a Parquet file only some row groups are read, and of a numpy
file only the rows. Of a file of JSON lines every line is read, and only the chosen ones are parsed, because
nothing tells where its lines are. The texts are in a column beside the vectors, or in the file that was
embedded, whose valid rows are in the same order.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vecmill.bulk.embedder import Vectors
from vecmill.bulk.input_scan import TEXT_COLUMN, ColumnOptions, choose_columns, valid_records
from vecmill.bulk.outputs import EMBEDDING, read_metadata
from vecmill.bulk.records import find_problem
from vecmill.bulk.sources import BATCH_ROWS, JsonLines, Parquet, open_source, parse_line, refuse_duplicates
from vecmill.commands.embed.progress import show_progress
from vecmill.errors import InvalidConfig, InvalidCorpus, one_line
from vecmill.values.aliases import JsonValue

# The row groups of a Parquet file that are read.
MOST_GROUPS = 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """The columns of vectors and texts, `None` to find out, and the file of the texts if that is another."""

    vectors: str | None = None
    texts: str | None = None
    corpus: Path | None = None


@dataclass(frozen=True, slots=True)
class StoredSample:
    """Some of the `rows` rows of a file.

    `places` are the numbers of the chosen rows, from 1, `texts` their texts, and `vectors` their vectors,
    (texts, numbers), floats or 8-bit integers. `metadata` is what `vecmill embed` wrote about the vectors,
    empty if there is none.
    """

    rows: int
    places: tuple[int, ...]
    texts: tuple[str, ...]
    vectors: Vectors
    metadata: Mapping[str, JsonValue]


def read_sample(path: Path, columns: StoredColumns, *, count: int, seed: int) -> StoredSample:
    """Read `count` rows of a file of vectors, or all rows if it has fewer.

    Raises `InvalidConfig` if it is not clear where vectors and texts are, `InvalidCorpus` for a file that
    cannot be read, and `MissingExtra`.
    """
    if not path.is_file():
        raise InvalidCorpus(f"There is no file {path}.")
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise InvalidConfig(f"{path}: the file name extension must be one of {', '.join(_READERS)}.")
    sample = read(path, columns, count, random.Random(seed))
    if columns.corpus is not None:
        sample = replace(sample, texts=_read_texts(path, columns, sample))
    return sample


def _read_parquet(path: Path, columns: StoredColumns, count: int, chance: random.Random) -> StoredSample:
    source = Parquet(path)
    with source.opened() as file:
        metadata = read_metadata(file.schema_arrow)
    if metadata.get("chunking") is not None:
        raise InvalidConfig(
            f"The vectors of {path} were made with --chunking, so they are not those of whole texts. Verify "
            "vectors that were made without it."
        )
    names = source.columns()
    lists = [name for name, kind in source.arrow_types().items() if "list" in str(kind)]
    vectors = _choose_vectors(path, lists, columns)
    texts = _choose_texts(path, names, columns)
    wanted = [vectors] if texts is None else [vectors, texts]
    with source.opened() as file:
        for option, name in zip(("--vector-column", "--text-column"), wanted, strict=False):
            if name not in names:
                known = ", ".join(map(repr, names))
                raise InvalidConfig(f"{option} is {name!r}, but the columns of {path} are {known}.")
        refuse_duplicates(path, file.schema_arrow.names, wanted)
        rows = file.metadata.num_rows
        try:
            found = list(_pick_parquet_rows(file, wanted, count, chance))
        except (OSError, ValueError, NotImplementedError) as error:
            raise InvalidCorpus(f"{path} cannot be read as a Parquet file: {one_line(error)}.") from error
    return _make_sample(path, rows, found, has_texts=texts is not None, metadata=metadata)


def _pick_parquet_rows(
    file: Any, names: Sequence[str], count: int, chance: random.Random
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the place of each chosen row, and its values of the columns `names`."""
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    groups = sorted(chance.sample(range(len(sizes)), min(len(sizes), MOST_GROUPS)))
    held = sum(sizes[group] for group in groups)
    chosen = iter(sorted(chance.sample(range(held), min(held, count))))
    following, before = next(chosen, None), 0  # rows of the groups that were read
    for group in groups:
        first, place = before, sum(sizes[:group])
        before += sizes[group]
        if following is None or following >= before:
            continue
        for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=[group], columns=list(names)):
            while following is not None and following < first + len(batch):
                at = following - first
                yield (
                    place + at + 1,
                    [batch.column(batch.schema.get_field_index(name))[at].as_py() for name in names],
                )
                following = next(chosen, None)
            first, place = first + len(batch), place + len(batch)
            if following is None or following >= before:
                break


def _read_json_lines(path: Path, columns: StoredColumns, count: int, chance: random.Random) -> StoredSample:
    source = JsonLines(path)
    first = source.first_row()
    lists = [name for name, value in first.items() if isinstance(value, list)]
    vectors = _choose_vectors(path, lists, columns)
    texts = _choose_texts(path, source.columns(), columns)
    rows, lines = choose_items(show_progress(source.lines(), "Reading"), count, chance)
    found = []
    for index, (place, line) in lines:
        row = parse_line(line)
        if isinstance(row, str):
            raise InvalidCorpus(f"{path}: line {place} {row}.")
        found.append((index + 1, [row.get(name) for name in (vectors, *(() if texts is None else (texts,)))]))
    return _make_sample(path, rows, found, has_texts=texts is not None, metadata={})


def _read_numpy(path: Path, columns: StoredColumns, count: int, chance: random.Random) -> StoredSample:
    if columns.corpus is None:
        raise InvalidConfig(f"{path} has no texts. Name the file that was embedded with --texts.")
    try:
        with np.errstate(over="ignore"):  # of sizes that no file has
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy evaluates the header, and maps whatever it says
        raise InvalidCorpus(f"{path} cannot be read as a numpy array: {one_line(error)}.") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2:
        raise InvalidCorpus(f"{path} does not hold an array of vectors, (texts, dimensions).")
    chosen = sorted(chance.sample(range(len(array)), min(len(array), count)))
    found = [(index + 1, [array[index].tolist()]) for index in chosen]
    return _make_sample(path, len(array), found, has_texts=False, metadata={})


_READERS = {
    ".parquet": _read_parquet,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".npy": _read_numpy,
}


def choose_items(items: Iterable[T], count: int, chance: random.Random) -> tuple[int, list[tuple[int, T]]]:
    """Return the number of items, and `count` of them by chance, each with its index, in order.

    Source: Vitter, "Random Sampling with a Reservoir", 1985, algorithm R.
    """
    kept: list[tuple[int, T]] = []
    total = 0
    for index, item in enumerate(items):
        total = index + 1
        if index < count:
            kept.append((index, item))
        elif (place := chance.randrange(total)) < count:
            kept[place] = (index, item)
    return total, sorted(kept, key=lambda pair: pair[0])


def _choose_vectors(path: Path, lists: Sequence[str], columns: StoredColumns) -> str:
    """Return the name of the column of the vectors. `lists` are the columns that hold lists."""
    if columns.vectors is not None:
        return columns.vectors
    if EMBEDDING in lists:
        return EMBEDDING
    if len(lists) != 1:
        raise InvalidConfig(
            f"{path} has no column {EMBEDDING!r}. Name the column of the vectors with --vector-column."
        )
    return lists[0]


def _choose_texts(path: Path, is_text: Mapping[str, bool], columns: StoredColumns) -> str | None:
    """Return the name of the column of the texts, `None` if another file has them."""
    if columns.corpus is not None:
        return None
    if columns.texts is not None:
        return columns.texts
    found = [name for name, holds in is_text.items() if holds]
    if TEXT_COLUMN in found:
        return TEXT_COLUMN
    if len(found) != 1 or found == ["id"]:
        raise InvalidConfig(
            f"{path} has no column {TEXT_COLUMN!r}. Name the column of the texts with --text-column, or the "
            "file that was embedded with --texts."
        )
    return found[0]


def _make_sample(
    path: Path,
    rows: int,
    found: Sequence[tuple[int, Sequence[Any]]],
    *,
    has_texts: bool,
    metadata: Mapping[str, JsonValue],
) -> StoredSample:
    """Check the values of rows, each a vector and perhaps a text. Raises `InvalidCorpus`."""
    if not found:
        raise InvalidCorpus(f"{path} has no rows.")
    vectors, texts = [], []
    for place, values in found:
        vectors.append(_check_vector(path, place, values[0]))
        if has_texts:
            problem = find_problem(values[1])
            if problem is not None:
                raise InvalidCorpus(f"{path}: row {place} {problem}.")
            texts.append(values[1])
    sizes = {len(vector) for vector in vectors}
    if len(sizes) > 1:
        raise InvalidCorpus(f"{path} has vectors of {min(sizes)} and of {max(sizes)} numbers.")
    array = np.array(vectors)
    if array.dtype.kind in "iu":
        array = array.astype(np.int8 if array.min() < 0 else np.uint8)
    places = tuple(place for place, _ in found)
    return StoredSample(rows, places, tuple(texts), array, metadata)


def _check_vector(path: Path, place: int, value: Any) -> Vectors:
    """Return a vector of finite numbers, integers if all fit into 8 bits. Raises `InvalidCorpus`."""
    if not isinstance(value, list) or not value:
        raise InvalidCorpus(f"{path}: row {place} has no vector.")
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in value):
        raise InvalidCorpus(f"{path}: row {place} has a vector with something else than numbers.")
    if all(isinstance(number, int) and -128 <= number < 256 for number in value):
        return np.array(value, np.int16)
    try:
        vector = np.array(value, np.float64)
    except OverflowError:
        vector = np.array([np.inf])
    if not np.isfinite(vector).all():
        raise InvalidCorpus(f"{path}: row {place} has a vector with numbers that are not finite.")
    return vector


def _read_texts(path: Path, columns: StoredColumns, sample: StoredSample) -> tuple[str, ...]:
    """Return the texts of the chosen rows from the file that was embedded."""
    assert columns.corpus is not None
    source = open_source(columns.corpus)
    found = choose_columns(source, ColumnOptions(columns.texts, skips_invalid=True))
    wanted = {place - 1: "" for place in sample.places}
    rows = 0
    for record in show_progress(valid_records(source, replace(found, copies=())), "Reading"):
        if rows in wanted:
            wanted[rows] = record.values[0]
        rows += 1
    if rows != sample.rows:
        raise InvalidConfig(
            f"{columns.corpus} has {rows} rows with texts and {path} has {sample.rows} vectors, so it is "
            "not clear which belong together."
        )
    return tuple(wanted.values())
