"""Sessions fed in other ways than ragged give the same outputs, and no more."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from support.rows_check import assert_same_rows, compute_rows
from support.task_models import save_task_model
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.engines.onnx import engine as onnx_engine
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.engines.providers import ProviderChoice
from vecmill.engines.session_calls import CallPool, IndexedCall, RaggedCall
from vecmill.errors import InvalidConfig
from vecmill.graphs.batch_layout import IndexedLayout
from vecmill.graphs.finish import drop_unused, write_graph
from vecmill.models import ModelDescription, Task, locate_model
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import OutputShape
from vecmill.values.engine_plan import EnginePlan

LENGTHS = [1, 2, 5, 12, 30, 40, 40, 3, 17, 8]
FORMS = {
    OutputShape.TEXT: ("BertForSequenceClassification", {"num_labels": 3}, None),
    OutputShape.TOKEN: ("BertForTokenClassification", {"num_labels": 4}, None),
    OutputShape.SPARSE: ("BertForMaskedLM", {}, Task.SPARSE),
}


def sequences() -> list[TokenSequence]:
    random = np.random.default_rng(5)
    return [TokenSequence.of(random.integers(5, 500, length).tolist()) for length in LENGTHS]


def open_session(model: Any, path: Path) -> onnxruntime.InferenceSession:
    write_graph(model, path)
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_callers_share_a_session_only_if_there_are_more_of_them_than_sessions() -> None:
    pool_calls: list[list[Any]] = []
    asked: list[str] = []
    batch = Batch.of(sequences()[:1])

    def make(name: str) -> Any:
        def call(_batch: Batch) -> list[Any]:
            asked.append(name)
            if len(asked) < 4:  # each caller is still at it when the next one comes
                pool_calls.append(pool(batch))
            return [name]

        return call

    pool = CallPool([make("first"), make("second")])
    assert pool(batch) == ["second"]  # the last one of the list is free first
    assert sorted(asked[:2]) == ["first", "second"]
    assert len(asked) == 4
    asked[:] = ["no more calls within calls"] * 4
    assert [pool(batch)[0] for _ in range(3)] == [pool(batch)[0]] * 3  # the one that was used last


def test_a_session_whose_call_raises_is_used_again() -> None:
    def fail(_batch: Batch) -> list[Any]:
        raise ValueError("scripted")

    pool = CallPool([fail])
    for _ in range(2):
        with pytest.raises(ValueError, match="scripted"):
            pool(Batch.of(sequences()[:1]))


@pytest.mark.parametrize("output_shape", FORMS)
@pytest.mark.parametrize("compiles", [True, False])
def test_indices_from_outside_give_the_same_outputs(
    tmp_path: Path, output_shape: OutputShape, compiles: bool
) -> None:
    class_name, settings, task = FORMS[output_shape]
    directory = save_task_model(tmp_path / "model", class_name, **settings)
    description = describe_model(locate_model(directory), task)
    ragged = RaggedCall(open_session(build_graph(description), tmp_path / "ragged.onnx"))
    plain = drop_unused(build_graph(description, IndexedLayout))
    indexed = IndexedCall(
        open_session(plain, tmp_path / "indexed.onnx"),
        output_shape,
        token_count=description.vocab_size,
        compiles=compiles,
    )
    texts = sequences()
    for batch in (Batch.of(texts), Batch.of(texts[:1]), Batch.of(texts[3:5])):
        for ours, expected in zip(indexed(batch), ragged(batch), strict=True):
            assert ours.shape == expected.shape
            assert np.abs(ours - expected).max() <= 1e-4 * max(1.0, float(np.abs(expected).max()))


class Watched:
    """A session that notes the shapes that it sees, and computes nothing."""

    def __init__(self) -> None:
        self.shapes: set[tuple[tuple[int, ...], ...]] = set()

    def get_outputs(self) -> list[Any]:
        return [type("Output", (), {"name": "rows"})()]

    def get_inputs(self) -> list[Any]:
        names = ("token_ids", "token_of_slot")
        return [type("Input", (), {"name": name})() for name in names]

    def run(self, names: list[str] | None, feed: dict[str, Any]) -> list[Any]:
        self.shapes.add(tuple(values.shape for values in feed.values()))
        return [np.zeros((len(feed["token_of_slot"]), 4), np.float32)]


def test_a_provider_that_compiles_sees_few_shapes() -> None:
    random = np.random.default_rng(1)
    seen = {}
    for compiles in (True, False):
        session = Watched()
        call = IndexedCall(session, OutputShape.TEXT, token_count=2, compiles=compiles)
        for _ in range(300):
            lengths = random.integers(1, 64, int(random.integers(1, 9)))
            batch = Batch.of([TokenSequence.of([1] * length) for length in lengths])
            assert call(batch)[0].shape == (len(batch), 4)
        seen[compiles] = len(session.shapes)
    assert seen[True] <= 12
    assert seen[False] > 200


# A provider that every wheel has and that computes nothing itself, so that all falls back on the CPU's.
STAND_IN = ProviderChoice(
    "stand-in:0", (("AzureExecutionProvider", {}), ("CPUExecutionProvider", {})), compiles=True
)


@pytest.fixture
def description(tmp_path: Path) -> ModelDescription:
    return describe_model(locate_model(save_tiny_bert(tmp_path / "model", TinyBert())))


def test_a_device_has_one_session_for_one_call_at_a_time(
    description: ModelDescription, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "AzureExecutionProvider" in onnxruntime.get_available_providers()
    cache_dir = tmp_path / "cache"
    expected = OnnxEngine.load(description, EnginePlan(), cores=2, cache_dir=cache_dir)
    monkeypatch.setattr(onnx_engine, "choose_provider", lambda device, offered, *, cache_dir: STAND_IN)
    for _ in range(2):  # a first and a later start
        engine = OnnxEngine.load(description, EnginePlan(device="stand-in"), cores=2, cache_dir=cache_dir)
        info = engine.info
        assert (info.device, info.lane_widths, info.parallel_calls) == ("stand-in:0", (1,), 1)
        assert engine.prepared_model_path != expected.prepared_model_path
        assert engine.warm_up(sequences()[:2]).per_token_s > 0
        texts = sequences()
        alone = compute_rows(lambda batch: expected.run(batch, width=1), texts, [[one] for one in range(10)])
        assert_same_rows(lambda batch: engine.run(batch, width=1), texts, alone)  # noqa: B023
        engine.close()
    expected.close()


def test_a_provider_that_did_not_come_up_is_not_replaced_in_silence(
    description: ModelDescription, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: offered)
    with (
        pytest.warns(UserWarning, match="CUDAExecutionProvider"),
        pytest.raises(InvalidConfig, match=r"could not start CUDAExecutionProvider for the device cuda:1"),
    ):
        OnnxEngine.load(description, EnginePlan(device="cuda:1"), cores=2, cache_dir=tmp_path / "cache")
