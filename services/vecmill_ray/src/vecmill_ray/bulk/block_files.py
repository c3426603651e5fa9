"""Block files: one Parquet file for each block, with everything that is known of the block in its footer.

The footer is at the end of the file, so a file with a footer is complete. A block file is written in one
step; whoever computes a block again replaces the file by one with the same rows.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from vecmill.commands.embed.embedder import Vectors
from vecmill.commands.embed.outputs import OutputSchema, ParquetOutput
from vecmill.errors import VecmillError
from vecmill_ray.bulk.blocks import BulkBlock
from vecmill_ray.bulk.storage import SharedStorage

_KEY = b"vecmill"


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row without an embedding: its line or row number in the input number `source`, and the reason."""

    source: int
    place: int
    reason: str


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """The counts of a finished block. `rows` embeddings are in its file; `truncated` texts were cut."""

    number: int
    rows: int
    tokens: int
    truncated: int
    rejected: Sequence[RejectedRow] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as a JSON object."""
        rejected = [[row.source, row.place, row.reason] for row in self.rejected]
        return {
            "block": self.number,
            "rows": self.rows,
            "tokens": self.tokens,
            "truncated": self.truncated,
            "rejected": rejected,
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> "BlockCounts":
        """Return the counts of an object that `to_dict` returned. Raises `KeyError`, `TypeError`."""
        rejected = tuple(RejectedRow(*row) for row in found["rejected"])
        return cls(found["block"], found["rows"], found["tokens"], found["truncated"], rejected)


def encode_block(
    schema: OutputSchema, counts: BlockCounts, embeddings: Vectors, columns: Mapping[str, Sequence[Any]]
) -> bytes:
    """Return the file of a block: embeddings, (rows, dim), and `rows` values of each copied column."""
    about = OutputSchema(
        schema.dim,
        schema.dtype,
        schema.column_types,
        schema.arrow_types,
        {**schema.metadata, **counts.to_dict()},
    )
    file = BytesIO()
    with ParquetOutput(file, about) as output:
        output.write(embeddings, columns)
    return file.getvalue()


def read_counts(output: SharedStorage, block: BulkBlock, digest: str) -> BlockCounts | None:
    """Return the counts of a finished block, `None` if its file is missing or damaged."""
    from pyarrow import parquet

    try:
        found = parquet.read_metadata(output.file(block.file_name(digest)).open_arrow())
        counts = BlockCounts.from_dict(json.loads(found.metadata[_KEY]))
    except (OSError, ValueError, KeyError, TypeError, VecmillError):
        return None
    is_whole = counts.number == block.number and found.num_rows == counts.rows
    return counts if is_whole and counts.rows + len(counts.rejected) == block.records else None
