"""The tables of an evaluation, in Markdown."""

from collections.abc import Sequence

from vecmill.evaluation.quality_rows import FoundDocument, QualityRow, WorstQuery, find_best_row
from vecmill.evaluation.retrieval_measures import NDCG, RECIPROCAL_RANK, name_recall
from vecmill.evaluation.significance import Estimate


def write_markdown(rows: Sequence[QualityRow], about: Sequence[str], recall_at: Sequence[int]) -> str:
    """Return the report in Markdown: the table, what it means, and the worst queries of the best row."""
    best = find_best_row(rows)
    parts = [
        "# Retrieval quality",
        " ".join(about),
        _table([list_headings(recall_at), *(list_cells(row, recall_at) for row in rows)]),
        "\n".join(f"- {line}" for line in describe_method()),
        f"## Worst queries of {best.retriever.describe()}",
        "\n".join(line for each in best.worst for line in _describe_worst(each)),
    ]
    return "\n\n".join(parts) + "\n"


def list_headings(recall_at: Sequence[int]) -> list[str]:
    """Return the headings of the table."""
    recalls = [name_recall(depth) for depth in dict.fromkeys(recall_at)]
    last = ["p", "cosine, worst", "cosine, mean", "bytes", "texts/s"]
    return ["retriever", f"{NDCG} (95% interval)", *recalls, RECIPROCAL_RANK, *last]


def list_cells(row: QualityRow, recall_at: Sequence[int]) -> list[str]:
    """Return the cells of a row of the table."""
    recalls = [format_number(row.estimates[name_recall(depth)].mean, 4) for depth in dict.fromkeys(recall_at)]
    return [
        row.retriever.describe(),
        format_estimate(row.ndcg),
        *recalls,
        format_number(row.estimates[RECIPROCAL_RANK].mean, 4),
        format_number(row.p_value, 4),
        format_number(row.cosine_min, 5),
        format_number(row.cosine_mean, 5),
        f"{row.bytes_per_text:,.0f}",
        format_number(row.texts_per_s, 1),
    ]


def describe_method() -> list[str]:
    """Return what the figures mean, a sentence or two each."""
    return [
        "The search is exact, and ties are resolved by trec_eval's rule: the greater id goes first.",
        "The interval is that of resampled queries (bootstrap). p is that of a paired randomisation test of "
        "the difference in nDCG@10 to the first row; below 0.05 it is hardly chance. With many rows some are "
        "below it by chance.",
        "The cosine compares the vectors of the documents with those of the first plan of the same model.",
        "Bytes are those of the embeddings of a document. Texts/s is the speed of this run, which is no "
        "measurement if anything else ran beside it.",
    ]


def format_estimate(estimate: Estimate, digits: int = 4) -> str:
    """Return a mean with its interval."""
    return f"{estimate.mean:.{digits}f} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"


def format_number(value: float | None, digits: int) -> str:
    """Return a number, nothing for `None`."""
    return "" if value is None else f"{value:.{digits}f}"


def describe_place(document: FoundDocument) -> str:
    """Return where a right answer stood."""
    return "not found" if document.place is None else f"at place {document.place}"


def _describe_worst(worst: WorstQuery) -> list[str]:
    lines = [f"- **{_plain(worst.text)}** (`{worst.query}`, nDCG {worst.ndcg:.3f})"]
    lines += [
        f"  - right, {describe_place(each)}: {_plain(each.text)} (`{each.document}`)" for each in worst.right
    ]
    lines += [
        f"  - found {describe_place(each)}: {_plain(each.text)} (`{each.document}`)" for each in worst.found
    ]
    return lines


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(map(_plain, row))} |" for row in rows]
    return "\n".join([lines[0], f"|{'---|' * len(rows[0])}", *lines[1:]])


def _plain(text: str) -> str:
    """Return a text that is no markup and stays on its line."""
    line = " ".join(text.split())
    return "".join(f"\\{character}" if character in "\\`*_[]<>|#" else character for character in line)
