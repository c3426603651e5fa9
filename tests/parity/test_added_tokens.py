"""The added and special tokens of all files of a directory are merged as transformers merges them."""

import json
import re
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.test_vocabularies import CASES, FILES, load_reference, save_vocabulary
from support.tokenizer_directories import TURNS, TokenizerDirectory, list_texts
from vecmill.errors import SetupError
from vecmill.tokenization.building.assembly import build_tokenizer
from vecmill.tokenization.building.class_names import find_class
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles

# What transformers accepts until a text has an unknown word.
REFUSED = re.compile("(?:unk_token|src_lang) is .*, which the vocabulary lacks")


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs to heed
        try:
            reference = load_reference(folder)
        except Exception:
            try:
                build_tokenizer(files)
            except SetupError:
                return "refused by both"
            return "refused by transformers"
        try:
            ours = build_tokenizer(files)
        except SetupError as error:
            if not REFUSED.search(str(error)):
                raise
            return "refused"
        assert ours.get_vocab() == reference.get_vocab()
        for text in list_texts(made.dice, made.tokens):
            expected = ids_or_panic(lambda text=text: reference(text)["input_ids"])  # type: ignore[misc]
            found = ids_or_panic(lambda text=text: ours.encode(text).ids)  # type: ignore[misc]
            assert found == expected, (made.class_name, text)
    return "equal"


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
