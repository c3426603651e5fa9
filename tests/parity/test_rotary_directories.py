"""Whole directories of rotary families and of T5, with tokenizers of their kinds: rows of the reference."""

import json
from pathlib import Path
from typing import Any

import pytest

from parity.test_directories import assert_same_as_library, at_both_scales
from support.families import save_tiny_family
from support.graph_session import GraphSession
from support.published import edit_json
from support.reference import load_reference
from support.rows_check import assert_same_rows
from support.task_models import save_modules
from support.texts import hard_texts, mixed_texts
from support.tokenizers_of_kind import END, PADDING, SIZE, save_tokenizer
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer

SEED = 3
WIDTH = 32
LONGEST = 48
WINDOW = 8

ENCODER: dict[str, Any] = {
    "vocab_size": SIZE,
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": PADDING,
    "bos_token_id": END,
    "eos_token_id": END,
}
DECODER: dict[str, Any] = {**ENCODER, "num_key_value_heads": 2, "head_dim": 16}
GEMMA: dict[str, Any] = {
    **DECODER,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "use_bidirectional_attention": True,
}
MODERNBERT: dict[str, Any] = {**ENCODER, "local_attention": WINDOW, "cls_token_id": END, "sep_token_id": END}
T5: dict[str, Any] = {
    "vocab_size": SIZE,
    "d_model": WIDTH,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 3,
    "num_heads": 4,
}

# Class, settings, kind of tokenizer, where it pads, pooling.
DIRECTORIES: dict[str, tuple[str, dict[str, Any], str, str, str]] = {
    "qwen3": ("Qwen3Model", DECODER, "byte_level", "left", "lasttoken"),
    "qwen3_right_padding": ("Qwen3Model", DECODER, "byte_level", "right", "lasttoken"),
    "qwen2": ("Qwen2Model", {**DECODER, "is_causal": False}, "byte_level", "right", "mean"),
    "mistral": ("MistralModel", {**DECODER, "sliding_window": WINDOW}, "byte_fallback", "left", "lasttoken"),
    "gemma3": ("Gemma3TextModel", GEMMA, "byte_fallback", "right", "mean"),
    "modernbert": ("ModernBertModel", MODERNBERT, "byte_level", "right", "cls"),
    "nomic_bert": ("NomicBertModel", ENCODER, "word_piece", "right", "mean"),
    "gte": ("GteModel", ENCODER, "unigram", "right", "cls"),
    "t5": ("T5EncoderModel", T5, "unigram", "right", "mean"),
    "mt5": ("MT5EncoderModel", T5, "unigram", "right", "mean"),
    "umt5": ("UMT5EncoderModel", T5, "unigram", "right", "mean"),
}


def save_directory(folder: Path, name: str, texts: list[str]) -> Path:
    """The model and its tokenizer, put together and saved by sentence-transformers."""
    class_name, settings, kind, side, pooling = DIRECTORIES[name]
    plain, whole = folder / "plain", folder / "whole"
    save_tiny_family(plain, class_name, **settings)
    save_tokenizer(plain, kind, texts, longest=LONGEST, padding_side=side)

    def make() -> list[Any]:
        from sentence_transformers.models import Normalize, Pooling, Transformer

        return [Transformer(str(plain)), Pooling(WIDTH, pooling), Normalize()]

    save_modules(whole, "SentenceTransformer", pooling, make, {"": plain})
    return whole


@at_both_scales
@pytest.mark.parametrize("name", DIRECTORIES)
def test_rows_are_those_of_the_reference(name: str, longest: int, tmp_path: Path) -> None:
    texts = [*mixed_texts(SEED, 20), *hard_texts()]
    directory = save_directory(tmp_path, name, texts)
    description = describe_model(locate_model(directory))
    assert description.max_tokens == LONGEST
    assert max(map(len, Tokenizer.load(description).encode(texts[:20]))) == LONGEST
    assert_same_as_library(directory, texts, {}, longest=longest, seed=SEED)


@pytest.mark.parametrize("name", sorted(set(DIRECTORIES) - {"t5", "mt5", "umt5"}))
def test_a_longest_input_beyond_the_stated_positions_is_that_of_the_reference(
    name: str, tmp_path: Path
) -> None:
    texts = mixed_texts(SEED, 8)
    directory = save_directory(tmp_path, name, texts)
    edit_json(directory / "config.json", max_position_embeddings=LONGEST // 2)
    edit_json(directory / "sentence_bert_config.json", max_seq_length=LONGEST)
    description = describe_model(locate_model(directory))
    assert description.max_tokens == LONGEST
    sequences = Tokenizer.load(description).encode(texts)
    assert max(map(len, sequences)) == LONGEST
    expected = load_reference(directory).float().encode(texts, convert_to_numpy=True)
    session = GraphSession(build_graph(description), normalizes=description.normalizes_output)
    assert_same_rows(session.run, sequences, expected, seed=SEED)


def test_a_model_without_positions_has_the_limit_of_the_older_key(tmp_path: Path) -> None:
    directory = save_directory(tmp_path, "t5", mixed_texts(SEED, 20))
    settings = directory / "tokenizer_config.json"
    written = json.loads(settings.read_text())
    written["max_len"] = written.pop("model_max_length")
    settings.write_text(json.dumps(written))
    assert describe_model(locate_model(directory)).max_tokens == LONGEST
