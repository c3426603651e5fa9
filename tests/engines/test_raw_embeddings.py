"""The outputs of an embedding model besides its embeddings: before its normalisation, and of each token."""

import asyncio
import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import Embed, EmbedTokens, Mill, MillConfig, OutputDtype
from vecmill.directory_layouts import describe_model
from vecmill.engines import ENGINES, load_engine
from vecmill.errors import RequestTooLarge, UnsupportedTask
from vecmill.models import ModelDescription, Task, fingerprint_model, locate_model, prepared_name
from vecmill.models.fingerprint import INPUTS_VERSION
from vecmill.values.aliases import FloatArray
from vecmill.values.batch import Batch, TokenSequence
from vecmill.values.embeddings import Embeddings, Output, UnitEmbedding
from vecmill.values.engine_plan import EnginePlan
from vecmill.vectors import stack_embeddings, stack_raw_embeddings

TEXTS = ("a text", "another one, that is longer", "")


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    """A model that normalises."""
    return describe_model(locate_model(save_tiny_bert(tmp_path_factory.mktemp("unit"), TinyBert())))


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> ModelDescription:
    """The same weights without the module."""
    directory = save_tiny_bert(tmp_path_factory.mktemp("raw"), TinyBert(normalize=False))
    return describe_model(locate_model(directory))


@pytest.mark.parametrize(
    "engine", [name for name, entry in sorted(ENGINES.items()) if entry.is_installed and name != "fake"]
)
def test_the_length_is_kept(
    unit: ModelDescription, raw: ModelDescription, kept_programs: Path, engine: str
) -> None:
    batch = Batch.of([TokenSequence.of([5] * length) for length in (3, 40, 1)])
    # The compilation of another model would take half a minute.
    plans = ((unit, engine), (raw, "onnx"))
    ours, plain = (_compute(one, EnginePlan(name), batch, kept_programs) for one, name in plans)
    assert plain.lengths is None
    assert ours.lengths is not None
    assert np.abs(ours.lengths - 1).min() > 0.1, "the model would not need to normalise"
    parts = ours.split()
    assert all(isinstance(part, UnitEmbedding) for part in parts)
    np.testing.assert_allclose(np.linalg.norm(stack_embeddings(parts), axis=1), 1, rtol=1e-6)
    scale = float(np.abs(plain.values).max())
    np.testing.assert_allclose(stack_raw_embeddings(parts), plain.values, atol=1e-5 * scale)


def _compute(description: ModelDescription, plan: EnginePlan, batch: Batch, cache_dir: Path) -> Embeddings:
    engine = load_engine(description, plan, cores=2, cache_dir=cache_dir)
    try:
        return engine.run(batch, width=1)
    finally:
        engine.close()


async def test_requests_choose(unit: ModelDescription, raw: ModelDescription, kept_programs: Path) -> None:
    config = MillConfig(cache_dir=kept_programs, cores=1)
    async with Mill(unit, config) as mill, Mill(raw, config) as plain:
        expected = (await plain.run(Embed(TEXTS))).embeddings
        scale = np.linalg.norm(expected, axis=1, keepdims=True)
        for normalize in (None, True):
            found = (await mill.run(Embed(TEXTS, normalize=normalize))).embeddings
            np.testing.assert_allclose(found, expected / scale, atol=1e-6)
        found = (await mill.run(Embed(TEXTS, normalize=False))).embeddings
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        cut = (await mill.run(Embed(TEXTS, 8, normalize=False))).embeddings
        np.testing.assert_array_equal(cut, found[:, :8])


async def test_int8_has_the_range_of_such_embeddings(
    unit: ModelDescription, raw: ModelDescription, kept_programs: Path
) -> None:
    config = MillConfig(cache_dir=kept_programs, cores=1)
    async with Mill(unit, config) as mill, Mill(raw, config) as plain:
        asked = Embed(TEXTS, normalize=False, dtypes=(OutputDtype.INT8,))
        found, expected = await mill.run(asked), await plain.run(asked)
        assert found.ranges is not None
        assert expected.ranges is not None
        np.testing.assert_allclose(found.ranges, expected.ranges, rtol=1e-5, atol=1e-6)
        assert np.abs(found.ranges).max() > 1.5


def test_prepared_graphs_have_other_names_and_models_the_same_fingerprint(unit: ModelDescription) -> None:
    """Older graphs normalise, and give nothing for each token."""
    assert prepared_name(unit) == f"{fingerprint_model(unit)}-{INPUTS_VERSION}-tokens"
    other = replace(unit, task=Task.CLASSIFY)
    assert prepared_name(other) == f"{fingerprint_model(other)}-{INPUTS_VERSION}"


def hidden_states(description: ModelDescription, sequences: Sequence[TokenSequence]) -> list[FloatArray]:
    """What transformers gives for each text alone."""
    import torch
    import transformers

    model = transformers.AutoModel.from_pretrained(str(description.directory)).float().eval()
    with torch.no_grad():
        return [
            model(input_ids=torch.from_numpy(sequence.token_ids)[None]).last_hidden_state[0].numpy()
            for sequence in sequences
        ]


@pytest.mark.parametrize(
    "engine", [name for name, entry in sorted(ENGINES.items()) if entry.is_installed and name != "fake"]
)
def test_tokens_have_their_last_hidden_states(
    unit: ModelDescription, kept_programs: Path, engine: str
) -> None:
    sequences = [TokenSequence.of(list(range(5, 5 + length))) for length in (3, 40, 1)]
    batch = Batch.of([sequence.asking(Output.HIDDEN_STATES) for sequence in sequences])
    found = _compute(unit, EnginePlan(engine), batch, kept_programs)
    assert found.lengths is None
    for index, expected in enumerate(hidden_states(unit, sequences)):
        np.testing.assert_allclose(found.of_text(index), expected, atol=1e-4)


async def test_both_kinds_of_output_of_a_text_may_wait_at_once(
    unit: ModelDescription, kept_programs: Path
) -> None:
    async with Mill(unit, MillConfig(cache_dir=kept_programs, cores=1)) as mill:
        tokens, rows = await asyncio.gather(
            mill.run(EmbedTokens(TEXTS, hidden_states=True)), mill.run(Embed(TEXTS, normalize=False))
        )
        for states, row in zip(tokens.embeddings, rows.embeddings, strict=True):
            np.testing.assert_allclose(states.mean(axis=0), row, atol=1e-5)  # the model pools by the mean
        assert tokens.token_count == rows.token_count
        with pytest.raises(UnsupportedTask, match="it cannot give an embedding for each token"):
            await mill.run(EmbedTokens(TEXTS))


async def test_hidden_states_of_too_many_tokens_are_refused(
    unit: ModelDescription, kept_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("vecmill.operations.embed")
    monkeypatch.setattr(module, "MOST_HIDDEN_NUMBERS", 32 * 10)
    async with Mill(unit, MillConfig(cache_dir=kept_programs, cores=1)) as mill:
        await mill.run(EmbedTokens(("a",), hidden_states=True))
        with pytest.raises(RequestTooLarge, match="at most 10 hidden states"):
            await mill.run(EmbedTokens(("a",) * 4, hidden_states=True))
