"""What reduced precisions and smaller vectors cost in retrieval quality, on labelled sets that everybody has.

    make quality                              all models; the sets and models come from packages
    make quality ARGS="--model minilm"        one of them; the others keep their published figures

Writes docs/benchmarks/quality.json and docs/benchmarks/quality.md. Quality does not depend on the load of the
machine, and no speed is published.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.quality_tables import write_page
from labelled_sets.lee import read_similar_texts
from labelled_sets.make import SETS, make_set
from labelled_sets.models import make_e5, make_mpnet
from support.source_tree import ROOT
from vecmill import Purpose
from vecmill.errors import SetupError
from vecmill.evaluation.quality import EvaluationOptions, evaluate
from vecmill.evaluation.quality_rows import QualityRow
from vecmill.evaluation.retrieval_measures import NDCG, name_recall
from vecmill.evaluation.significance import find_p_value
from vecmill.evaluation.text_encoders import open_mill
from vecmill.hardware.processor import processor_name

RESULTS, PAGE = ROOT / "docs/benchmarks/quality.json", ROOT / "docs/benchmarks/quality.md"
# The first is what the others are compared with.
PLANS = ("onnx:fp32", "onnx:int8", "openvino:int8", "openvino:bf16")
DIMENSIONS = (192, 96)
DTYPES = ("float", "int8", "uint8", "ubinary")


def find_minilm() -> str:
    """Return the name of the embedded model."""
    return "sentence-transformers/all-MiniLM-L6-v2"


MODELS: Mapping[str, Callable[[], str | Path]] = {"minilm": find_minilm, "mpnet": make_mpnet, "e5": make_e5}


def measure_model(name: str) -> dict[str, Any]:
    """Return the figures of a model, in all plans that its precision gate allows."""
    model = MODELS[name]()
    plans, refused = [], {}
    for plan in PLANS:
        try:
            with open_mill(model, plan):
                plans.append(plan)
        except SetupError as error:
            refused[plan] = error.message
    return {
        "refused": refused,
        "sets": {each: measure_set(model, plans, make_set(each)) for each in SETS},
        "lee": {plan: measure_similarity(model, plan) for plan in plans},
    }


def measure_set(model: str | Path, plans: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """Return the figures of all plans and forms of vectors on one set."""
    options = EvaluationOptions(plans=plans, dimensions=DIMENSIONS, dtypes=DTYPES, recall_at=(10,))
    files = (folder / "queries.jsonl", folder / "qrels.tsv", folder / "corpus.jsonl")
    rows = evaluate(model, *files, options=options, on_progress=_tell).rows
    return [
        _describe(row, rows[0]) for row in rows if row.retriever.plan == _plan(plans[0]) or _is_whole(row)
    ]


def measure_similarity(model: str | Path, plan: str) -> float:
    """Return Pearson's correlation with the similarities of Lee's texts."""
    lee = read_similar_texts()
    with open_mill(model, plan) as mill:
        return lee.correlate(mill.embed(list(lee.texts), purpose=Purpose.DOCUMENT))


def _describe(row: QualityRow, first: QualityRow) -> dict[str, Any]:
    estimate = row.estimates[NDCG]
    return {
        "plan": row.retriever.plan,
        "dimensions": row.retriever.form.dimensions,
        "dtype": row.retriever.form.dtype.value,
        "bytes": row.bytes_per_text,
        "ndcg": [estimate.mean, estimate.low, estimate.high],
        "p": None if row is first else find_p_value(row.values[NDCG], first.values[NDCG]),
        "recall": row.estimates[name_recall(10)].mean,
        "cosine_min": row.cosine_min,
        "cosine_mean": row.cosine_mean,
    }


def _is_whole(row: QualityRow) -> bool:
    return row.retriever.form.dimensions is None and row.retriever.form.dtype == "float"


def _plan(name: str) -> str:
    return name.replace(":", " ")


def _tell(what: str, done: int, total: int) -> None:
    if done == total:
        print(f"{what}: {total}", flush=True)


def main() -> None:
    """Measure the models, and publish their figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", action="append", choices=sorted(MODELS))
    chosen = parser.parse_args().model or list(MODELS)
    document = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {"models": {}}
    for name in chosen:
        document["models"][name] = {**measure_model(name), "processor": processor_name()}
        RESULTS.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    PAGE.write_text(write_page(document), "utf-8")


if __name__ == "__main__":
    main()
