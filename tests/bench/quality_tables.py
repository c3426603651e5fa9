"""The page docs/benchmarks/quality.md, from the figures of `make quality`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

NAMES = {
    "minilm": "all-MiniLM-L6-v2",
    "mpnet": "all-mpnet-base-v2",
    "e5": "multilingual-e5-small, dequantised from 4 bits",
}
SETS = ("man", "deb", "chat")
NOT_MEASURED = "not measured"

_OPENING = """# Retrieval quality of precisions and of smaller vectors

nDCG@10 on [three labelled sets](../evaluation.md#labelled-sets-for-everybody) that are made from packages,
with the 95% interval of 400 queries. p is that of a paired test of the difference to the first row of the
model. Below 0.05 a difference is hardly chance; but of twenty such tests one is below it by chance. Lee is
Pearson's correlation of cosines with the similarities that people see between 50 news texts (Lee, Pincombe
and Welsh 2005). Quality does not depend on how busy the machine is. `make quality` writes this page and
[figures.json](quality/figures.json).

The labels are made from the structure of the texts, so that the figures compare rows, and praise no model."""

# What is said of a model if it was measured.
_WEIGHTS = {
    "e5": "The weights of multilingual-e5-small are in 4 bits in their package, and dequantised here: fp32\n"
    "is the reference of the rows below it, and not the quality of the original model.",
}

_LIMIT = """## What the limit of the cosine means

A precision is refused if the cosine of its worst text with fp32 is below 0.9992 in 16 bits, or 0.992 in 8
bits. Here the vectors of all queries and documents, and not only of the worst, are turned in a direction by
chance until they have a cosine with fp32. The changes of nDCG are means over five draws, and in parentheses
those of the worst draw."""

_FORMS = """## Types and dimensions

Vectors of the first plan of each model, cut to fewer dimensions and scaled again, and converted to smaller
types. Queries are converted too, 8-bit integers are compared by their cosine, and bits by their Hamming
distance, without the floats. None of these models was trained for fewer dimensions."""


def write_page(document: Mapping[str, Any]) -> str:
    """Return the page."""
    models = {name: document["models"][name] for name in NAMES if name in document["models"]}
    columns = ("model and plan", *SETS, "Lee", "cosine, worst", "cosine, mean")
    parts = [
        _OPENING,
        *(told for name, told in _WEIGHTS.items() if name in models),
        "## Precisions",
        _table(columns, list(_precisions(models))),
        *_refusals(models),
        describe_changes(models),
        _LIMIT,
        _table(("model", "cosine", *SETS), list(_noise(models))),
        _FORMS,
        _table(("model", "dimensions", "type", "bytes", *SETS), list(_forms(models))),
    ]
    return "\n\n".join(parts) + "\n"


def describe_changes(models: Mapping[str, Any]) -> str:
    """Return how much the reduced precisions have changed nDCG at most, and how often that is no chance."""
    changes = []
    for name, model in models.items():
        for set_name, rows in model["sets"].items():
            first, *others = filter(_is_whole, rows)
            for row in others:
                place = f"{NAMES[name]}, {row['plan']}, {set_name}"
                changes.append((abs(row["ndcg"][0] - first["ndcg"][0]), place, row["p"], row["cosine_min"]))
    if not changes:
        return ""
    most, place, *_ = max(changes)
    few = sum(p < 0.05 for _, _, p, _ in changes)
    return (
        f"Over {len(changes)} pairs of a set and a reduced precision, nDCG changed by at most {most:.4f} "
        f"({place}), and {few or 'none'} of the changes {'has' if few < 2 else 'have'} a p below 0.05. "
        f"The lowest cosine among them is {min(cosine for *_, cosine in changes):.4f}."
    )


def _precisions(models: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, model in models.items():
        for key, similarity in model["lee"].items():
            plan = key.replace(":", " ")
            found = {each: _find(rows, plan) for each, rows in model["sets"].items()}
            worst = [row["cosine_min"] for row in found.values() if row["cosine_min"] is not None]
            means = [row["cosine_mean"] for row in found.values() if row["cosine_mean"] is not None]
            yield (
                f"{NAMES[name]}, {plan}",
                *(_describe(found.get(each)) for each in SETS),
                f"{similarity:.3f}",
                f"{min(worst):.5f}" if worst else "",
                f"{sum(means) / len(means):.5f}" if means else "",
            )


def _refusals(models: Mapping[str, Any]) -> list[str]:
    return [
        f"Not served, and so not in the table: {NAMES[name]}, {plan.replace(':', ' ')}. {why}"
        for name, one in models.items()
        for plan, why in one["refused"].items()
    ]


def _noise(models: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, model in models.items():
        sets = model["noise"]
        for number, first in enumerate(next(iter(sets.values()), ())):
            rows = {each: found[number] for each, found in sets.items()}
            cells = (
                f"{rows[each]['mean']:+.4f} ({rows[each]['worst']:+.4f})" if each in rows else NOT_MEASURED
                for each in SETS
            )
            yield NAMES[name], f"{first['cosine']:g}", *cells


def _forms(models: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, model in models.items():
        first = next(iter(model["lee"])).replace(":", " ")
        sets = {key: [row for row in rows if row["plan"] == first] for key, rows in model["sets"].items()}
        for number, row in enumerate(next(iter(sets.values()))):
            found = {each: rows[number] for each, rows in sets.items()}
            cells = (_describe(found.get(each), with_interval=False) for each in SETS)
            dimensions = "all" if row["dimensions"] is None else str(row["dimensions"])
            yield NAMES[name], dimensions, row["dtype"], f"{row['bytes']:,.0f}", *cells


def _find(rows: Sequence[Mapping[str, Any]], plan: str) -> Mapping[str, Any]:
    return next(row for row in rows if row["plan"] == plan and _is_whole(row))


def _is_whole(row: Mapping[str, Any]) -> bool:
    return row["dimensions"] is None and row["dtype"] == "float"


def _describe(row: Mapping[str, Any] | None, *, with_interval: bool = True) -> str:
    """Return the nDCG of a row, with its interval and its p-value."""
    if row is None:
        return NOT_MEASURED
    mean, low, high = row["ndcg"]
    parts = [f"{mean:.4f}" + (f" ({low:.3f} to {high:.3f})" if with_interval else "")]
    if row["p"] is not None:
        parts.append(f"p {row['p']:.3f}" if row["p"] >= 0.001 else "p < 0.001")
    return ", ".join(parts)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (headings, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(headings)}", *lines[1:]])
