"""What an exported graph gives besides embeddings: all of it, or a refusal in words."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from support.exported_models import export_graph, pool_mean, without_weights
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import Embed, EmbedTokens, Mill, MillConfig
from vecmill.errors import UnsupportedTask

TEXTS = ("a text", "another one, that is longer", "")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


@pytest.fixture(scope="module")
def plain(root: Path) -> Path:
    """A tiny model that normalises, with its safetensors."""
    return save_tiny_bert(root / "plain", TinyBert())


@pytest.fixture(scope="module")
def exported(root: Path, plain: Path) -> Path:
    """The same model as a graph with the hidden states and the finished embedding."""
    directory = without_weights(plain, root / "exported")
    export_graph(plain, directory / "model.onnx", "BertModel", finish=pool_mean)
    return directory


@pytest.fixture(scope="module")
def finished(root: Path, exported: Path) -> Path:
    """The same model as a graph with the finished embedding alone."""
    directory = without_weights(exported, root / "finished")
    model = onnx.load(directory / "model.onnx")
    del model.graph.output[0]
    onnx.save(model, directory / "model.onnx")
    return directory


async def test_a_graph_of_hidden_states_has_all_outputs(plain: Path, exported: Path, tmp_path: Path) -> None:
    config = MillConfig(cache_dir=tmp_path, cores=1)
    async with Mill(plain, config) as expected, Mill(exported, config) as mill:
        for request in (Embed(TEXTS), Embed(TEXTS, normalize=False), Embed(TEXTS, 8, normalize=False)):
            found, wanted = await mill.run(request), await expected.run(request)
            np.testing.assert_allclose(found.embeddings, wanted.embeddings, atol=1e-5)
        tokens = EmbedTokens(TEXTS, hidden_states=True)
        for states, others in zip(
            (await mill.run(tokens)).embeddings, (await expected.run(tokens)).embeddings, strict=True
        ):
            np.testing.assert_allclose(states, others, atol=1e-5)


async def test_a_finished_graph_says_what_it_lacks(
    finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Mill(finished, MillConfig(cache_dir=tmp_path, cores=1)) as mill:
        for normalize in (None, True):
            rows = (await mill.run(Embed(TEXTS, normalize=normalize))).embeddings
            np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
        with pytest.raises(UnsupportedTask, match="it cannot leave out its normalisation") as refusal:
            await mill.run(Embed(TEXTS, normalize=False))
        assert refusal.value.field == "normalize"
        with pytest.raises(UnsupportedTask, match="it cannot return hidden states"):
            await mill.run(EmbedTokens(TEXTS, hidden_states=True))
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
