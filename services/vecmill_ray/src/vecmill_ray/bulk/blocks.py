"""Blocks: the units of work and of the output, always the same for the same input and block size.

A block is a range of the rows of one input. Its place in the input, and nothing else, decides its number and
its contents. So two processes that compute the same block write the same file.

The output has a Parquet file for each block, with everything that is known of the block in its footer. The
footer is at the end of the file, so a file with a footer is complete. A block file is written in one step;
whoever computes a block again replaces the file by one with the same rows.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from io import BytesIO
from typing import Any, NamedTuple

from vecmill.bulk.embedder import Vectors
from vecmill.bulk.outputs import OutputSchema, ParquetOutput
from vecmill.bulk.picture_inputs import EmbedInput
from vecmill.bulk.records import Record, count_characters
from vecmill.errors import VecmillError
from vecmill_ray.bulk.storage import SharedStorage

# The characters of a block, so that an actor's memory is bounded for long texts.
BLOCK_CHARACTERS = 16_000_000

Position = int | str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One row of an input: its position, its line or row number `place`, and its values.

    An empty line has no record: it counts as a place, but is no row of the input.
    """

    position: Position
    place: int
    record: Record | None


@dataclass(frozen=True, slots=True)
class InputSpan:
    """A range of one input: `source` is the index of the input, `start` and `stop` are positions in it.

    Positions are bytes in a file of JSON lines, rows in other files, and values of the key column in a
    database. A `stop` of `None` is the end of the input; in a database `start` is `None` at the beginning.
    """

    source: int
    start: Position
    stop: Position


@dataclass(frozen=True, slots=True)
class BulkBlock:
    """A block of the output. `first_place` is the line or row number of its first row, from 1.

    `records` is the number of its rows, invalid rows included.
    """

    number: int
    source: int
    start: Position
    stop: Position
    first_place: int
    records: int

    def to_json(self) -> str:
        """Return the block as a line of JSON."""
        return json.dumps(astuple(self))

    @classmethod
    def from_json(cls, line: str) -> "BulkBlock":
        """Return the block of a line that `to_json` returned."""
        return cls(*json.loads(line))

    def file_name(self, digest: str) -> str:
        """Return the name of the output file, for settings with this digest."""
        return f"part-{self.number:07}-{digest}.parquet"


@dataclass(frozen=True, slots=True)
class Cut:
    """The start of a block inside a span: its position, its place from 1 in the span, and its rows."""

    start: Position
    place: int
    records: int


def cut_rows(rows: Iterable[Row], block_rows: int) -> Iterator[Cut]:
    """Divide the rows of a span into blocks. Rows at the same position stay in one block.

    The first value of a record is its text or picture.
    """
    start: Position = None
    last: Position = None
    place = count = characters = 0
    for row in rows:
        if row.record is None:
            continue
        if count and row.position != last and (count >= block_rows or characters >= BLOCK_CHARACTERS):
            yield Cut(start, place, count)
            count = characters = 0
        if not count:
            start, place = row.position, row.place
        count += 1
        values = row.record.values
        characters += count_characters(values[0]) if values else 0
        last = row.position
    if count:
        yield Cut(start, place, count)


def number_blocks(
    spans: Sequence[InputSpan], cuts: Sequence[Sequence[Cut]], places: Sequence[int]
) -> list[BulkBlock]:
    """Return the blocks of all spans, in input order.

    `cuts` are the cuts of each span, and `places` the numbers of lines or rows of each span.
    """
    blocks: list[BulkBlock] = []
    before, source = 0, -1
    for span, inside, count in zip(spans, cuts, places, strict=True):
        if span.source != source:
            before, source = 0, span.source
        stops = [*(cut.start for cut in inside[1:]), span.stop]
        # A span inside one long line has no row, and no block.
        for cut, stop in zip(inside, stops, strict=False):
            blocks.append(BulkBlock(len(blocks), source, cut.start, stop, before + cut.place, cut.records))
        before += count
    return blocks


def order_by_length(inputs: Sequence[EmbedInput]) -> list[int]:
    """Return the indices of the inputs, the longest first; equal lengths stay in their order."""
    return sorted(range(len(inputs)), key=lambda index: -len(inputs[index]))


# The key of the footer.
_KEY = b"vecmill"


class RejectedRow(NamedTuple):
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
        counts = asdict(self)
        return {"block": counts.pop("number"), **counts}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> "BlockCounts":
        """Return the counts of an object that `to_dict` returned. Raises `KeyError`, `TypeError`."""
        rejected = tuple(RejectedRow(*row) for row in found["rejected"])
        return cls(found["block"], found["rows"], found["tokens"], found["truncated"], rejected)


def encode_block(
    schema: OutputSchema, counts: BlockCounts, embeddings: Vectors, columns: Mapping[str, Sequence[Any]]
) -> bytes:
    """Return the file of a block: embeddings, (rows, dim), and `rows` values of each copied column."""
    about = replace(schema, metadata={**schema.metadata, **counts.to_dict()})
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
