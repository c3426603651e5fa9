"""The added and special tokens of all files of a directory are merged as transformers merges them."""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parity.test_tokenizers import digest_of
from parity.test_vocabularies import CASES, FILES, load_reference, save_vocabulary
from support.references import answer, digest_directory
from support.tokenizer_directories import TURNS, TokenizerDirectory, list_texts
from vecmill.errors import SetupError
from vecmill.tokenization.building.assembly import build_tokenizer
from vecmill.tokenization.building.class_names import find_class
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles

# What transformers accepts until a text has an unknown word.
REFUSED = re.compile("(?:unk_token|src_lang) is .*, which the vocabulary lacks")
# With which the library may take all memory.
NEVER_ENDING = re.compile("the normaliser leaves nothing of the added token")


def ids_or_panic(encode: Callable[[], list[int]]) -> list[int] | str:
    """The library panics for some tokens that strip white space beside letters of several bytes."""
    try:
        return encode()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return type(error).__name__


def compare(made: TokenizerDirectory, file: str, family: str) -> str:
    """Compare a directory with transformers. Return how it ended."""
    folder = made.folder
    files = TokenizerFiles.read(folder / file, find_class(made.config, {"model_type": family}), made.config)
    texts = list(list_texts(made.dice, made.tokens))
    ours, refusal = None, ""
    try:
        ours = build_tokenizer(files)
    except SetupError as error:
        refusal = str(error)
        if NEVER_ENDING.search(refusal):
            return "refused"
    expected = answer(["added tokens", digest_directory(folder), texts], lambda: ask_library(folder, texts))
    if ours is None:
        assert expected is None or REFUSED.search(refusal), refusal
        return "refused by both" if expected is None else "refused"
    if expected is None:
        return "refused by transformers"
    assert digest_of(ours.get_vocab()) == expected["vocabulary"]
    for text, digest in zip(texts, expected["texts"], strict=True):
        found = ids_or_panic(lambda text=text: ours.encode(text).ids)  # type: ignore[misc]
        assert digest_of(found) == digest, (made.class_name, text)
    return "equal"


def ask_library(folder: Path, texts: list[str]) -> dict[str, Any] | None:
    """Digests of the vocabulary and of the ids of texts, or `None` if transformers refuses the directory."""
    try:
        reference = load_reference(folder)
    except Exception:
        return None
    ids = [ids_or_panic(lambda text=text: reference(text)["input_ids"]) for text in texts]  # type: ignore[misc]
    return {"vocabulary": digest_of(reference.get_vocab()), "texts": list(map(digest_of, ids))}


def compare_file(folder: Path, seed: int) -> str:
    """Compare a directory with tokenizer.json."""
    made = TokenizerDirectory(folder, seed)
    made.save()
    return compare(made, "tokenizer.json", "bert")


def compare_vocabulary(folder: Path, seed: int) -> str:
    """Compare a directory with vocabulary files alone."""
    made = TokenizerDirectory(folder, seed)
    family, class_name, file, settings = CASES[sorted(CASES)[seed % len(CASES)]]
    save_vocabulary(folder, family, file, settings)
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    made.save_beside(file, {**({} if class_name is None else {"tokenizer_class": class_name}), **settings})
    return compare(made, FILES.get(file, file), family)


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("seed", range(2 * len(TURNS)))
def test_tokens_beside_a_tokenizer_file_are_merged(seed: int, tmp_path: Path) -> None:
    assert compare_file(tmp_path, seed)


@pytest.mark.promise("reference-embeddings")
@pytest.mark.parametrize("seed", range(len(CASES)))
def test_tokens_beside_vocabulary_files_are_merged(seed: int, tmp_path: Path) -> None:
    assert compare_vocabulary(tmp_path, seed)


@pytest.mark.full
@pytest.mark.parametrize(
    ("compare_one", "most_refused"),
    [(compare_file, 0.05), (compare_vocabulary, 0.2)],
    ids=["file", "vocabulary"],
)
@pytest.mark.parametrize("seeds", [range(start, start + 250) for start in range(1_000, 3_000, 250)], ids=str)
def test_tokens_of_many_directories_are_merged(
    seeds: range, compare_one: Callable[[Path, int], str], most_refused: float, tmp_path: Path
) -> None:
    ends: Counter[str] = Counter()
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            ends[compare_one(folder, seed)] += 1
        except BaseException:
            print("seed", seed)
            raise
    assert ends["refused"] + ends["refused by both"] <= most_refused * len(seeds), ends
