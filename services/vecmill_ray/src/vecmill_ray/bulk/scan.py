"""The scan of the inputs before texts are embedded, in spans that different processes read.

As in `vecmill embed`, the scan finds invalid rows and the types of the copied columns at the start. It also
divides the rows into blocks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vecmill.bulk.input_scan import (
    ColumnOptions,
    Columns,
    ColumnType,
    check_record,
    choose_columns,
    describe_absence,
    describe_problem,
    merge_types,
    require_values,
)
from vecmill.bulk.records import Record
from vecmill.errors import InvalidConfig, InvalidCorpus
from vecmill.values.aliases import JsonValue
from vecmill_ray.bulk.blocks import BulkBlock, Cut, InputSpan, Row, cut_rows, number_blocks
from vecmill_ray.bulk.inputs import BulkInput, InputAddress, arrow_types, open_inputs

# Tasks of similar length share the cores evenly if each core has several of them.
TASKS_PER_CORE = 8
MOST_SPANS = 256


@dataclass(frozen=True, slots=True)
class SpanScan:
    """The result of the scan of one span.

    `places` is the number of lines or rows, `rows` of valid rows, `skipped` of invalid rows. `arrow_types`
    are the names of the Arrow types of the copied columns. `problem` is the first invalid row, with its place
    in the span.
    """

    places: int
    rows: int
    skipped: int
    column_types: Mapping[str, ColumnType]
    arrow_types: Mapping[str, str]
    cuts: Sequence[Cut]
    problem: Record | None = None


@dataclass(frozen=True, slots=True)
class BulkScan:
    """The result of the scan of all inputs: the blocks, the numbers of rows, and the types of the columns."""

    blocks: Sequence[BulkBlock]
    rows: int
    skipped: int
    column_types: Mapping[str, ColumnType]


def choose_input_columns(inputs: Sequence[BulkInput], options: ColumnOptions) -> Columns:
    """Choose the columns by the first input that has any; a file of JSON lines without rows has none.

    Raises the same errors as `choose_columns`.
    """
    sources = [found.source for found in inputs]
    source = next((each for each in sources if each.is_closed or each.columns()), sources[0])
    columns = choose_columns(source, options)
    if columns.has_pictures:
        inputs[0].find_pictures()
    return columns


def group_spans(spans: Sequence[InputSpan], cores: int) -> list[Sequence[InputSpan]]:
    """Divide spans into the groups that one task scans each, for a cluster with this number of cores.

    Each task lists the input, so there are few tasks for many files, but several for each core.
    """
    size = min(MOST_SPANS, max(1, len(spans) // (TASKS_PER_CORE * max(1, cores))))
    return [spans[at : at + size] for at in range(0, len(spans), size)]


def scan_spans(
    address: InputAddress,
    identities: Sequence[JsonValue],
    columns: Columns,
    block_rows: int,
    spans: Sequence[InputSpan],
) -> list[SpanScan]:
    """Read spans of the inputs with these identities.

    Raises the same errors as `open_inputs` and `scan_span`.
    """
    inputs = open_inputs(address, identities)
    return [scan_span(inputs[span.source], span, columns, block_rows) for span in spans]


def scan_span(found: BulkInput, span: InputSpan, columns: Columns, block_rows: int) -> SpanScan:
    """Read one span.

    Raises `InvalidCorpus` if the input cannot be read, and `InvalidConfig` if it lacks a column.
    """
    text, picture = (None, columns.text) if columns.has_pictures else (columns.text, None)
    choose_columns(found.source, ColumnOptions(text, None, columns.copies, picture_column=picture))
    folder = found.find_pictures() if columns.has_pictures else None
    column_types = dict.fromkeys(columns.copies, ColumnType.NOTHING)
    rows = skipped = last = 0
    problem: Record | None = None

    def checked_rows() -> Iterator[Row]:
        nonlocal rows, skipped, last, problem
        for row in found.read(columns.names, span.start, span.stop, 1):
            last = row.place
            if row.record is not None:
                record = check_record(row.record, columns, folder)
                if record.problem is None:
                    rows += 1
                    merge_types(column_types, columns, record)
                else:
                    skipped += 1
                    problem = problem or record
            yield row

    cuts = list(cut_rows(checked_rows(), block_rows))
    kinds = {name: str(kind) for name, kind in arrow_types(found.source, columns.copies).items()}
    return SpanScan(last, rows, skipped, column_types, kinds, cuts, problem)


def join_scans(
    inputs: Sequence[BulkInput],
    spans: Sequence[InputSpan],
    scans: Sequence[SpanScan],
    options: ColumnOptions,
    columns: Columns,
) -> BulkScan:
    """Join the scans of all spans, in input order.

    Raises `InvalidCorpus` for invalid rows, unless they are skipped, and for inputs without valid rows.
    Raises `InvalidConfig` for a column without values, and for a column that has several types.
    """
    if not options.skips_invalid:
        _refuse_invalid(inputs, spans, scans)
    rows = sum(scan.rows for scan in scans)
    name = _name_all(inputs)
    if not rows:
        raise InvalidCorpus(describe_absence(name, columns))
    column_types = dict.fromkeys(columns.copies, ColumnType.NOTHING)
    for scan in scans:
        for column, kind in scan.column_types.items():
            column_types[column] = column_types[column].merge(kind)
    for column in columns.copies:
        kinds = sorted({scan.arrow_types[column] for scan in scans if column in scan.arrow_types})
        if len(kinds) > 1:
            raise InvalidConfig(
                f"The column {column!r} is {' in one file and '.join(kinds)} in another. Give all files the "
                "same types."
            )
    require_values(inputs[0].source, options, column_types)
    blocks = number_blocks(spans, [scan.cuts for scan in scans], [scan.places for scan in scans])
    return BulkScan(blocks, rows, sum(scan.skipped for scan in scans), column_types)


def _refuse_invalid(
    inputs: Sequence[BulkInput], spans: Sequence[InputSpan], scans: Sequence[SpanScan]
) -> None:
    """Raise `InvalidCorpus` for the first invalid row of all inputs."""
    before, source = 0, -1
    for span, scan in zip(spans, scans, strict=True):
        if span.source != source:
            before, source = 0, span.source
        if scan.problem is not None:
            record = Record(before + scan.problem.place, problem=scan.problem.problem)
            raise InvalidCorpus(describe_problem(inputs[source].source, record))
        before += scan.places


def _name_all(inputs: Sequence[BulkInput]) -> str:
    first = str(inputs[0].source.path)
    return first if len(inputs) == 1 else f"{first} and {len(inputs) - 1} more files"
