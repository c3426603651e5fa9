"""The ONNX engine: first and later starts, its errors, and what it leaves unimported."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from engines.later_starts import GRAPH_BUILDERS, imports_of_start
from support.texts import short_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.engines.base import choose_precision
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.errors import CorruptModel, InferenceFailed, InvalidConfig, UnsupportedModel
from vecmill.graphs.batch_layout import UNMASKED_TOKENS
from vecmill.hardware.processor import multiplies_bf16
from vecmill.models import ModelDescription, locate_model
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan, Precision

# Layers of 64 inputs and outputs, the smallest that are computed in less than fp32.
WIDE = TinyBert(config={"hidden_size": 64, "intermediate_size": 128})


@pytest.fixture
def description(tmp_path: Path) -> ModelDescription:
    return describe_model(locate_model(save_tiny_bert(tmp_path / "model", TinyBert())))


def test_a_later_start_imports_no_graph_builder(description: ModelDescription, tmp_path: Path) -> None:
    first, later = (
        imports_of_start(description.directory, tmp_path / "cache", "onnx", besides=set()) for _ in range(2)
    )
    assert first == GRAPH_BUILDERS
    assert later == set()


def test_widths_follow_the_cores(description: ModelDescription, kept_models: Path) -> None:
    for cores, widths in ((1, (1,)), (2, (1, 2))):
        engine = OnnxEngine.load(description, EnginePlan(), cores=cores, cache_dir=kept_models)
        assert engine.info.lane_widths == widths
        assert engine.info.precision == "fp32"
        assert engine.prepared_model_path.is_relative_to(kept_models)
        engine.close()


# Prints the processor time of the process in the rests after calls of a wide session, in seconds.
RESTS = """
import sys, threading, time
from pathlib import Path
from vecmill.directory_layouts import describe_model
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.models import locate_model
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.engine_plan import EnginePlan

description = describe_model(locate_model(sys.argv[1]))
engine = OnnxEngine.load(description, EnginePlan(), cores=2, cache_dir=Path(sys.argv[2]))
batch = Batch.of([TokenSequence.of([5] * engine.info.max_tokens)] * 8)
spent_s = 0.0
for _ in range(20):
    engine.run(batch, width=2)
    began_s = time.process_time()
    threading.Event().wait(0.01)
    spent_s += time.process_time() - began_s
print(spent_s)
"""


def test_no_thread_computes_after_a_call(description: ModelDescription, kept_models: Path) -> None:
    """The cores are the event loop's and the client's. Spinning for 2 ms after each call would take 40 ms."""
    command = [sys.executable, "-c", RESTS, str(description.directory), str(kept_models)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    assert float(done.stdout) < 0.02


def test_calls_of_all_widths_at_once_give_the_rows_of_calls_alone(
    description: ModelDescription, tmp_path: Path
) -> None:
    plan = EnginePlan(lane_widths=(1, 2, 4))
    engine = OnnxEngine.load(description, plan, cores=8, cache_dir=tmp_path)
    batches = [
        Batch.of(Tokenizer.load(description).encode(short_texts(seed, 1 + seed % 3))) for seed in range(24)
    ]
    alone = [engine.run(batch, width=1).values for batch in batches]
    with ThreadPoolExecutor(8) as pool:
        together = list(
            pool.map(lambda index: engine.run(batches[index], width=(1, 2, 4)[index % 3]), range(24))
        )
    engine.close()
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(other.values, one, rtol=0, atol=1e-6)


@pytest.mark.parametrize("length", [UNMASKED_TOKENS, UNMASKED_TOKENS + 1, 256])
def test_a_lone_text_without_a_mask_has_the_row_of_a_text_in_a_batch(length: int, kept_models: Path) -> None:
    description = describe_model(locate_model())
    assert not description.has_long_texts
    engine = OnnxEngine.load(description, EnginePlan(), cores=1, cache_dir=kept_models)
    ids = np.random.default_rng(length).integers(1_000, 30_000, (2, length)).tolist()
    text, other = map(TokenSequence.of, ids)
    alone = engine.run(Batch.of([text]), width=1).values[0]
    for place, neighbours in enumerate(([text, other], [other, text])):
        together = engine.run(Batch.of(neighbours), width=1).values[place]
        np.testing.assert_allclose(alone, together, rtol=0, atol=1e-6)
    engine.close()


@pytest.fixture
def with_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arm's instructions for bf16. On other processors ONNX Runtime computes in fp32 all the same."""
    monkeypatch.setattr("vecmill.engines.onnx.engine.multiplies_bf16", lambda: True)


