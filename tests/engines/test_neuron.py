"""The neuron engine with graphs of fixed shapes in place of what its compiler makes; and its own two calls.

No chip was at hand: what optimum-neuron really does is not tested here, only what it is asked for.
"""

import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest

from support.exported_models import export_graph
from support.rows_check import assert_same_rows, compute_rows
from support.task_models import save_task_model
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.architectures.static import StaticConfig
from vecmill.architectures.xlm_roberta_flash import XlmRobertaFlashConfig
from vecmill.directory_layouts import describe_model
from vecmill.engines import prepared
from vecmill.engines.buckets import Bucket, BucketGrid
from vecmill.engines.neuron import CompiledBucket, NeuronEngine, OptimumCompiler
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.errors import InferenceFailed, InvalidConfig, UnsupportedModel
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan, Precision

GRID = BucketGrid((16, 48), (1, 4))
TWO = BucketGrid((16, 48), (4,))
LENGTHS = [1, 2, 5, 12, 30, 40, 40, 3, 17, 8, 16, 48]


@cache
def export_once(model: Path, class_name: str, bucket: Bucket) -> bytes:
    """The graph of a model of this class that takes one shape."""
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "fixed.onnx"
        return export_graph(model, graph, class_name, shape=(bucket.texts, bucket.length)).read_bytes()


class FixedShapes:
    """Compiles to graphs that take one shape, as the real compiler's do, and fail for any other."""

    name = "fixed-1.0"

    def __init__(self, class_name: str) -> None:
        self.class_name = class_name
        self.compiled: list[Bucket] = []
        self.calls: list[Bucket] = []

    def compile(
        self, description: ModelDescription, bucket: Bucket, precision: Precision, folder: Path
    ) -> None:
        self.compiled.append(bucket)
        graph = export_once(description.weights_files[0].parent, self.class_name, bucket)
        (folder / "fixed.onnx").write_bytes(graph)

    def load(self, description: ModelDescription, folder: Path) -> CompiledBucket:
        session = onnxruntime.InferenceSession(folder / "fixed.onnx", providers=["CPUExecutionProvider"])
        texts, length = map(int, folder.name.split("x"))

        def compute(padded: Mapping[str, IntArray]) -> FloatArray:
            self.calls.append(Bucket(length, texts))
            feed = {found.name: padded[found.name] for found in session.get_inputs()}
            values: FloatArray = session.run(None, feed)[0]
            return values

        return compute


def load(
    compiler: FixedShapes, description: ModelDescription, cache_dir: Path, grid: BucketGrid = GRID
) -> NeuronEngine:
    return NeuronEngine.load_with(
        compiler, description, EnginePlan("neuron"), grid, cores=2, cache_dir=cache_dir
    )


def sequences() -> list[TokenSequence]:
    random = np.random.default_rng(4)
    return [
        TokenSequence.of(
            random.integers(5, 500, length).tolist(), np.sort(random.integers(0, 2, length)).tolist()
        )
        for length in LENGTHS
    ]


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    return describe_model(
        locate_model(save_tiny_bert(tmp_path_factory.mktemp("neuron") / "model", TinyBert()))
    )


@pytest.fixture(scope="module")
def compiler() -> FixedShapes:
    return FixedShapes("BertModel")


@pytest.fixture(scope="module")
def engine(
    description: ModelDescription, compiler: FixedShapes, tmp_path_factory: pytest.TempPathFactory
) -> NeuronEngine:
    return load(compiler, description, tmp_path_factory.mktemp("cache"))


def test_rows_are_those_of_the_other_engines(
    engine: NeuronEngine, description: ModelDescription, tmp_path: Path
) -> None:
    other = OnnxEngine.load(description, EnginePlan(), cores=1, cache_dir=tmp_path)
    texts = sequences()
    alone = compute_rows(lambda batch: other.run(batch, width=1), texts, [[one] for one in range(len(texts))])
    assert_same_rows(lambda batch: engine.run(batch, width=1), texts, alone)
    other.close()


@pytest.mark.parametrize(
    ("class_name", "settings", "task"),
    [
        ("BertForSequenceClassification", {"num_labels": 3}, None),
        ("BertForTokenClassification", {"num_labels": 4}, None),
        ("BertForMaskedLM", {}, Task.SPARSE),
    ],
    ids=["one row a text, finished", "one row a token", "sparse"],
)
def test_every_form_of_rows_comes_back_in_order(
    tmp_path: Path, class_name: str, settings: dict[str, Any], task: Task | None
) -> None:
    directory = save_task_model(tmp_path / "model", class_name, **settings)
    described = describe_model(locate_model(directory), task)
    ours = load(FixedShapes(class_name), described, tmp_path / "ours", TWO)
    theirs = OnnxEngine.load(described, EnginePlan(), cores=1, cache_dir=tmp_path / "theirs")
    batch = Batch.of([text for text in sequences() if len(text) <= described.max_tokens])
    found, expected = ours.run(batch, width=1), theirs.run(batch, width=1)
    assert np.array_equal(found.offsets, expected.offsets)
    scale = max(1.0, float(np.abs(expected.values).max()))
    assert np.abs(found.values - expected.values).max() <= 1e-4 * scale
    if expected.columns is not None:
        assert found.columns is not None
        assert np.array_equal(found.columns, expected.columns)
    ours.close()
    theirs.close()


