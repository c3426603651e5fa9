"""The outputs of token heads: what a call computes of them, and what an engine makes of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.bge_m3 import draw_heads, save_bge_m3, save_heads
from support.published import WIDTH
from support.pytorch_files import save_arrays
from vecmill.batching.containment import MemoryLimit, run_contained
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES, load_engine
from vecmill.engines.fake import FakeEngine
from vecmill.engines.session_calls import join_embeddings, make_embeddings
from vecmill.errors import CorruptModel, NonFiniteOutput
from vecmill.models import ModelDescription, locate_model, prepared_name
from vecmill.models.fingerprint import fingerprint_model
from vecmill.models.heads import find_head_files
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import (
    HEAD_OUTPUTS,
    CombinedEmbedding,
    Embeddings,
    Output,
    SparseEmbedding,
    UnitEmbedding,
)
from vecmill.values.engine_plan import EnginePlan
from vecmill.vectors import dense, sparse

INFO = FakeEngine(dim=2).info
IDS = [[0, 7, 5, 7, 2], [0, 2], [0], [0, 9, 9]]


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    return describe_model(locate_model(save_bge_m3(tmp_path_factory.mktemp("model") / "bge", seed=3)))


def batch_of(*outputs: Output) -> Batch:
    return Batch.of([TokenSequence.of(ids).asking(*outputs) for ids in IDS])


def pool(weights: list[float]) -> list[SparseEmbedding]:
    values = np.array(weights, np.float32)[:, None]
    made = make_embeddings(INFO, [values], batch_of(Output.TOKEN_WEIGHTS), computed_tokens=0)
    return list(map(sparse, made.split()))


def test_the_largest_weight_of_each_token_is_kept_without_zeros() -> None:
    # The tokens are 7, 5, 7, 2 of the first text, 2 of the second, none of the third, 9 and 9 of the last.
    first, second, third, last = pool([0.25, 0.0, 0.5, 2.0, 0.0, 1.5, 1.0])
    assert (first.columns.tolist(), first.values.tolist()) == ([2, 7], [2.0, 0.5])
    assert len(second.columns) == len(second.values) == len(third.columns) == 0
    assert (last.columns.tolist(), last.values.tolist()) == ([9], [1.5])
    assert all(len(each.columns) == 0 for each in pool([0.0] * 7))


def test_a_weight_that_is_not_a_number_stays_so_and_stays_with_its_text() -> None:
    first, second, _, last = pool([0.25, 1.0, np.nan, 2.0, 1.0, 1.5, 1.0])
    assert np.isnan(first.values).tolist() == [False, False, True]
    assert np.isfinite(second.values).all()
    assert np.isfinite(last.values).all()


def test_a_batch_names_the_tokens_of_the_heads_only_if_it_asks_for_them() -> None:
    assert batch_of(Output.USUAL).head_tokens.tolist() == []
    assert batch_of(Output.HIDDEN_STATES).head_tokens.tolist() == []
    for output in HEAD_OUTPUTS:
        assert batch_of(output).head_tokens.tolist() == [1, 2, 3, 4, 6, 9, 10]


def test_sequences_that_ask_for_other_outputs_are_other_jobs() -> None:
    plain = TokenSequence.of(IDS[0])
    asked = [(Output.USUAL,), HEAD_OUTPUTS, HEAD_OUTPUTS[:1], HEAD_OUTPUTS[1:], (Output.HIDDEN_STATES,)]
    assert len({plain.asking(*outputs).key for outputs in asked}) == len(asked)
    assert plain.asking(Output.USUAL).key == plain.key
    assert plain.asking(*HEAD_OUTPUTS[::-1]).outputs == (Output.USUAL, *HEAD_OUTPUTS)


def test_outputs_of_one_call_are_those_of_a_call_for_each(
    description: ModelDescription, kept_models: Path
) -> None:
    engine = load_engine(description, EnginePlan("onnx"), cores=1, cache_dir=kept_models)
    sequences = [TokenSequence.of(ids) for ids in IDS if len(ids) > 1]
    together = engine.run(Batch.of([each.asking(*HEAD_OUTPUTS) for each in sequences]), width=1)
    single = {
        output: engine.run(Batch.of([each.asking(output) for each in sequences]), width=1).split()
        for output in (Output.USUAL, *HEAD_OUTPUTS)
    }
    engine.close()
    for index, found in enumerate(together.split()):
        assert isinstance(found, CombinedEmbedding)
        usual = single[Output.USUAL][index]
        assert isinstance(found.usual, UnitEmbedding)
        assert isinstance(usual, UnitEmbedding)
        # The heads need all tokens of the last layer, the embedding alone needs one: products with
        # other numbers of rows are added up in another order on some processors.
        np.testing.assert_allclose(found.usual.values, usual.values, rtol=0, atol=1e-6)
        weights, vectors = (single[output][index] for output in HEAD_OUTPUTS)
        ours = sparse(found.others[Output.TOKEN_WEIGHTS])
        np.testing.assert_array_equal(ours.columns, sparse(weights).columns)
        np.testing.assert_array_equal(ours.values, sparse(weights).values)
        np.testing.assert_array_equal(dense(found.others[Output.TOKEN_VECTORS]), dense(vectors))
        assert dense(vectors).shape == (len(sequences[index]) - 1, WIDTH)
    joined = join_embeddings(together.split(), computed_tokens=5)
    np.testing.assert_array_equal(joined.values, together.values)
    for output in HEAD_OUTPUTS:
        np.testing.assert_array_equal(joined.others[output].values, together.others[output].values)
        np.testing.assert_array_equal(joined.others[output].offsets, together.others[output].offsets)


@pytest.mark.promise("finite-embeddings")
@pytest.mark.parametrize("output", HEAD_OUTPUTS)
def test_a_text_fails_alone_if_any_of_its_outputs_is_not_finite(output: Output) -> None:
    engine = FakeEngine()

    def run(batch: Batch) -> Embeddings:
        found = engine.run(batch, width=1)
        other = found.others[output]
        values = other.values.copy()
        values[other.offsets[3]] = np.nan
        return replace(found, others={**found.others, output: replace(other, values=values)})

    sequences = [TokenSequence.of(ids).asking(*HEAD_OUTPUTS) for ids in IDS]
    outcomes = run_contained(run, sequences, MemoryLimit()).outcomes
    assert [isinstance(outcome, NonFiniteOutput) for outcome in outcomes] == [False, False, False, True]


def test_the_heads_change_the_prepared_graph_and_not_the_fingerprint(
    description: ModelDescription, tmp_path: Path
) -> None:
    plain = replace(description, token_heads=None)
    assert fingerprint_model(description) == fingerprint_model(plain)
    other = describe_model(locate_model(save_bge_m3(tmp_path / "bge", seed=3)))
    assert prepared_name(other) == prepared_name(description)
    save_heads(tmp_path / "bge", seed=9)
    assert len({prepared_name(one) for one in (description, plain, other)}) == 3


@pytest.mark.promise("finite-embeddings")
@pytest.mark.skipif(
    not ENGINES["openvino"].is_installed, reason="openvino is not installed: pip install 'vecmill[openvino]'"
)
def test_a_weight_that_is_not_a_number_does_not_become_zero(tmp_path: Path) -> None:
    """OpenVINO's Relu makes zero of it."""
    folder = save_bge_m3(tmp_path / "bge", seed=3)
    head = draw_heads(4)["sparse_linear"]
    save_arrays(folder / "sparse_linear.pt", {**head, "bias": np.full(1, np.nan, np.float32)})
    broken = describe_model(locate_model(folder))
    engine = load_engine(broken, EnginePlan("openvino"), cores=1, cache_dir=tmp_path / "cache")
    found = engine.run(Batch.of([TokenSequence.of(IDS[0]).asking(Output.TOKEN_WEIGHTS)]), width=1)
    engine.close()
    weights = sparse(found.split()[0])
    assert weights.columns.tolist() == [2, 5, 7]
    assert np.isnan(weights.values).all()


def test_heads_are_used_if_both_are_there_and_safetensors_first(tmp_path: Path) -> None:
    assert find_head_files(["sparse_linear.pt", "colbert_linear.pt", "sparse_linear.safetensors"]) == [
        "sparse_linear.safetensors",
        "colbert_linear.pt",
    ]
    folder = save_bge_m3(tmp_path / "bge", seed=3)
    (folder / "colbert_linear.pt").unlink()
    assert describe_model(locate_model(folder)).token_heads is None


def test_a_head_of_another_width_is_refused(tmp_path: Path) -> None:
    folder = save_bge_m3(tmp_path / "bge", seed=3)
    (folder / "sparse_linear.pt").write_bytes((folder / "colbert_linear.pt").read_bytes())
    broken = describe_model(locate_model(folder))
    with pytest.raises(CorruptModel, match=r"sparse_linear\.pt: tensor 'weight' has shape \[32, 32\]"):
        load_engine(broken, EnginePlan("onnx"), cores=1, cache_dir=tmp_path / "cache")
