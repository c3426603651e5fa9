"""The page of an evaluation: HTML that needs no other file and runs no program."""

from collections.abc import Sequence
from html import escape

from vecmill.evaluation.quality_plots import plot_bytes, plot_speed
from vecmill.evaluation.quality_rows import FoundDocument, QualityRow
from vecmill.evaluation.quality_tables import describe_place
from vecmill.evaluation.retrieval_measures import NDCG, RECIPROCAL_RANK

_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { border: 1px solid #bbb; padding: 0.3em 0.6em; text-align: right; }
td:first-child, th:first-child { text-align: left; }
svg { max-width: 760px; display: block; }
details { margin: 0.5em 0; }
"""


def write_page(
    rows: Sequence[QualityRow],
    about: Sequence[str],
    method: Sequence[str],
    headings: Sequence[str],
    cells: Sequence[Sequence[str]],
) -> str:
    """Return the page: the table, the plots, and the worst queries of each row."""
    recalls = [name for name in rows[0].estimates if name not in (NDCG, RECIPROCAL_RANK)]
    plots = [("nDCG against speed", plot_speed(rows))]
    plots += [(f"{name} against size", plot_bytes(rows, name)) for name in recalls[:1]]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Retrieval quality</title>',
        f"<style>{_STYLE}</style></head><body><h1>Retrieval quality</h1><p>{escape(' '.join(about))}</p>",
        _table(headings, cells),
        *(f"<p>{escape(line)}</p>" for line in method),
        *(f"<h2>{escape(title)}</h2>{plot}" for title, plot in plots if plot is not None),
        "<h2>Worst queries</h2>",
        *(_describe_worst(row) for row in rows),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _table(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in headings)
    body = "\n".join(f"<tr>{''.join(f'<td>{escape(each)}</td>' for each in row)}</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _describe_worst(row: QualityRow) -> str:
    queries = "".join(
        f"<li><b>{escape(each.text)}</b> ({escape(each.query)}, nDCG {each.ndcg:.3f})<ul>"
        f"{''.join(_describe(document, 'right') for document in each.right)}"
        f"{''.join(_describe(document, 'found') for document in each.found)}</ul></li>"
        for each in row.worst
    )
    return f"<details><summary>{escape(row.retriever.describe())}</summary><ol>{queries}</ol></details>"


def _describe(document: FoundDocument, how: str) -> str:
    return (
        f"<li>{how}, {describe_place(document)}: {escape(document.text)} ({escape(document.document)})</li>"
    )
