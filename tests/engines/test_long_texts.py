"""Long texts on each engine: the numbers of the reference in any company, in memory linear in the length."""

import json
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import long_texts
from bench.long_text_probe import PEAK
from bench.process_use import status_mb
from support.families import TinyFamily, random_sequences, reference_rows, save_tiny_family
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES, load_engine
from vecmill.engines.base import Engine
from vecmill.engines.buckets import select_texts
from vecmill.engines.long_texts import compute_groups, count_padded, group_long_texts
from vecmill.engines.onnx.engine import OnnxEngine
from vecmill.hardware.system_calls import second_cache_bytes
from vecmill.models import ModelDescription, locate_model
from vecmill.models.description import LONG_TEXT_TOKENS
from vecmill.values.aliases import FloatArray, IntArray
from vecmill.values.batch import Batch
from vecmill.values.embeddings import Output, OutputShape
from vecmill.values.engine_plan import EnginePlan

VOCABULARY = 60
POSITIONS = 8192
WINDOW = 128
WIDTH = 32
TOLERANCE = 1e-4
COMPANY_TOLERANCE = 1e-6
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
MODELS: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "modernbert": (
        "ModernBertModel",
        SIZES
        | {
            "local_attention": WINDOW,
            "layer_types": ["full_attention", "sliding_attention"],
            "cls_token_id": 1,
            "sep_token_id": 1,
        },
        "mean",
    ),
    "qwen3": ("Qwen3Model", SIZES | {"num_key_value_heads": 2, "head_dim": 8}, "lasttoken"),
}
# At the length from which texts are long, at the borders of blocks and of windows, and a short text.
LENGTHS = (LONG_TEXT_TOKENS + 1, 30, 1024, LONG_TEXT_TOKENS, 1025, 1, 640)


def save_directory(folder: Path, name: str) -> TinyFamily:
    """A model directory whose texts may have `POSITIONS` tokens."""
    class_name, settings, pooling = MODELS[name]
    tiny = save_tiny_family(folder, class_name, jitter=0.15, **settings)
    embedded = locate_model().directory
    shutil.copy(embedded / "tokenizer.json", folder / "tokenizer.json")
    files: dict[str, Any] = {
        "tokenizer_config.json": {
            "model_max_length": POSITIONS,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        "sentence_bert_config.json": {"max_seq_length": POSITIONS},
        "1_Pooling/config.json": {"word_embedding_dimension": WIDTH, "pooling_mode": pooling},
        "modules.json": [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(
                (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
            )
        ],
    }
    for path, content in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(content), encoding="utf-8")
    return tiny


def embed_alone(model: Any, token_ids: IntArray, pooling: str) -> FloatArray:
    import torch

    with torch.no_grad():
        ids = torch.from_numpy(token_ids)[None]
        hidden = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].numpy()
    row: FloatArray = hidden[-1] if pooling == "lasttoken" else hidden.mean(0)
    return row / np.linalg.norm(row)


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder


@pytest.fixture(scope="module")
def tiny(model: tuple[str, Path]) -> TinyFamily:
    return save_directory(model[1], model[0])


@pytest.fixture(scope="module")
def description(model: tuple[str, Path], tiny: TinyFamily) -> ModelDescription:
    found = describe_model(locate_model(model[1]))
    assert found.has_long_texts
    return found


