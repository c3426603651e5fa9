"""Token ids and prompt lengths are those of the reference."""

from typing import Any

import pytest

from support.texts import hard_texts, long_texts, mixed_texts
from vecmill.tokenization.tokenizer import Tokenizer

PROMPTS = ["", "query: ", "Represent this sentence for searching relevant passages: ", "q", "the " * 300]


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("prompt", PROMPTS, ids=["none", "short", "sentence", "letter", "endless"])
def test_ids_and_prompt_lengths_are_those_of_the_reference(
    tokenizer: Tokenizer, reference: Any, prompt: str
) -> None:
    texts = [*hard_texts(), *mixed_texts(3, 50), *long_texts(3, 2)]
    for text, sequence in zip(texts, tokenizer.encode(texts, prompt=prompt), strict=True):
        features = reference.preprocess([text], prompt=prompt)
        assert sequence.token_ids.tolist() == features["input_ids"][0].tolist()
        assert sequence.token_type_ids.tolist() == features["token_type_ids"][0].tolist()
        assert sequence.prompt_length == features.get("prompt_length", 0)
