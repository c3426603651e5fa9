"""A token for which the model has no embedding is refused by its name; it never computes a wrong one."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.published import edit_json
from support.task_models import save_task_model
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill import SyncMill
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel, InvalidRequest, UnsupportedModel
from vecmill.models import locate_model
from vecmill.requests import Embed, Rerank
from vecmill.tokenization.shared import LoadedTokenizer
from vecmill.tokenization.table_rows import find_highest_id

FAR = 2**31  # of which each id below would take memory


def add_to_vocabulary(directory: Path, token: str, number: int) -> None:
    """Give the token of the vocabulary this id."""
    model = json.loads((directory / "tokenizer.json").read_text())["model"]
    edit_json(directory / "tokenizer.json", model={**model, "vocab": {**model["vocab"], token: number}})


def add_token(directory: Path, token: str, number: int) -> None:
    """Add the token beside the vocabulary, with the next id."""
    added = {str(number): {"content": token, "lstrip": False, "rstrip": False, "special": False}}
    edit_json(directory / "tokenizer_config.json", added_tokens_decoder=added)


@pytest.mark.promise("malformed-input")
@pytest.mark.parametrize("add", [add_to_vocabulary, add_token])
def test_a_text_with_a_token_without_a_row_is_refused_and_others_are_embedded(
    add: Callable[[Path, str, int], None], tmp_path: Path
) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    with SyncMill(directory) as plain:
        expected = plain.run(Embed(("a cat sleeps",))).embeddings
        rows = describe_model(locate_model(directory)).vocab_size
    add(directory, "zyzzyva", rows)
    with SyncMill(directory) as mill:
        for texts in (("a cat sleeps", "the zyzzyva"), ("a cat sleeps", "the zyzzyva " + "cat " * 9_000)):
            with pytest.raises(
                InvalidRequest, match=r"input\[1\]` has the token 'zyzzyva', for which .* no emb"
            ):
                mill.run(Embed(texts))
        np.testing.assert_array_equal(mill.run(Embed(("a cat sleeps",))).embeddings, expected)


def test_a_model_that_has_no_embedding_for_a_plain_word_is_refused(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    add_token(directory, "warm", describe_model(locate_model(directory)).vocab_size)
    message = r"tokenizer\.json: a plain English text, .* has the token 'warm', for which .* no embedding\.$"
    with pytest.raises(UnsupportedModel, match=message), SyncMill(directory):
        pass


def test_a_pair_with_a_token_without_a_row_is_refused(tmp_path: Path) -> None:
    directory = save_task_model(tmp_path / "model", "BertForSequenceClassification", num_labels=1)
    add_to_vocabulary(directory, "zyzzyva", describe_model(locate_model(directory)).vocab_size)
    with SyncMill(directory) as mill, pytest.raises(InvalidRequest, match="has the token 'zyzzyva'"):
        mill.run(Rerank(("a cat",), ("a dog", "a zyzzyva")))


@pytest.mark.promise("malformed-input")
def test_an_id_far_above_the_others_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    directory = save_tiny_bert(tmp_path / "model", TinyBert())
    add_to_vocabulary(directory, "zyzzyva", FAR)
    with pytest.raises(
        CorruptModel, match=rf"tokenizer\.json: the id of the token 'zyzzyva' is {FAR}, above"
    ):
        LoadedTokenizer.read(describe_model(locate_model(directory)))


@pytest.mark.parametrize(
    ("vocabulary", "added", "highest"),
    [
        ({}, [], -1),
        ({"a": 0, "b": 1}, [], 1),
        ({"a": 0, "b": 1}, ["c", "d"], 3),
        ({"a": 0, "b": 7}, [], 7),
        ({"a": 1, "b": 2}, [], 2),
        ({"a": 0, "b": 0, "c": 5}, [], 5),
        ({"a": 0, "b": 900}, ["c"], 900),
    ],
)
def test_the_highest_id_is_found(vocabulary: dict[str, int], added: list[str], highest: int) -> None:
    import tokenizers

    library = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="a"))
    library.add_tokens(added)
    assert find_highest_id(library) == highest


@pytest.mark.parametrize(("added", "highest"), [([], 2), (["d", "e"], 4), (["a"], 2)])
def test_the_highest_id_of_a_list_of_pieces_is_found(added: list[str], highest: int) -> None:
    import tokenizers

    pieces = [(piece, -1.0) for piece in "abc"]
    library = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=0))
    library.add_tokens(added)
    assert find_highest_id(library) == highest == max(library.get_vocab(with_added_tokens=True).values())
