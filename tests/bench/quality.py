"""What reduced precisions and smaller vectors cost in retrieval quality, on labelled sets that everybody has.

    make quality                              all models; the sets and models come from packages
    make quality ARGS="--model minilm --set chat"     some of them; the others keep their published figures

Writes docs/benchmarks/quality/figures.json and docs/benchmarks/quality.md. Quality does not depend on the
load of the machine, and no speed is published.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.quality_tables import write_page
from labelled_sets.lee import read_similar_texts
from labelled_sets.make import SETS, make_set
from labelled_sets.models import make_e5, make_mpnet
from support.source_tree import ROOT
from vecmill import Purpose
from vecmill.errors import SetupError
from vecmill.evaluation.exact_search import DocumentOrder
from vecmill.evaluation.labelled_files import read_labelled
from vecmill.evaluation.quality import EvaluationOptions, evaluate
from vecmill.evaluation.quality_rows import QualityRow
from vecmill.evaluation.retrieval_measures import NDCG, measure_rankings, name_recall
from vecmill.evaluation.significance import find_p_value
from vecmill.evaluation.text_encoders import open_mill
from vecmill.evaluation.vector_forms import DenseForm, DenseVectors
from vecmill.hardware.processor import processor_name
from vecmill.models.heads import Similarity
from vecmill.values.aliases import FloatArray

RESULTS, PAGE = ROOT / "docs/benchmarks/quality/figures.json", ROOT / "docs/benchmarks/quality.md"
# The first is what the others are compared with.
PLANS = ("onnx:fp32", "onnx:int8", "openvino:int8", "openvino:bf16")
DIMENSIONS = (192, 96)
DTYPES = ("float", "int8", "uint8", "ubinary")
# The limits of 16 and of 8 bits, and what is below them.
TURNED, DRAWS = (0.9992, 0.999, 0.998, 0.992, 0.99, 0.98, 0.95), 5
FILES = ("queries.jsonl", "qrels.tsv", "corpus.jsonl")


def find_minilm() -> str:
    """Return the name of the embedded model."""
    return "sentence-transformers/all-MiniLM-L6-v2"


MODELS: Mapping[str, Callable[[], str | Path]] = {"minilm": find_minilm, "mpnet": make_mpnet, "e5": make_e5}


def measure_model(name: str, sets: Sequence[str]) -> dict[str, Any]:
    """Return the figures of a model on some sets, in all plans that its precision gate allows."""
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
        "sets": {each: measure_set(model, plans, make_set(each)) for each in sets},
        "noise": {each: measure_noise(model, plans[0], make_set(each)) for each in sets},
        "lee": {plan: measure_similarity(model, plan) for plan in plans},
    }


def measure_set(model: str | Path, plans: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """Return the figures of all plans and forms of vectors on one set."""
    options = EvaluationOptions(plans=plans, dimensions=DIMENSIONS, dtypes=DTYPES, recall_at=(10,))
    rows = evaluate(model, *(folder / name for name in FILES), options=options, on_progress=_tell).rows
    return [
        _describe(row, rows[0]) for row in rows if row.retriever.plan == _plan(plans[0]) or _is_whole(row)
    ]


def measure_noise(model: str | Path, plan: str, folder: Path) -> list[dict[str, float]]:
    """Return how much nDCG changes if every vector, of queries too, is turned by chance to a cosine.

    The worst text of a precision may be as bad as its limit: here all are. Figures are over some draws.
    """
    labelled = read_labelled(*(folder / name for name in FILES))
    ids = labelled.corpus.ids
    order = DocumentOrder(ids)
    with open_mill(model, plan) as mill:
        sides = [
            mill.embed(list(texts), purpose=purpose)
            for texts, purpose in (
                (labelled.queries.values(), Purpose.QUERY),
                (labelled.corpus.texts(), Purpose.DOCUMENT),
            )
        ]

    def measure(queries: FloatArray, documents: FloatArray) -> float:
        found = DenseVectors(queries, documents, Similarity.COSINE, False).search(DenseForm(), order, 10)
        rankings = {
            query: [ids[at] for at in numbers] for query, numbers in zip(labelled.queries, found, strict=True)
        }
        return float(measure_rankings(labelled.judgements, rankings, ())[NDCG].mean())

    exact = measure(*sides)
    rows = []
    for cosine in TURNED:
        changes = []
        for seed in range(DRAWS):
            random = np.random.default_rng(seed)
            changes.append(measure(*(turn(side, cosine, random) for side in sides)) - exact)
        rows.append({"cosine": cosine, "mean": float(np.mean(changes)), "worst": min(changes)})
    return rows


def turn(vectors: FloatArray, cosine: float, random: np.random.Generator) -> FloatArray:
    """Turn each of (n, dim) vectors of length 1 in a direction by chance, to this cosine."""
    noise = random.standard_normal(vectors.shape, np.float32)
    noise -= (noise * vectors).sum(axis=1, keepdims=True) * vectors
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    turned: FloatArray = (cosine * vectors + np.sqrt(1 - cosine**2) * noise).astype(np.float32)
    return turned


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
    parser.add_argument("--set", action="append", choices=sorted(SETS))
    chosen = parser.parse_args()
    document = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {"models": {}}
    models = document["models"]
    for name in chosen.model or MODELS:
        found = measure_model(name, chosen.set or list(SETS))
        before = models.get(name, {})
        for kind in ("sets", "noise"):
            found[kind] = {**before.get(kind, {}), **found[kind]}
        models[name] = {**found, "processor": processor_name()}
        RESULTS.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    PAGE.write_text(write_page(document), "utf-8")


if __name__ == "__main__":
    main()
