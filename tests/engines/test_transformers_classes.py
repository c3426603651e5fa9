"""Classes of transformers on the torch engine: every text as by a model that was loaded for it alone."""

import copy
import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.library_models import REPRESENTATIVE, SMALL, make_small_model, save_library_model
from support.published import edit_json
from support.texts import mixed_texts
from vecmill import SyncMill
from vecmill.errors import CorruptModel, InferenceFailed, UnsupportedModel
from vecmill.models.encoder_config import TransformersConfig
from vecmill.values.aliases import FloatArray

TOLERANCE = 1e-4
SHORT, LONG = "in the end", "the one of all that was not there " * 8
TEXTS = [SHORT, LONG, *mixed_texts(7, 3), LONG + SHORT, "x", ""]
IDS, TYPES = ("input_ids", "attention_mask"), ("input_ids", "token_type_ids", "attention_mask")

# Why they are refused.
REFUSED = {
    # By sentence-transformers too: its class reads texts of one length only.
    "nystromformer": "failed on a small text",
    "reformer": r"returns the shape \[\d+, \d+, 64\] instead of \[\d+, \d+, 32\]",
}


def among(names: Sequence[str]) -> pytest.MarkDecorator:
    """Parametrise by all types of models: those with these names are for the quick suite."""
    marks = {name: () if name in names else pytest.mark.full for name in SMALL}
    return pytest.mark.parametrize("model_type", [pytest.param(name, marks=marks[name]) for name in SMALL])


def encode_freshly(oracle: Any, texts: Sequence[str]) -> FloatArray:
    """The rows of sentence-transformers, each by a copy of the model that has computed no other text."""
    transformer = oracle[0]
    fresh, rows = transformer.model, []
    for text in texts:
        transformer.model = copy.deepcopy(fresh)
        rows.append(oracle.encode([text])[0])
    transformer.model = fresh
    return np.stack(rows)


def load_oracle(directory: Path) -> Any:
    import sentence_transformers

    return sentence_transformers.SentenceTransformer(str(directory), device="cpu").float()


def assert_like_the_reference(directory: Path, mill: SyncMill, texts: Sequence[str]) -> None:
    expected = encode_freshly(load_oracle(directory), texts)
    size = max(1.0, float(np.abs(expected).max()))
    assert mill.info.name == "torch"
    np.testing.assert_allclose(mill.embed(texts) / size, expected / size, atol=TOLERANCE)
    for index in np.random.default_rng(3).permutation(len(texts)):
        (row,) = mill.embed(texts[index])
        np.testing.assert_allclose(row / size, expected[index] / size, atol=TOLERANCE, err_msg=texts[index])
    assert np.ptp(expected, axis=0).max() > 100 * TOLERANCE


# Blocks, texts of two tokens that fail, a decoder, relative positions, rotary ones, a recurrence, lengths
# that are padded to windows, and adapters of languages.
@among(["big_bird", "funnel", "gpt2", "longt5", "roformer", "rwkv", "longformer", "xmod"])
@pytest.mark.parametrize("inputs", [IDS, pytest.param(TYPES, marks=pytest.mark.full)], ids=["ids", "types"])
def test_each_text_is_computed_as_by_a_fresh_model(
    model_type: str, inputs: Sequence[str], tmp_path: Path, open_mill: Callable[[Path], SyncMill]
) -> None:
    directory = save_library_model(tmp_path / "model", model_type, inputs=inputs)
    if model_type in REFUSED:
        with pytest.raises(UnsupportedModel, match=REFUSED[model_type]):
            open_mill(directory)
        return
    mill = open_mill(directory)
    texts = TEXTS
    if model_type == "funnel":  # whose class computes no text of two tokens
        texts = [text for text in TEXTS if text]
        with pytest.raises(InferenceFailed, match="torch failed on 1 texts with 2 tokens"):
            mill.embed("")
    assert_like_the_reference(directory, mill, texts)


