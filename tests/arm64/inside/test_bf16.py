"""The `onnx` engine multiplies in bf16 on an Arm processor that has the instructions, accurately."""

from pathlib import Path

import numpy as np
import pytest

from arm64.emulator import INSIDE_RESULTS
from arm64.references import CORES, EMBEDDED_MODEL, Answers, Reference, read_references
from arm64.results import Difference
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.base import Engine
from vecmill.errors import UnsupportedModel
from vecmill.hardware.processor import multiplies_bf16, processor_model
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.verification.comparison import compare_embeddings
from vecmill.verification.precision_gate import MIN_COSINES

FAMILIES = ("bert", "modernbert", "qwen3", "xlm-roberta", EMBEDDED_MODEL)
# Its scores are not divided by the width of a head, so that rounding them changes much.
CHAOTIC = "t5"
ALL = {one.family: one for one in read_references(INSIDE_RESULTS / "references")}
IN_BF16 = EnginePlan("onnx", Precision.BF16)
# Emulated products in bf16 are slow: the largest model embeds its short texts alone.
EMBEDDED_COUNT = 6
# fp32 differs by less between the two processors: a larger difference is that of products in bf16.
ROUNDED = 1e-4


def load(reference: Reference, cache_dir: Path) -> tuple[Engine, Tokenizer]:
    description = describe_model(locate_model(reference.model))
    engine = load_engine(description, IN_BF16, cores=CORES, cache_dir=cache_dir)
    return engine, Tokenizer.load(description)


def embed(engine: Engine, tokenizer: Tokenizer, texts: list[str]) -> FloatArray:
    return engine.run(Batch.of(tokenizer.encode(texts)), width=1).values


def test_the_processor_has_the_instructions() -> None:
    assert processor_model() == "ARM Neoverse-V1"
    assert multiplies_bf16()


@pytest.mark.parametrize("family", FAMILIES)
def test_products_are_in_bf16_and_embeddings_close_to_fp32(
    family: str, results: Path, tmp_path: Path
) -> None:
    reference = ALL[family]
    count = EMBEDDED_COUNT if reference.family == EMBEDDED_MODEL else len(reference.texts)
    engine, tokenizer = load(reference, tmp_path)
    rows = embed(engine, tokenizer, reference.texts[:count])
    found = compare_embeddings(rows, reference.answers.embeddings[:count])
    engine.close()
    Difference(reference.family, "bf16", found.largest_difference, found.worst_cosine).append(results)
    assert found.largest_difference > ROUNDED * found.scale
    assert found.worst_cosine >= 0.999


def test_a_text_has_nearly_the_same_embedding_in_any_batch(bert: Reference, tmp_path: Path) -> None:
    engine, tokenizer = load(bert, tmp_path)
    together = embed(engine, tokenizer, bert.texts)
    alone = np.concatenate([embed(engine, tokenizer, [text]) for text in bert.texts])
    engine.close()
    found = compare_embeddings(together, alone)
    print(f"alone and in a batch: {found.largest_difference:.1e}, cosine {found.worst_cosine:.6f}")
    assert found.worst_cosine >= 0.9999


def test_a_model_is_checked_before_it_is_served_in_bf16(bert: Reference, tmp_path: Path) -> None:
    answers = Answers.compute(bert.model, bert.texts, tmp_path, Precision.BF16)
    (proof,) = tmp_path.glob("*-onnx-bf16-*.proof.json")
    assert "worst_cosine" in proof.read_text(encoding="utf-8")
    found = compare_embeddings(answers.embeddings, bert.answers.embeddings)
    assert found.worst_cosine >= MIN_COSINES[Precision.BF16]


def test_a_model_that_loses_too_much_is_refused(tmp_path: Path) -> None:
    reference = ALL[CHAOTIC]
    with pytest.raises(UnsupportedModel, match="loses too much accuracy in bf16 on the onnx engine"):
        Answers.compute(reference.model, reference.texts, tmp_path, Precision.BF16)
