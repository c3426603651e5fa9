"""Output files of embeddings and copied columns: Parquet, numpy arrays and JSON lines."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from vecmill.bulk.chunk_table import CHUNK_COLUMNS
from vecmill.bulk.embedder import Vectors
from vecmill.bulk.input_files import import_arrow
from vecmill.bulk.input_scan import ColumnOptions, ColumnType
from vecmill.errors import InvalidConfig
from vecmill.values.aliases import JsonValue
from vecmill.values.json_text import decode_json

EMBEDDING = "embedding"
TRUNCATED = "truncated_tokens"

# The key of the metadata of a Parquet file.
_METADATA = b"vecmill"

# The size of a Parquet row group, the least that a reader holds in memory.
_GROUP_BYTES = 32 * 2**20

_ARROW_TYPES = {
    ColumnType.NOTHING: "string",
    ColumnType.BOOLEAN: "bool_",
    ColumnType.INTEGER: "int64",
    ColumnType.LONG: "int64",
    ColumnType.FLOAT: "float64",
    ColumnType.TEXT: "string",
    ColumnType.MIXED: "string",
}


def arrow_type(arrow: Any, kind: ColumnType) -> Any:
    """Return the type of `arrow`, which is pyarrow, for a column."""
    return getattr(arrow, _ARROW_TYPES[kind])()


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The contents of an output: embeddings of `dim` values of `dtype`, and copied columns.

    `column_types` are the types of the columns, `arrow_types` their Arrow types if the input has them.
    `metadata` describes how the embeddings were made.
    """

    dim: int
    dtype: np.dtype[np.generic]
    column_types: Mapping[str, ColumnType]
    arrow_types: Mapping[str, Any]
    metadata: Mapping[str, JsonValue]


def read_metadata(schema: Any) -> Mapping[str, JsonValue]:
    """Return the metadata in the Arrow schema of an output, empty if vecmill did not write the file."""
    try:
        metadata = decode_json((schema.metadata or {}).get(_METADATA, b"{}"))
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


class OutputFile(ABC):
    """An open output file. Use with `with`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(is_complete=error is None)

    @abstractmethod
    def write(self, embeddings: Vectors, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append embeddings, (n, dim), and n values of each column."""

    @abstractmethod
    def close(self, *, is_complete: bool) -> None:
        """Close the file, after the last embedding if `is_complete`."""


class ParquetOutput(OutputFile):
    """A Parquet file with the copied columns and `embedding`, a list of fixed length."""

    def __init__(self, path: Path | IO[bytes], schema: OutputSchema) -> None:
        from pyarrow import parquet

        self._arrow = import_arrow()
        self._schema = schema
        fields = [(name, self._column_type(name)) for name in schema.column_types]
        embedding = self._arrow.list_(self._arrow.from_numpy_dtype(schema.dtype), schema.dim)
        self._arrow_schema = self._arrow.schema([*fields, (EMBEDDING, embedding)]).with_metadata(
            {_METADATA: json.dumps(dict(schema.metadata))}
        )
        # Embeddings are nearly random, so dictionaries and compression do not make them smaller. But Parquet
        # has no 8-bit numbers: each would take 32 bits, while its index in a dictionary takes 8.
        names, numbers = list(schema.column_types), f"{EMBEDDING}.list.element"
        in_dictionaries = names if schema.dtype.itemsize > 1 else [*names, numbers]
        self._writer = parquet.ParquetWriter(
            path,
            self._arrow_schema,
            use_dictionary=in_dictionaries or False,
            compression={**dict.fromkeys(names, "zstd"), numbers: "none"},
        )
        self._held: list[Any] = []
        self._held_bytes = 0

    def close(self, *, is_complete: bool) -> None:
        """Write the last row group and close the file."""
        if is_complete:
            self._flush()
        self._writer.close()

    def write(self, embeddings: Vectors, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append embeddings and columns; see `OutputFile.write`."""
        arrow = self._arrow
        values = [self._column(name, columns[name]) for name in self._schema.column_types]
        flat = arrow.array(embeddings.reshape(-1))
        embedding = arrow.FixedSizeListArray.from_arrays(flat, self._schema.dim)
        self._held.append(arrow.table([*values, embedding], schema=self._arrow_schema))
        self._held_bytes += self._held[-1].nbytes
        if self._held_bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            table = self._arrow.concat_tables(self._held).combine_chunks()
            self._writer.write_table(table, row_group_size=len(table))
        self._held, self._held_bytes = [], 0

    def _column_type(self, name: str) -> Any:
        if name in self._schema.arrow_types:
            return self._schema.arrow_types[name]
        return arrow_type(self._arrow, self._schema.column_types[name])

    def _column(self, name: str, values: Sequence[Any]) -> Any:
        if name not in self._schema.arrow_types and self._schema.column_types[name] is ColumnType.MIXED:
            values = [_as_text(value) for value in values]
        return self._arrow.array(values, self._column_type(name))


class NumpyOutput(OutputFile):
    """A numpy file with the embeddings alone, (texts, dim), for `numpy.load`, also memory-mapped."""

    def __init__(self, path: Path, schema: OutputSchema) -> None:
        self._file = path.open("wb")
        self._schema = schema
        self._count = 0
        self._write_header()

    def close(self, *, is_complete: bool) -> None:
        """Write the final header and close the file."""
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def write(self, embeddings: Vectors, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append embeddings; the file format has no columns."""
        self._count += len(embeddings)
        self._file.write(np.ascontiguousarray(embeddings).data)

    def _write_header(self) -> None:
        # The header has the same length for any number of embeddings: numpy leaves space for digits.
        descr = np.lib.format.dtype_to_descr(self._schema.dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self._count, self._schema.dim)}
        np.lib.format.write_array_header_1_0(self._file, header)