def test_token_types_are_given_if_the_tokenizer_has_them(
    tmp_path: Path, open_mill: Callable[[Path], SyncMill]
) -> None:
    """As those of published Chinese models: GPT-2 adds the row of token 0 to each token."""
    directory = save_library_model(tmp_path / "model", "gpt2", inputs=TYPES)
    assert_like_the_reference(directory, open_mill(directory), TEXTS[:4])


def test_an_encoder_whose_weights_are_beside_a_decoder_is_not_made_up(
    tmp_path: Path, open_mill: Callable[[Path], SyncMill]
) -> None:
    directory = save_library_model(tmp_path / "model", "marian", "AutoModelForSeq2SeqLM")
    edit_json(directory / "config.json", architectures=["MarianModel"])
    with pytest.raises(CorruptModel, match=r"weights lack .* save the encoder alone, as MarianEncoder\."):
        open_mill(directory)


# ------------------------------------------------------------------ the longest input

POSITIONS = 64  # of these models
RELATIVE = ("longt5", "switch_transformers")  # whose encoders are computed


def reads(model: Any, length: int) -> bool:
    """Whether a class computes a text of so many tokens."""
    import torch

    ids = torch.full((1, length), 9)
    taken = inspect.signature(model.forward).parameters
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    try:
        with torch.inference_mode():
            model(**{name: value for name, value in inputs.items() if name in taken})
    except (IndexError, RuntimeError, ValueError):
        return False
    return True


@among(REPRESENTATIVE)
@pytest.mark.parametrize("settings", [{}, {"pad_token_id": 5}], ids=["usual", "other padding"])
def test_the_longest_input_is_the_longest_that_the_class_computes(
    model_type: str, settings: dict[str, Any]
) -> None:
    if model_type in REFUSED:
        pytest.skip("is refused")
    model = make_small_model(model_type, vocab_size=100, **settings)
    config = TransformersConfig.read(model.config.to_dict(), "config.json", runs_code=False)
    if model_type in RELATIVE:
        model = model.encoder
    longest = config.max_input_tokens
    if longest is None:
        assert reads(model, POSITIONS + 40)
    else:
        assert reads(model, longest)
        # Rotary classes compute longer texts too, but no model was made for them.
        assert hasattr(model.config, "rope_parameters") or not reads(model, longest + 1)


@pytest.mark.parametrize("model_type", ["ibert", "longformer", "xmod"])
def test_a_longer_text_is_cut_if_no_setting_limits_it(
    model_type: str, tmp_path: Path, open_mill: Callable[[Path], SyncMill]
) -> None:
    directory = save_library_model(tmp_path / "model", model_type, pad_token_id=1)
    file = directory / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    del settings["model_max_length"]
    file.write_text(json.dumps(settings))
    oracle = load_oracle(directory)
    oracle.max_seq_length = POSITIONS - 2
    mill = open_mill(directory)
    assert mill.info.max_tokens == POSITIONS - 2
    np.testing.assert_allclose(mill.embed(LONG * 4), oracle.encode([LONG * 4]), atol=TOLERANCE)


# ------------------------------------------------------------------ rotary positions by the length of a text


@pytest.mark.parametrize("model_type", ["glm", "stablelm"])
def test_positions_are_scaled_by_the_length_of_each_text_alone(
    model_type: str, tmp_path: Path, open_mill: Callable[[Path], SyncMill]
) -> None:
    """The class keeps the frequencies of the text that it computes, which are others above 16 tokens."""
    scaling = {
        "rope_type": "longrope",
        "rope_theta": 100.0,
        "partial_rotary_factor": 1.0,
        "factor": 4.0,
        "short_factor": [1.0] * 4,
        "long_factor": [3.0, 2.0, 5.0, 4.0],
        "original_max_position_embeddings": 16,
    }
    directory = save_library_model(tmp_path / "model", model_type, inputs=IDS, rope_parameters=scaling)
    assert_like_the_reference(directory, open_mill(directory), [SHORT, LONG, *mixed_texts(7, 5)])
