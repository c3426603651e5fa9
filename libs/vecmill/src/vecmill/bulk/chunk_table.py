"""The chunks of texts in `vecmill embed`: a table with a row for each embedding, and columns of the output.

A table is (chunks, 5) int64: the index of the text, then the fields of `results.Chunk`. It is `None` where
every text has one embedding.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from vecmill.bulk.input_scan import ColumnType
from vecmill.bulk.records import InputPart
from vecmill.results import Chunk
from vecmill.values.aliases import IntArray

# The line or row of the input, from 1, and the fields of `results.Chunk`.
CHUNK_COLUMNS: Mapping[str, ColumnType] = MappingProxyType(
    dict.fromkeys(
        ("input_row", "chunk_index", "chunk_start", "chunk_end", "chunk_tokens"), ColumnType.INTEGER
    )
)


def table_of(chunks: Sequence[Chunk] | None) -> IntArray | None:
    """Return the table of chunks."""
    if chunks is None:
        return None
    rows = [(one.text, one.index, one.start, one.end, one.token_count) for one in chunks]
    return np.array(rows, np.int64).reshape(-1, len(CHUNK_COLUMNS))


def join_tables(tables: Sequence[IntArray | None], starts: Sequence[int]) -> IntArray | None:
    """Return one table of consecutive texts; the first text of each table has the index in `starts`.

    A call whose texts were all left out has no table.
    """
    if all(table is None for table in tables):
        return None
    shifted = [
        table + np.array([start, 0, 0, 0, 0])
        for table, start in zip(tables, starts, strict=True)
        if table is not None
    ]
    return np.concatenate(shifted)


def count_texts(table: IntArray | None, embeddings: int) -> int:
    """Return the number of texts that so many embeddings belong to."""
    return embeddings if table is None else len(np.unique(table[:, 0]))


def chunk_columns(
    part: InputPart, table: IntArray | None, copied: Sequence[str]
) -> dict[str, Sequence[object]]:
    """Return the values of the copied columns and of `CHUNK_COLUMNS` for each chunk of a part."""
    rows = np.zeros((0, len(CHUNK_COLUMNS)), np.int64) if table is None else table
    records = [part.records[index] for index in rows[:, 0].tolist()]
    columns: dict[str, Sequence[object]] = {
        name: [record.values[place] for record in records] for place, name in enumerate(copied, 1)
    }
    first, *others = CHUNK_COLUMNS
    columns[first] = [record.place for record in records]
    return columns | {name: rows[:, place].tolist() for place, name in enumerate(others, 1)}
