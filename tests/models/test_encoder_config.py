"""The sizes of models that transformers runs, as `config.json` has them."""

from typing import Any

import pytest

from vecmill.errors import CorruptModel
from vecmill.models.encoder_config import TransformersConfig

SIZES = {"vocab_size": 100, "hidden_size": 32}


def read(*, runs_code: bool = False, **settings: Any) -> TransformersConfig:
    return TransformersConfig.read({**SIZES, **settings}, "config.json", runs_code=runs_code)


@pytest.mark.parametrize(
    ("settings", "longest"),
    [
        ({"model_type": "roformer", "max_position_embeddings": 512}, 512),
        ({"model_type": "gpt2", "n_positions": 1024, "n_ctx": 512}, 1024),
        ({"model_type": "bloom"}, None),
        ({"model_type": "xlnet", "max_position_embeddings": -1}, None),
        # Relative positions, of which the number in the file is that of the training.
        ({"model_type": "longt5", "n_positions": 4096}, None),
        ({"model_type": "longt5", "n_positions": 512}, None),
        # Counted from the padding.
        ({"model_type": "longformer", "max_position_embeddings": 4098}, 4096),
        ({"model_type": "ibert", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "xmod", "max_position_embeddings": 514, "pad_token_id": 0}, 513),
        ({"model_type": "esm", "max_position_embeddings": 1026, "pad_token_id": 1}, 1024),
        (
            {
                "model_type": "esm",
                "max_position_embeddings": 1026,
                "pad_token_id": 1,
                "position_embedding_type": "rotary",
            },
            1026,
        ),
        # Read by an encoder and by a decoder.
        (
            {
                "model_type": "led",
                "max_encoder_position_embeddings": 16384,
                "max_decoder_position_embeddings": 1024,
            },
            1024,
        ),
    ],
)
def test_the_longest_input_has_a_position_for_each_token(
    settings: dict[str, Any], longest: int | None
) -> None:
    assert read(**settings).max_input_tokens == longest


def test_code_of_a_model_may_count_in_another_way() -> None:
    settings = {"model_type": "longformer", "max_position_embeddings": 4098}
    assert read(runs_code=True, **settings).max_input_tokens == 4098


@pytest.mark.parametrize("padding", [3, 100])
def test_a_table_without_a_row_after_the_padding_is_refused(padding: int) -> None:
    with pytest.raises(CorruptModel, match=f"4 positions leave none after pad_token_id {padding}"):
        read(model_type="ibert", max_position_embeddings=4, pad_token_id=padding)


def test_the_output_may_be_projected() -> None:
    assert read(model_type="opt", word_embed_proj_dim=16).output_size == 16
    assert read(model_type="opt").output_size == 32
