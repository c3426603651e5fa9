"""The OpenVINO engine: what it computes next to the ONNX engine, and what it refuses."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.later_starts import imports_of_start
from engines.quick_precisions import quick_precisions
from parity.test_published_directories import EMBEDDERS, RERANKERS
from support.published import respell, save_published
from support.rows_check import TOLERANCE, batch_plans
from support.task_models import save_colbert, save_splade, save_task_model
from support.texts import mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.commands.optimize.choice import Goal
from vecmill.directory_layouts import describe_model
from vecmill.engines import load_engine
from vecmill.engines.base import Engine
from vecmill.errors import InferenceFailed, InvalidConfig, MissingExtra
from vecmill.hardware.processor import multiplies_bytes
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embedding, SparseEmbedding
from vecmill.values.engine_plan import EnginePlan, Precision
from vecmill.values.sample_texts import sample_texts
from vecmill.vectors import dense
from vecmill.verification.comparison import compare_embeddings

pytest.importorskip("openvino", reason="the openvino engine needs openvino")
from vecmill.engines.openvino import OpenVinoEngine

SEED = 23
LENGTHS = (1, 2, 7, 8, 9, 30, 40, 3, 16, 25)
PUBLISHED = {**EMBEDDERS, **RERANKERS}

Save = Callable[[Path], Path]


def save_sparse(folder: Path) -> Path:
    save_splade(folder, save_task_model(folder.with_name("masked"), "BertForMaskedLM"))
    return folder


def save_multi_vector(folder: Path) -> Path:
    save_colbert(folder, save_task_model(folder.with_name("encoder"), "BertModel"), None)
    return folder


def save_as_published(name: str) -> Save:
    def save(folder: Path) -> Path:
        respell(save_published(folder, PUBLISHED[name], seed=SEED), PUBLISHED[name])
        return folder

    return save


MODELS: dict[str, Save] = {
    **{name: save_as_published(name) for name in PUBLISHED},
    "sparse": save_sparse,
    "multi-vector": save_multi_vector,
    "labels of texts": lambda folder: save_task_model(folder, "BertForSequenceClassification", num_labels=3),
    "labels of tokens": lambda folder: save_task_model(folder, "BertForTokenClassification", num_labels=5),
}


# The first of each family; the others differ in settings.
FIRST = {
    re.sub("(Encoder)?Model$|For.*", "", PUBLISHED[name].class_name): name for name in reversed(PUBLISHED)
}
# These have every operator and every form of rows: other graphs are made of the same parts.
FAMILIES = "Bert XLMRoberta T5 ReferenceJinaBert DebertaV2 ModernBert Gemma3Text Mistral"
FAMILIES += " ReferenceLfm2Bidirectional ReferenceNomicMixture"
QUICK = {*(FIRST[family] for family in FAMILIES.split()), "sparse", "multi-vector", "labels of tokens"}


def load(description: ModelDescription, cache_dir: Path, engine: str = "openvino", **plan: Any) -> Engine:
    return load_engine(description, EnginePlan(engine, **plan), cores=2, cache_dir=cache_dir)


def describe(folder: Path) -> ModelDescription:
    return describe_model(locate_model(folder))


def random_sequences(description: ModelDescription) -> list[TokenSequence]:
    random = np.random.default_rng(SEED)
    unseen = 1 if description.task is Task.MULTI_VECTOR else 0
    return [
        TokenSequence.of(
            random.integers(0, description.vocab_size, length).tolist(), unseen=unseen if length > 1 else 0
        )
        for length in LENGTHS
    ]


def spread(row: Embedding, dim: int) -> FloatArray:
    """A row, with its zeros if it is sparse: (rows, dim)."""
    if not isinstance(row, SparseEmbedding):
        return dense(row)
    values = np.zeros((1, dim), np.float32)
    values[0, row.columns] = row.values
    return values


def compute(engine: Engine, sequences: list[TokenSequence], plan: list[list[int]], width: int) -> FloatArray:
    """The rows of all texts in the batches of `plan`, in their own order, one below the other."""
    found: dict[int, FloatArray] = {}
    for indices in plan:
        rows = engine.run(Batch.of([sequences[index] for index in indices]), width=width)
        found |= {
            index: spread(row, engine.info.dim) for index, row in zip(indices, rows.split(), strict=True)
        }
    return np.concatenate([found[index] for index in range(len(sequences))])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in MODELS],
)
def test_every_model_gets_the_rows_of_the_onnx_engine(name: str, tmp_path: Path) -> None:
    description = describe(MODELS[name](tmp_path / "model"))
    sequences = random_sequences(description)
    plans = batch_plans(LENGTHS, SEED)
    oracle = load(description, tmp_path / "cache", "onnx")
    expected = compute(oracle, sequences, plans["alone"], width=1)
    engine = load(description, tmp_path / "cache")
    for name, width in [*((name, 1) for name in plans), ("random", engine.info.lane_widths[-1])]:
        found = compute(engine, sequences, plans[name], width)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=TOLERANCE * max(1, np.abs(expected).max()))
    for one in (oracle, engine):
        one.close()


def offers_bf16() -> bool:
    return Precision.BF16 in OpenVinoEngine.find_capabilities().devices["cpu"]


@pytest.fixture(scope="module")
def embedded() -> ModelDescription:
    return describe_model(locate_model(None))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    return describe(save_tiny_bert(tmp_path_factory.mktemp("models") / "tiny", TinyBert()))


@pytest.fixture(scope="module")
def in_fp32(embedded: ModelDescription, kept_models: Path) -> Iterator[Engine]:
    engine = load(embedded, kept_models, "onnx")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def in_bf16(embedded: ModelDescription, kept_models: Path) -> Iterator[Engine]:
    if not offers_bf16():
        pytest.skip("this processor does not multiply bf16")
    engine = load(embedded, kept_models, precision=Precision.BF16)
    yield engine
    engine.close()


def test_bf16_rows_are_near_and_of_unit_length(
    embedded: ModelDescription, in_bf16: Engine, in_fp32: Engine
) -> None:
    sequences = Tokenizer.load(embedded).encode(mixed_texts(SEED, 20))
    plan = batch_plans([len(one) for one in sequences], SEED)["random"]
    expected = compute(in_fp32, sequences, plan, width=1)
    found = compute(in_bf16, sequences, plan, width=1)
    assert in_bf16.info.precision == "bf16"
    assert compare_embeddings(found, expected).cosine_min > 0.9995
    assert np.abs(found - expected).max() > 1e-5, "bf16 was asked for, fp32 computed"
    # Pooling and normalising are fp32, so no length is off by what bf16 can hold.
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


def worst_in_company(description: ModelDescription, engine: Engine) -> float:
    """The worst cosine of a text in company, on any width, with the same text alone."""
    sequences = Tokenizer.load(description).encode(mixed_texts(SEED, 16))
    plans = dict(batch_plans([len(one) for one in sequences], SEED))
    alone = compute(engine, sequences, plans.pop("alone"), width=1)
    runs = [*((plan, 1) for plan in plans.values()), (plans["random"], engine.info.lane_widths[-1])]
    together = [compute(engine, sequences, plan, width) for plan, width in runs]
    return min(compare_embeddings(found, alone).cosine_min for found in together)


def test_bf16_rows_do_not_depend_on_company_or_width(embedded: ModelDescription, in_bf16: Engine) -> None:
    assert worst_in_company(embedded, in_bf16) > 0.9999


@pytest.fixture(scope="module")
def in_int8(embedded: ModelDescription, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if Precision.INT8 not in OpenVinoEngine.find_capabilities().devices["cpu"]:
        pytest.skip("this processor does not multiply bytes")
    with quick_precisions():
        engine = load(embedded, tmp_path_factory.mktemp("cache"), precision=Precision.INT8)
    yield engine
    engine.close()


@pytest.mark.full
@pytest.mark.skipif(not multiplies_bytes(), reason="this processor does not multiply bytes")
def test_int8_is_accurate_enough_for_optimize(embedded: ModelDescription, tmp_path: Path) -> None:
    sequences = Tokenizer.load(embedded).encode(sample_texts(300))
    plan = batch_plans([len(one) for one in sequences], SEED)["sorted"]
    engines = [
        load(embedded, tmp_path, "onnx"),
        load(embedded, tmp_path, precision=Precision.INT8),
    ]
    expected, found = (compute(engine, sequences, plan, width=1) for engine in engines)
    assert compare_embeddings(found, expected).cosine_min >= Goal().min_cosine
    for engine in engines:
        engine.close()


def test_int8_rows_lose_next_to_nothing(embedded: ModelDescription, in_int8: Engine, in_fp32: Engine) -> None:
    sequences = Tokenizer.load(embedded).encode(mixed_texts(SEED, 40))
    plan = batch_plans([len(one) for one in sequences], SEED)["sorted"]
    expected = compute(in_fp32, sequences, plan, width=1)
    comparison = compare_embeddings(compute(in_int8, sequences, plan, width=1), expected)
    assert in_int8.info.precision == "int8"
    assert comparison.cosine_mean > 0.999
    assert comparison.cosine_min > 0.997
    assert comparison.largest_difference > 1e-3, "int8 was asked for, something finer computed"


def test_int8_rows_do_not_depend_on_company_or_width(embedded: ModelDescription, in_int8: Engine) -> None:
    assert worst_in_company(embedded, in_int8) > 0.9995


def test_making_int8_weights_needs_onnx_runtime_and_says_so(
    tiny: ModelDescription, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vecmill.quantization.calibration", None)
    monkeypatch.setattr("vecmill.engines.openvino.multiplies_bytes", lambda: True)
    with pytest.raises(MissingExtra, match=r"needs onnxruntime: .*pip install 'vecmill\[cpu\]'"):
        load(tiny, tmp_path, precision=Precision.INT8)


def test_what_the_processor_does_not_multiply_is_refused(
    tiny: ModelDescription, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecmill.engines.openvino._offered", lambda core: (Precision.FP32,))
    message = r"openvino engine does not compute in bf16 on this machine\. It offers fp32\."
    with pytest.raises(InvalidConfig, match=message):
        load(tiny, tmp_path, precision=Precision.BF16)
    assert OpenVinoEngine.find_capabilities().devices == {"cpu": (Precision.FP32,)}
    monkeypatch.undo()
    monkeypatch.setattr("vecmill.engines.openvino.multiplies_bytes", lambda: False)
    assert Precision.INT8 not in OpenVinoEngine.find_capabilities().devices["cpu"]


def test_another_device_is_refused(tiny: ModelDescription, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="computes on cpu, not on cuda:1"):
        load(tiny, tmp_path, device="cuda:1")


def test_a_token_that_the_model_does_not_know_fails(tiny: ModelDescription, kept_models: Path) -> None:
    engine = load(tiny, kept_models)
    message = "A token of 1 texts with 2 tokens in total is not in the model's vocabulary"
    for unknown in (tiny.vocab_size, -1):
        with pytest.raises(InferenceFailed, match=message):
            engine.run(Batch.of([TokenSequence.of([1, unknown])]), width=1)
    assert len(engine.run(Batch.of([TokenSequence.of([1, 2])]), width=1)) == 1
    engine.close()


def test_a_closed_engine_and_an_unknown_width_say_so(tiny: ModelDescription, kept_models: Path) -> None:
    batch = Batch.of([TokenSequence.of([1, 2])])
    engine = load(tiny, kept_models)
    with pytest.raises(InferenceFailed, match="no compiled model for calls on 7 cores"):
        engine.run(batch, width=7)
    engine.close()
    with pytest.raises(InferenceFailed, match="no compiled model"):
        engine.run(batch, width=1)


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16])
def test_nan_stays_with_its_text(tmp_path: Path, precision: Precision) -> None:
    import safetensors.numpy

    if precision is Precision.BF16 and not offers_bf16():
        pytest.skip("this processor does not multiply bf16")
    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    tensors = safetensors.numpy.load_file(directory / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"][7] = np.nan
    safetensors.numpy.save_file(tensors, directory / "model.safetensors")
    engine = load(describe(directory), tmp_path / "cache", precision=precision)
    for spoilt in range(3):
        sequences = [TokenSequence.of([2, *([9] * (5 * place)), 3]) for place in range(3)]
        sequences[spoilt] = TokenSequence.of([2, 7, 3])
        values = engine.run(Batch.of(sequences), width=1).values
        assert np.isnan(values).any(axis=1).tolist() == [place == spoilt for place in range(3)]
    engine.close()


@pytest.mark.parametrize(
    ("multiple", "short", "long"), [(None, 16, 48), (1, 9, 33), (8, 16, 40), (16, 16, 48)]
)
def test_lengths_are_rounded_up_as_planned(
    tiny: ModelDescription, kept_models: Path, multiple: int | None, short: int, long: int
) -> None:
    engine = load(tiny, kept_models, length_multiple=multiple)
    for longest, slots in ((9, short), (33, long)):
        batch = Batch.of([TokenSequence.of([5] * length) for length in (3, longest)])
        assert engine.run(batch, width=1).computed_tokens == 2 * slots
    engine.close()


def test_a_later_start_imports_no_graph_builder(tiny: ModelDescription, kept_models: Path) -> None:
    load(tiny, kept_models).close()
    assert imports_of_start(tiny.directory, kept_models, "openvino", besides={"onnxruntime"}) == set()


# Memory after many shapes, next to that after a few: (MiB, MiB).
SHAPES = """
import sys
from pathlib import Path
import numpy as np
from vecmill.engines.openvino import OpenVinoEngine
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.values.engine_plan import EnginePlan
from vecmill.values.batch import Batch, TokenSequence

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024

description = describe_model(locate_model(sys.argv[1]))
engine = OpenVinoEngine.load(description, EnginePlan("openvino"), cores=1, cache_dir=Path(sys.argv[2]))
random = np.random.default_rng(0)
for call in range(300):
    lengths = random.integers(1, 41, random.integers(1, 30))
    engine.run(Batch.of([TokenSequence.of([5] * length) for length in lengths.tolist()]), width=1)
    if call == 49:
        few = resident()
print(few, resident())
engine.close()
"""


@pytest.mark.promise("bounded-memory")
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_many_shapes_take_bounded_memory(tiny: ModelDescription, kept_models: Path) -> None:
    command = [sys.executable, "-c", SHAPES, str(tiny.directory), str(kept_models)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    few, many = map(int, found)
    assert many - few < 65