def test_every_bucket_is_compiled_once_and_kept(description: ModelDescription, tmp_path: Path) -> None:
    first, second = FixedShapes("BertModel"), FixedShapes("BertModel")
    load(first, description, tmp_path).close()
    load(second, description, tmp_path).close()
    assert first.compiled == list(GRID.buckets)
    assert second.compiled == []


def test_another_release_of_the_compiler_or_precision_compiles_anew(
    description: ModelDescription, tmp_path: Path
) -> None:
    load(FixedShapes("BertModel"), description, tmp_path).close()
    newer = FixedShapes("BertModel")
    newer.name = "fixed-1.1"
    load(newer, description, tmp_path).close()
    plan = EnginePlan("neuron", Precision.BF16)
    half = FixedShapes("BertModel")
    engine = NeuronEngine.load_with(half, description, plan, GRID, cores=1, cache_dir=tmp_path)
    assert engine.info.precision == Precision.BF16
    engine.close()
    assert newer.compiled == half.compiled == list(GRID.buckets)


def test_a_damaged_bucket_is_compiled_again(description: ModelDescription, tmp_path: Path) -> None:
    load(FixedShapes("BertModel"), description, tmp_path).close()
    [damaged] = tmp_path.glob("*/4x16/fixed.onnx")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    again = FixedShapes("BertModel")
    load(again, description, tmp_path).close()
    assert again.compiled == list(GRID.buckets)


def test_what_was_computed_is_counted_with_its_padding(engine: NeuronEngine, compiler: FixedShapes) -> None:
    compiler.calls.clear()
    rows = engine.run(Batch.of([TokenSequence.of([5] * length) for length in (20, 3, 3, 3, 3)]), width=1)
    assert compiler.calls == [Bucket(48, 1), Bucket(16, 4)]
    assert rows.computed_tokens == 48 + 4 * 16