class JsonLinesOutput(OutputFile):
    """A file with one JSON object per line: the copied columns, and `embedding`, a list of exact numbers.

    JSON has no NaN and no infinity, so in copied columns both become null.
    """

    def __init__(self, path: Path, schema: OutputSchema) -> None:
        self._file = path.open("w", encoding="utf-8")

    def close(self, *, is_complete: bool) -> None:
        """Close the file."""
        self._file.close()

    def write(self, embeddings: Vectors, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append embeddings and columns; see `OutputFile.write`."""
        for index, embedding in enumerate(embeddings.tolist()):
            row = {**{name: values[index] for name, values in columns.items()}, EMBEDDING: embedding}
            self._file.write(_write_json(row) + "\n")


_OWN_COLUMNS = {EMBEDDING: "the embeddings", TRUNCATED: "the numbers of tokens that were cut off"}

_OUTPUTS: Mapping[str, type[ParquetOutput | NumpyOutput | JsonLinesOutput]] = {
    ".parquet": ParquetOutput,
    ".npy": NumpyOutput,
    ".jsonl": JsonLinesOutput,
}


def check_output(path: Path, options: ColumnOptions, *, has_chunks: bool = False) -> None:
    """Raise `InvalidConfig` or `MissingExtra` for an output that cannot be written with these options."""
    kind = _OUTPUTS.get(path.suffix.lower())
    if kind is None:
        raise InvalidConfig(f"{path}: the file name extension must be one of {', '.join(_OUTPUTS)}.")
    copied = (options.id_column, *options.copied_columns)
    if kind is NumpyOutput and any(copied):
        raise InvalidConfig(
            f"{path} cannot hold columns. Remove --id-column and --copy-column, or write a .parquet file."
        )
    if has_chunks:
        _check_chunks(path, kind, copied)
    for name, content in _OWN_COLUMNS.items():
        if name in copied:
            raise InvalidConfig(f"The column {name!r} holds {content}, so it cannot be copied.")
    if kind is ParquetOutput:
        import_arrow()


def _check_chunks(path: Path, kind: type[OutputFile], copied: Sequence[str | None]) -> None:
    if kind is NumpyOutput:
        raise InvalidConfig(
            f"{path} cannot hold the places of chunks. Write a .parquet or .jsonl file, or one embedding of "
            "each text, with --chunking pooled."
        )
    for name in CHUNK_COLUMNS:
        if name in copied:
            raise InvalidConfig(f"The column {name!r} describes the chunks, so it cannot be copied.")


def open_output(path: Path, schema: OutputSchema) -> OutputFile:
    """Open the output file `path`; its file name extension decides the format."""
    return _OUTPUTS[path.suffix.lower()](path, schema)


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return _write_json(value)


def _write_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(value), ensure_ascii=False, default=str)


def _without_nan(value: Any) -> Any:
    """Return a value with null for all numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