def test_bf16_is_refused_where_the_processor_lacks_it(
    description: ModelDescription, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vecmill.engines.onnx.engine.multiplies_bf16", lambda: False)
    plan = EnginePlan("onnx", Precision.BF16)
    with pytest.raises(InvalidConfig, match="does not compute in bf16 on this machine"):
        OnnxEngine.load(description, plan, cores=1, cache_dir=tmp_path)


@pytest.mark.usefixtures("with_bf16")
def test_bf16_is_offered_and_fp32_stays_the_default(description: ModelDescription, kept_models: Path) -> None:
    assert OnnxEngine.find_capabilities().devices["cpu"][:2] == (Precision.FP32, Precision.BF16)
    engine = OnnxEngine.load(description, EnginePlan(), cores=1, cache_dir=kept_models)
    assert engine.info.precision is Precision.FP32
    engine.close()


@pytest.mark.usefixtures("with_bf16")
def test_in_bf16_no_product_is_fused_with_its_bias_and_rows_stay_the_same(tmp_path: Path) -> None:
    description = describe_model(locate_model(save_tiny_bert(tmp_path / "model", WIDE)))
    batch = Batch.of(Tokenizer.load(description).encode(short_texts(1, 5)))
    rows, operators = {}, {}
    for precision in (Precision.FP32, Precision.BF16):
        plan = EnginePlan("onnx", precision)
        engine = OnnxEngine.load(description, plan, cores=2, cache_dir=tmp_path)
        graph = onnx.load(engine.prepared_model_path, load_external_data=False).graph
        operators[precision] = {node.op_type for node in graph.node}
        rows[precision] = [engine.run(batch, width=width).values for width in engine.info.lane_widths]
        assert engine.info.precision is precision
        engine.close()
    assert "Gemm" in operators[Precision.FP32]
    assert "Gemm" not in operators[Precision.BF16]
    atol = 1e-2 if multiplies_bf16() else 1e-6
    np.testing.assert_allclose(rows[Precision.BF16], rows[Precision.FP32], rtol=0, atol=atol)


@pytest.mark.usefixtures("with_bf16")
def test_a_model_without_large_layers_is_refused_in_bf16(
    description: ModelDescription, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModel, match="no linear layers that can be computed in bf16"):
        OnnxEngine.load(description, EnginePlan("onnx", Precision.BF16), cores=1, cache_dir=tmp_path)


@pytest.mark.usefixtures("with_bf16")
def test_every_session_of_a_bf16_engine_computes_in_bf16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description = describe_model(locate_model(save_tiny_bert(tmp_path / "model", WIDE)))
    opened = []
    open_session = onnxruntime.InferenceSession

    def record(source: object, options: onnxruntime.SessionOptions, **others: object) -> object:
        opened.append(options.get_session_config_entry("mlas.enable_gemm_fastmath_arm64_bfloat16"))
        return open_session(source, options, **others)

    monkeypatch.setattr("onnxruntime.InferenceSession", record)
    plan = EnginePlan("onnx", Precision.BF16)
    OnnxEngine.load(description, plan, cores=2, cache_dir=tmp_path).close()
    assert len(opened) >= 3  # one that prepares, and one for each width
    assert set(opened) == {"1"}


def test_rows_need_no_cache(description: ModelDescription, tmp_path: Path) -> None:
    sequences = Tokenizer.load(description).encode(short_texts(1, 5))
    blocked = tmp_path / "a file"
    blocked.write_bytes(b"")
    kept = OnnxEngine.load(description, EnginePlan(), cores=1, cache_dir=tmp_path / "cache")
    temporary = OnnxEngine.load(description, EnginePlan(), cores=1, cache_dir=blocked)
    keep_tokens, temporary_rows = (
        engine.run(Batch.of(sequences), width=1).values for engine in (kept, temporary)
    )
    assert np.array_equal(keep_tokens, temporary_rows)
    for engine in (kept, temporary):
        engine.close()
    assert kept.prepared_model_path.exists()
    assert not temporary.prepared_model_path.exists()


def test_what_the_runtime_raises_becomes_our_error(description: ModelDescription, kept_models: Path) -> None:
    engine = OnnxEngine.load(description, EnginePlan(), cores=1, cache_dir=kept_models)
    beyond = Batch.of([TokenSequence.of([1, description.vocab_size])])
    with pytest.raises(InferenceFailed, match="failed on 1 texts with 2 tokens in total") as caught:
        engine.run(beyond, width=1)
    assert str(description.vocab_size) not in caught.value.message
    assert len(engine.run(Batch.of([TokenSequence.of([1, 2])]), width=1)) == 1
    engine.close()


def test_a_closed_engine_and_an_unknown_width_say_so(
    description: ModelDescription, kept_models: Path
) -> None:
    batch = Batch.of([TokenSequence.of([1, 2])])
    engine = OnnxEngine.load(description, EnginePlan(), cores=1, cache_dir=kept_models)
    with pytest.raises(InferenceFailed, match="no open session for calls on 7 cores"):
        engine.run(batch, width=7)
    engine.close()
    with pytest.raises(InferenceFailed, match="no open session"):
        engine.run(batch, width=1)


def test_nan_stays_with_its_text(tmp_path: Path) -> None:
    # A word whose embedding overflows spoils its own text; the padding of a neighbour must not carry it over.
    import safetensors.numpy

    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    tensors = safetensors.numpy.load_file(directory / "model.safetensors")
    tensors["embeddings.word_embeddings.weight"][7] = np.nan
    safetensors.numpy.save_file(tensors, directory / "model.safetensors")
    engine = OnnxEngine.load(
        describe_model(locate_model(directory)), EnginePlan(), cores=1, cache_dir=tmp_path / "cache"
    )
    for spoilt in range(3):
        sequences = [TokenSequence.of([2, *([9] * (5 * place)), 3]) for place in range(3)]
        sequences[spoilt] = TokenSequence.of([2, 7, 3])
        values = engine.run(Batch.of(sequences), width=1).values
        assert np.isnan(values).any(axis=1).tolist() == [place == spoilt for place in range(3)]
    engine.close()


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    import safetensors.numpy

    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    tensors = safetensors.numpy.load_file(directory / "model.safetensors")
    del tensors["encoder.layer.1.output.dense.bias"]
    safetensors.numpy.save_file(tensors, directory / "model.safetensors")
    with pytest.raises(CorruptModel, match=r"encoder\.layer\.1\.output\.dense\.bias"):
        OnnxEngine.load(
            describe_model(locate_model(directory)), EnginePlan(), cores=1, cache_dir=tmp_path / "cache"
        )


@pytest.mark.parametrize("precision", Precision)
def test_a_plan_may_have_its_precision_as_a_plain_string(precision: Precision) -> None:
    """Callers without types write one, and an engine that tells precisions by identity would quantise."""
    plan = EnginePlan(precision=str(precision.value))  # type: ignore[arg-type]
    assert choose_precision(plan, tuple(Precision)) is precision