def test_one_call_at_a_time(engine: NeuronEngine, compiler: FixedShapes) -> None:
    info = engine.info
    assert (info.device, info.lane_widths, info.parallel_calls) == ("neuron", (1,), 1)
    inside = threading.Semaphore(1)
    overlaps = []

    def guard(compute: CompiledBucket) -> CompiledBucket:
        def guarded(padded: Mapping[str, IntArray]) -> FloatArray:
            free = inside.acquire(blocking=False)
            overlaps.append(not free)
            try:
                return compute(padded)
            finally:
                if free:
                    inside.release()

        return guarded

    usual = dict(engine._loaded.buckets)
    engine._loaded.buckets.update({bucket: guard(compute) for bucket, compute in usual.items()})
    batch = Batch.of(sequences())
    threads = [threading.Thread(target=lambda: engine.run(batch, width=1)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine._loaded.buckets.update(usual)
    assert len(overlaps) >= 8
    assert not any(overlaps)


def test_a_renewed_engine_does_not_wait_for_a_hung_call(
    description: ModelDescription, tmp_path: Path
) -> None:
    engine = load(FixedShapes("BertModel"), description, tmp_path)
    batch = Batch.of(sequences()[:1])
    expected = engine.run(batch, width=1).values
    with engine._loaded.turn:  # as a call that never returns
        engine.renew()
        assert np.array_equal(engine.run(batch, width=1).values, expected)
    engine.close()


def test_a_failing_device_names_the_bucket(description: ModelDescription, tmp_path: Path) -> None:
    engine = load(FixedShapes("BertModel"), description, tmp_path)
    with pytest.raises(
        InferenceFailed, match="failed on 1 texts in a bucket of 1 texts of 16 tokens: InvalidArgument"
    ):
        engine.run(Batch.of([TokenSequence.of([description.vocab_size])]), width=1)
    message = "failed on 1 texts with 60 tokens in total: the longest bucket has 48 tokens"
    with pytest.raises(InferenceFailed, match=message):
        engine.run(Batch.of([TokenSequence.of([5] * 60)]), width=1)
    engine.close()
    engine.close()
    with pytest.raises(InferenceFailed, match="no loaded model"):
        engine.run(Batch.of([TokenSequence.of([5])]), width=1)


class LostDevice(FixedShapes):
    """A device that takes no compiled model."""

    def load(self, description: ModelDescription, folder: Path) -> CompiledBucket:
        raise RuntimeError("the device is lost")


def test_a_device_that_takes_no_model_leaves_no_temporary_folder(
    description: ModelDescription, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, not_a_folder = tmp_path / "temporary", tmp_path / "file"
    temporary.mkdir()
    not_a_folder.touch()
    monkeypatch.setattr(prepared, "_MEMORY_FOLDER", tmp_path / "none")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with pytest.raises(RuntimeError, match="the device is lost"):
        load(LostDevice("BertModel"), description, not_a_folder / "cache")
    assert list(temporary.iterdir()) == []


def test_warming_up_measures_a_cost(engine: NeuronEngine) -> None:
    assert engine.warm_up(sequences()[:2]).per_token_s > 0


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (EnginePlan("neuron", device="cuda:0"), "computes on neuron, not on cuda:0"),
        (EnginePlan("neuron", Precision.INT8), r"does not compute in int8 .* It offers fp32, bf16\."),
    ],
)
def test_plans_that_cannot_be_followed(
    description: ModelDescription, tmp_path: Path, plan: EnginePlan, message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        NeuronEngine.load(description, plan, cores=1, cache_dir=tmp_path)


def test_a_kind_of_model_that_is_not_compiled_says_so(description: ModelDescription, tmp_path: Path) -> None:
    static = replace(
        description, architecture="static", encoder=StaticConfig(vocab_size=8, hidden_size=description.dim)
    )
    with pytest.raises(UnsupportedModel, match="does not support this kind of model for embed"):
        load(FixedShapes("BertModel"), static, tmp_path)


def test_a_model_whose_type_is_another_class_in_transformers_is_refused(
    description: ModelDescription, tmp_path: Path
) -> None:
    published = {"position_embedding_type": "absolute", "type_vocab_size": 1}
    encoder = XlmRobertaFlashConfig.read(published)
    with pytest.raises(UnsupportedModel, match="which has none for this model"):
        load(FixedShapes("BertModel"), replace(description, encoder=encoder), tmp_path)


# What optimum-neuron is asked for, by a package that stands in its place.


class Traced:
    """`NeuronTracedModel`, as far as it is used."""

    asked: list[dict[str, Any]] = []  # noqa: RUF012
    refuses = False

    def __init__(self) -> None:
        self.input_static_shapes = {"input_ids": (1, 16), "attention_mask": (1, 16)}

    @classmethod
    def from_pretrained(cls, model: str, **settings: Any) -> "Traced":
        if cls.refuses:
            raise KeyError("gte is not supported")
        cls.asked.append({"model": model, **settings})
        return cls()

    def save_pretrained(self, folder: str) -> None:
        (Path(folder) / "model.neuron").write_bytes(b"compiled")

    def __call__(self, **inputs: Any) -> Any:
        assert sorted(inputs) == ["attention_mask", "input_ids"]
        return SimpleNamespace(last_hidden_state=inputs["input_ids"][..., None].half())


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> type[Traced]:
    monkeypatch.setattr(Traced, "asked", [])
    monkeypatch.setattr(Traced, "refuses", False)
    package, module = ModuleType("optimum"), ModuleType("optimum.neuron")
    vars(module)["NeuronModelForFeatureExtraction"] = Traced
    vars(package)["neuron"] = module
    monkeypatch.setitem(sys.modules, "optimum", package)
    monkeypatch.setitem(sys.modules, "optimum.neuron", module)
    return Traced


@pytest.mark.parametrize(
    ("precision", "casts"),
    [(Precision.FP32, {}), (Precision.BF16, {"auto_cast": "matmul", "auto_cast_type": "bf16"})],
)
def test_optimum_is_asked_for_one_fixed_shape(
    description: ModelDescription,
    tmp_path: Path,
    traced: type[Traced],
    precision: Precision,
    casts: dict[str, str],
) -> None:
    OptimumCompiler().compile(description, Bucket(16, 4), precision, tmp_path)
    assert (tmp_path / "model.neuron").exists()
    [asked] = traced.asked
    assert asked["model"] == str(description.directory)
    assert (asked["export"], asked["batch_size"], asked["sequence_length"]) == (True, 4, 16)
    assert asked["local_files_only"]
    assert {key: value for key, value in asked.items() if key.startswith("auto_cast")} == casts


def test_what_optimum_gives_becomes_float32(
    description: ModelDescription, tmp_path: Path, traced: type[Traced]
) -> None:
    compute = OptimumCompiler().load(description, tmp_path)
    ones = np.ones((1, 16), np.int64)
    values = compute({"input_ids": ones * 3, "attention_mask": ones, "token_type_ids": ones})
    assert values.dtype == np.float32
    assert values.shape == (1, 16, 1)
    assert (values == 3).all()


def test_what_optimum_cannot_compile_names_the_shape(
    description: ModelDescription, tmp_path: Path, traced: type[Traced]
) -> None:
    traced.refuses = True
    with pytest.raises(
        UnsupportedModel, match="cannot compile the model for 4 texts of 16 tokens: 'gte is not"
    ):
        OptimumCompiler().compile(description, Bucket(16, 4), Precision.FP32, tmp_path)
