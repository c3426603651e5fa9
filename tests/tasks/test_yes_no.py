"""A causal model that says yes or no scores as the program on Qwen3-Reranker's model card does."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.texts import prose_words
from tasks.conftest import PAIRS, Open
from vecmill import SyncMill
from vecmill.errors import UnsupportedModel, UnsupportedTask
from vecmill.models import Task, describe_model, locate_model
from vecmill.pairs import PairTokenizer
from vecmill.tokens import Tokenizer

TOLERANCE = 1e-4
LONGEST = 300  # the template alone has 200 or so, so that long pairs are cut


def save_causal(folder: Path) -> tuple[Any, Any]:
    """A tiny Qwen3 with a byte-level tokenizer; returns the model and its tokenizer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tokenizers
        import torch
        import transformers

        library = tokenizers.ByteLevelBPETokenizer()
        special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        texts = [" ".join(prose_words()[:4_000]), *["yes", "no"] * 100]
        library.train_from_iterator(texts, vocab_size=700, special_tokens=special, show_progress=False)
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=library._tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
        )
        tokenizer.model_max_length = LONGEST
        config = transformers.Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            intermediate_size=48,
            tie_word_embeddings=True,
        )
        torch.manual_seed(3)
        model = transformers.Qwen3ForCausalLM(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_((1.0 if "norm" in name else 0.0) + 0.3 * torch.randn_like(parameter))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return model, tokenizer


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, open_mill: Open) -> tuple[Any, Any, SyncMill]:
    folder = tmp_path_factory.mktemp("models") / "judge"
    model, tokenizer = save_causal(folder)
    return model, tokenizer, open_mill(describe_model(locate_model(folder), Task.RERANK))


def card_score(model: Any, tokenizer: Any, query: str, document: str, instruction: str) -> float:
    """The model card's program, for one pair."""
    import torch

    prefix = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
        'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    )
    suffix = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    before = tokenizer.encode(prefix, add_special_tokens=False)
    after = tokenizer.encode(suffix, add_special_tokens=False)
    body = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    room = model.longest - len(before) - len(after)
    ids = before + tokenizer.encode(body, add_special_tokens=False)[:room] + after
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1]
    chosen = torch.stack([logits[tokenizer.convert_tokens_to_ids(word)] for word in ("no", "yes")])
    return float(torch.softmax(chosen, dim=0)[1])


def test_scores_are_the_share_of_yes(judge: tuple[Any, Any, SyncMill]) -> None:
    model, tokenizer, mill = judge
    model.longest = LONGEST
    instruction = "Given a web search query, retrieve relevant passages that answer the query"
    pairs = [*PAIRS, ("{document}", "{query} {instruction}")]
    expected = [card_score(model, tokenizer, query, document, instruction) for query, document in pairs]
    found = [mill.rerank(query, [document]).scores[0] for query, document in pairs]
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert np.ptp(expected) > 0.05
    assert any(len(tokenizer.encode(query + document)) > LONGEST for query, document in pairs)
    np.testing.assert_allclose(
        [mill.rerank(query, [document], raw_scores=True).scores[0] for query, document in pairs],
        np.log(expected) - np.log1p(-np.array(expected)),
        atol=100 * TOLERANCE,
    )


def test_it_does_not_classify(judge: tuple[Any, Any, SyncMill]) -> None:
    with pytest.raises(UnsupportedTask, match="ranks documents; it cannot classify"):
        judge[2].classify([("a", "b")])


def test_a_template_that_leaves_no_room_is_refused(tmp_path: Path) -> None:
    save_causal(tmp_path / "judge")
    description = describe_model(locate_model(tmp_path / "judge"), Task.RERANK)
    tokenizer = Tokenizer.load(description)
    with pytest.raises(UnsupportedModel, match="reads 50 tokens"):
        PairTokenizer(tokenizer, replace(description, max_tokens=50))
