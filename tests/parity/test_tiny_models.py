"""Every setting that is read gives the rows that sentence-transformers gives for it."""

from pathlib import Path

import numpy as np
import pytest

from parity.test_directories import assert_same_as_library, at_both_scales
from support.graph_session import GraphSession
from support.reference import load_reference
from support.rows_check import assert_same_rows
from support.task_models import save_again
from support.texts import hard_texts, mixed_texts
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.architectures.build import build_graph
from vecmill.directory_layouts import describe_model
from vecmill.models import locate_model
from vecmill.tokenization.tokenizer import Tokenizer

PROMPT = "represent this, please: "
SEED = 7

VARIANTS = {
    "mean": TinyBert(),
    "cls": TinyBert(pooling="cls"),
    "mean_unnormalized": TinyBert(normalize=False),
    "cls_unnormalized": TinyBert(pooling="cls", normalize=False),
    "mean_without_prompt": TinyBert(include_prompt=False),
    "cls_without_prompt": TinyBert(pooling="cls", include_prompt=False),
    "prompt_longer_than_input": TinyBert(include_prompt=False, max_seq_length=6),
    "no_max_seq_length": TinyBert(max_seq_length=None),
    "tokenizer_limit": TinyBert(max_seq_length=None, model_max_length=20),
    "no_limit_written": TinyBert(max_seq_length=None, model_max_length=None),
    "cased": TinyBert(lowercase=False),
    "relu": TinyBert(config={"hidden_act": "relu"}),
    "silu": TinyBert(config={"hidden_act": "silu"}),
    "tanh_gelu": TinyBert(config={"hidden_act": "gelu_new"}),
    "one_head": TinyBert(config={"num_attention_heads": 1}),
    "large_epsilon": TinyBert(config={"layer_norm_eps": 0.1}),
    "prefixed": TinyBert(prefix="bert."),
    "half_precision": TinyBert(dtype="float16"),
}


@at_both_scales
@pytest.mark.parametrize("name", VARIANTS)
def test_rows_are_those_of_the_reference(name: str, longest: int, tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model", VARIANTS[name])
    assert describe_model(locate_model(directory)).max_tokens == load_reference(directory).max_seq_length
    texts = [*mixed_texts(SEED, 20), *hard_texts()]
    assert_same_as_library(directory, texts, {"prompt": ""}, {"prompt": PROMPT}, longest=longest, seed=SEED)


def test_a_directory_saved_by_the_reference_reads_the_same(tmp_path: Path) -> None:
    model = TinyBert(prompts={"query": "query: "}, default_prompt_name="query", include_prompt=False)
    old = save_tiny_bert(tmp_path / "old", model)
    new = tmp_path / "new"
    save_again(new, old, "SentenceTransformer")
    before, after = describe_model(locate_model(old)), describe_model(locate_model(new))
    for field in ("dim", "max_tokens", "stages", "default_prompt_name", "vocab_size"):
        assert getattr(after, field) == getattr(before, field), field
    assert after.prompts["query"] == "query: "
    texts = [*mixed_texts(SEED, 10), *hard_texts()]
    expected = np.asarray(load_reference(new).encode(texts, convert_to_numpy=True), np.float32)
    sequences = Tokenizer.load(after).encode(texts, prompt="query: ")
    session = GraphSession(build_graph(after), normalizes=after.normalizes_output)
    assert_same_rows(session.run, sequences, expected, seed=SEED)
