"""Token ids and prompt lengths are those of the reference."""

from typing import Any

import numpy as np
import pytest

from support.references import Reference
from support.texts import hard_texts, long_texts, mixed_texts
from vecmill.tokenization.tokenizer import Tokenizer

PROMPTS = ["", "query: ", "Represent this sentence for searching relevant passages: ", "q", "the " * 300]


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("prompt", PROMPTS, ids=["none", "short", "sentence", "letter", "endless"])
def test_ids_and_prompt_lengths_are_those_of_the_reference(
    tokenizer: Tokenizer, reference: Reference, prompt: str
) -> None:
    texts = [*hard_texts(), *mixed_texts(3, 50), *long_texts(3, 2)]

    def read(model: Any) -> list[list[Any]]:
        found = [model.preprocess([text], prompt=prompt) for text in texts]
        return [
            [one["input_ids"][0].numpy(), one["token_type_ids"][0].numpy(), one.get("prompt_length", 0)]
            for one in found
        ]

    expected = reference.ask(["tokens", texts, prompt], read)
    for (ids, types, length), sequence in zip(expected, tokenizer.encode(texts, prompt=prompt), strict=True):
        np.testing.assert_array_equal(sequence.token_ids, ids)
        np.testing.assert_array_equal(sequence.token_type_ids, types)
        assert sequence.prompt_length == length
