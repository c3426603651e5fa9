"""Blocks: the units of work and of the output, always the same for the same input and block size.

A block is a range of the rows of one input. Its place in the input, and nothing else, decides its number and
its contents. So two processes that compute the same block write the same file.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass

from vecmill.commands.embed.sources import Record

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

    The first value of a record is its text.
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
        characters += len(values[0]) if values and isinstance(values[0], str) else 0
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


def order_by_length(texts: Sequence[str]) -> list[int]:
    """Return the indices of the texts, the longest text first; equal lengths stay in their order."""
    return sorted(range(len(texts)), key=lambda index: -len(texts[index]))
