"""Writing rows beside the columns that are kept: as Parquet, as a plain numpy array, as JSON lines."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, Self

import numpy as np

from vecmill.corpus.embedder import Rows
from vecmill.corpus.sources import import_arrow
from vecmill.corpus.survey import Kind, Wanted
from vecmill.errors import InvalidConfig
from vecmill.types import JsonValue

EMBEDDING = "embedding"

# So much is written to Parquet as one group, which is what a reader holds at least.
_GROUP_BYTES = 32 * 2**20

_ARROW_TYPES = MappingProxyType(
    {
        Kind.NOTHING: "string",
        Kind.BOOLEAN: "bool_",
        Kind.INTEGER: "int64",
        Kind.LONG: "int64",
        Kind.FLOAT: "float64",
        Kind.TEXT: "string",
        Kind.MIXED: "string",
    }
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What an output holds: rows of `dim` numbers of `dtype`, and columns beside them.

    `kinds` are those of the columns, `types` their Arrow types where the input has them; `about` says how the
    rows were made.
    """

    dim: int
    dtype: np.dtype[np.generic]
    kinds: Mapping[str, Kind]
    types: Mapping[str, Any]
    about: Mapping[str, JsonValue]


class Output(Protocol):
    """A file that takes rows. Use it with `with`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def write(self, rows: Rows, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add rows, (n, dim), and as many values of each column."""
        ...


class ParquetOutput:
    """The columns, and `embedding`, a list of fixed length."""

    def __init__(self, path: Path, shape: Shape) -> None:
        from pyarrow import parquet

        self._arrow = import_arrow()
        self._shape = shape
        fields = [(name, self._column_type(name)) for name in shape.kinds]
        embedding = self._arrow.list_(self._arrow.from_numpy_dtype(shape.dtype), shape.dim)
        self._schema = self._arrow.schema([*fields, (EMBEDDING, embedding)]).with_metadata(
            {"vecmill": json.dumps(dict(shape.about))}
        )
        # Dictionaries, encodings and compression make nothing smaller that is as good as random. But Parquet
        # has no numbers of 8 bits: each would take 32, where its place in a dictionary takes 8.
        names, numbers = list(shape.kinds), f"{EMBEDDING}.list.element"
        in_dictionaries = names if shape.dtype.itemsize > 1 else [*names, numbers]
        self._writer = parquet.ParquetWriter(
            path,
            self._schema,
            use_dictionary=in_dictionaries or False,
            compression={**dict.fromkeys(names, "zstd"), numbers: "none"},
        )
        self._held: list[Any] = []
        self._held_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._flush()
        self._writer.close()

    def write(self, rows: Rows, columns: Mapping[str, Sequence[Any]]) -> None:
        """As `Output.write`."""
        arrow = self._arrow
        values = [self._column(name, columns[name]) for name in self._shape.kinds]
        embedding = arrow.FixedSizeListArray.from_arrays(arrow.array(rows.reshape(-1)), self._shape.dim)
        self._held.append(arrow.table([*values, embedding], schema=self._schema))
        self._held_bytes += self._held[-1].nbytes
        if self._held_bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            table = self._arrow.concat_tables(self._held).combine_chunks()
            self._writer.write_table(table, row_group_size=len(table))
        self._held, self._held_bytes = [], 0

    def _column_type(self, name: str) -> Any:
        if name in self._shape.types:
            return self._shape.types[name]
        return getattr(self._arrow, _ARROW_TYPES[self._shape.kinds[name]])()

    def _column(self, name: str, values: Sequence[Any]) -> Any:
        is_mixed = name not in self._shape.types and self._shape.kinds[name] is Kind.MIXED
        return self._arrow.array(
            [_as_text(value) for value in values] if is_mixed else values, self._column_type(name)
        )


class NumpyOutput:
    """The rows alone: (texts, dim), as `numpy.load` reads it, also memory-mapped."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self._file = path.open("wb")
        self._shape = shape
        self._count = 0
        self._write_header()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def write(self, rows: Rows, columns: Mapping[str, Sequence[Any]]) -> None:
        """As `Output.write`; there is no place for columns."""
        self._count += len(rows)
        self._file.write(np.ascontiguousarray(rows).data)

    def _write_header(self) -> None:
        # It is as long for any number of rows: numpy leaves room for digits.
        descr = np.lib.format.dtype_to_descr(self._shape.dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self._count, self._shape.dim)}
        np.lib.format.write_array_header_1_0(self._file, header)


class JsonLinesOutput:
    """One JSON object a line: the columns, and `embedding`, a list of numbers with all their digits."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self._file = path.open("w", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, rows: Rows, columns: Mapping[str, Sequence[Any]]) -> None:
        """As `Output.write`."""
        for index, row in enumerate(rows.tolist()):
            kept = {name: values[index] for name, values in columns.items()}
            self._file.write(json.dumps({**kept, EMBEDDING: row}, ensure_ascii=False, default=str) + "\n")


_OUTPUTS: Mapping[str, type[ParquetOutput | NumpyOutput | JsonLinesOutput]] = MappingProxyType(
    {".parquet": ParquetOutput, ".npy": NumpyOutput, ".jsonl": JsonLinesOutput}
)


def check_output(path: Path, wanted: Wanted) -> None:
    """Raise `InvalidConfig` or `MissingExtra` for an output that cannot be written as asked."""
    kind = _OUTPUTS.get(path.suffix.lower())
    if kind is None:
        raise InvalidConfig(f"{path} has none of the endings that can be written: {', '.join(_OUTPUTS)}.")
    asked = (wanted.identity, *wanted.copies)
    if kind is NumpyOutput and any(asked):
        raise InvalidConfig(
            f"{path} has no place for columns. Leave out --id-column and --copy-column, or write .parquet."
        )
    if EMBEDDING in asked:
        raise InvalidConfig(f"The rows go into the column {EMBEDDING!r}, so it cannot be copied.")
    if kind is ParquetOutput:
        import_arrow()


def open_output(path: Path, shape: Shape) -> Output:
    """The output for a file, by its ending."""
    return _OUTPUTS[path.suffix.lower()](path, shape)


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