@pytest.fixture(scope="module", params=["onnx", "openvino", "torch"])
def engine(
    request: pytest.FixtureRequest, description: ModelDescription, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    if not ENGINES[request.param].is_installed:
        pytest.skip(f"{request.param} is not installed")
    cache = tmp_path_factory.mktemp("cache")
    engine = load_engine(description, EnginePlan(request.param), cores=2, cache_dir=cache)
    yield engine
    engine.close()


def test_embeddings_of_long_texts_are_those_of_the_reference_in_any_company(
    engine: Engine, model: tuple[str, Path], tiny: TinyFamily
) -> None:
    sequences = random_sequences(LENGTHS, vocab_size=VOCABULARY)
    together = engine.run(Batch.of(sequences), width=1).values
    alone = np.concatenate([engine.run(Batch.of([one]), width=1).values for one in sequences])
    assert np.abs(together - alone).max() <= COMPANY_TOLERANCE
    pooling, texts = MODELS[model[0]][2], [sequence.token_ids for sequence in sequences]
    expected = tiny.reference.ask(
        ["embeddings", pooling, texts],
        lambda reference: np.stack([embed_alone(reference, ids, pooling) for ids in texts]),
    )
    assert np.abs(together - expected).max() <= TOLERANCE


def test_the_other_outputs_of_long_texts_keep_their_order(engine: Engine, tiny: TinyFamily) -> None:
    sequences = random_sequences((LENGTHS[0], 30, 1), vocab_size=VOCABULARY)
    found = engine.run(Batch.of([sequence.asking(Output.HIDDEN_STATES) for sequence in sequences]), width=1)
    lengths = engine.run(Batch.of(sequences), width=1).lengths
    assert lengths is not None
    states = reference_rows(tiny.reference, sequences)
    for index, (sequence, expected) in enumerate(zip(sequences, states, strict=True)):
        scale = float(np.abs(expected).max())
        np.testing.assert_allclose(found.of_text(index), expected, rtol=0, atol=TOLERANCE * scale)
        alone = engine.run(Batch.of([sequence]), width=1)
        assert alone.lengths is not None
        np.testing.assert_allclose(lengths[index], alone.lengths[0], rtol=1e-5)


@pytest.mark.skipif(
    not PEAK.exists(), reason="only Linux tells the largest memory of a process since a moment"
)
@pytest.mark.parametrize("engine", ["onnx"], indirect=True)
def test_memory_grows_with_the_length_and_is_returned(engine: Engine) -> None:
    """The scores of a head are 268 MB for 8,192 tokens: with four heads, and a softmax, 2 GB as a whole."""
    engine.run(Batch.of(random_sequences([LONG_TEXT_TOKENS + 1], vocab_size=VOCABULARY)), width=1)
    before_mb = status_mb("self", "VmRSS")
    PEAK.write_text("5")  # forgets the largest memory so far
    engine.run(Batch.of(random_sequences([POSITIONS], vocab_size=VOCABULARY)), width=1)
    assert status_mb("self", "VmHWM") - before_mb < 400
    assert status_mb("self", "VmRSS") - before_mb < 50


@pytest.mark.parametrize("engine", ["onnx"], indirect=True)
def test_short_texts_are_computed_beside_a_long_one(engine: Engine) -> None:
    long, *short = random_sequences((4096, 7, 100), vocab_size=VOCABULARY)
    batch = Batch.of(short)
    expected = engine.run(batch, width=1).values
    with ThreadPoolExecutor(1) as lane:
        beside = lane.submit(engine.run, Batch.of([long]), width=1)
        while not beside.done():
            assert np.array_equal(engine.run(batch, width=1).values, expected)
        assert np.isfinite(beside.result().values).all()


def test_all_other_texts_share_a_call() -> None:
    batch = Batch.of(random_sequences((5, 513, 512, 600, 1), vocab_size=VOCABULARY))
    groups = group_long_texts(batch)
    assert [group.tolist() for group in groups] == [[0, 2, 4], [1], [3]]
    assert count_padded(batch) == 3 * 512 + 513 + 600
    assert [group.tolist() for group in group_long_texts(select_texts(batch, [1, 3]))] == [[0], [1]]


@pytest.mark.parametrize("output_shape", [OutputShape.TOKEN, OutputShape.SPARSE])
def test_outputs_of_separate_calls_are_in_the_order_of_the_texts(output_shape: OutputShape) -> None:
    batch = Batch.of(random_sequences((3, 513, 2, 600), vocab_size=VOCABULARY))

    def compute(part: Batch) -> list[Any]:
        """Each token's own id as its output, as embeddings of tokens or as sparse weights."""
        values = part.token_ids.astype(np.float32)
        if output_shape is OutputShape.TOKEN:
            return [values[:, None]]
        return [values, part.token_ids, part.lengths]

    together = compute_groups(compute, batch, group_long_texts(batch), output_shape)
    for found, expected in zip(together, compute(batch), strict=True):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("engine", ["onnx"], indirect=True)
def test_graphs_in_the_cache_that_compute_long_texts_in_another_way_are_not_used(engine: Engine) -> None:
    assert isinstance(engine, OnnxEngine)
    way = "-flash-" if second_cache_bytes() else "-blocks-"
    assert way in engine.prepared_model_path.parent.name
    assert not describe_model(locate_model()).has_long_texts


@pytest.mark.full
def test_8192_tokens_fit_into_memory_at_the_size_of_modernbert_base() -> None:
    assert long_texts.main(["--lengths", "128", "8192", "--width", "2"]) == 0
