"""Tokenizers that several models share, as long as one of them is served."""

import gc
import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from support.published import edit_json
from support.tiny_models import TinyBert, save_tiny_bert
from vecmill.directory_layouts import describe_model
from vecmill.errors import CorruptModel
from vecmill.models import ModelDescription, locate_model
from vecmill.models.directory import FileLimits
from vecmill.tokenization.building.assembly import build_tokenizer
from vecmill.tokenization.building.tokenizer_files import TokenizerFiles
from vecmill.tokenization.shared import LoadedTokenizer, SharedTokenizers
from vecmill.tokenization.tokenizer import Tokenizer

TEXT = "An example of SHIPS"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_bert(tmp_path / "one", TinyBert())


def describe(folder: Path) -> ModelDescription:
    return describe_model(locate_model(folder))


def test_models_of_equal_tokenizers_share_one(folder: Path, tmp_path: Path) -> None:
    """Also of copies, and of models that read texts of another length."""
    tokenizers = SharedTokenizers()
    copy = shutil.copytree(folder, tmp_path / "copy")
    edit_json(copy / "sentence_bert_config.json", max_seq_length=4)
    one, other = (Tokenizer.load(describe(each), tokenizers) for each in (folder, copy))
    assert one.library is other.library
    alone = Tokenizer.load(describe(folder))
    assert len(one.encode([TEXT])[0]) == len(alone.encode([TEXT])[0]) > 4
    assert len(other.encode([TEXT])[0]) == 4


def lower_case(folder: Path) -> None:
    edit_json(folder / "sentence_bert_config.json", do_lower_case=True)


def name_another_class(folder: Path) -> None:
    edit_json(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")


def add_a_token(folder: Path) -> None:
    edit_json(folder / "tokenizer_config.json", additional_special_tokens=["ships"])


def change_the_file(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text() + " ")


def name_other_ends(folder: Path) -> None:
    edit_json(folder / "special_tokens_map.json", cls_token="[MASK]", sep_token="[PAD]")


def add_a_numbered_token(folder: Path) -> None:
    edit_json(folder / "added_tokens.json", **{"<ent>": 500})


@pytest.mark.parametrize(
    "change",
    [lower_case, name_another_class, add_a_token, change_the_file, name_other_ends, add_a_numbered_token],
)
def test_models_of_other_tokenizers_have_their_own(
    change: Callable[[Path], None], folder: Path, tmp_path: Path
) -> None:
    tokenizers = SharedTokenizers()
    other = shutil.copytree(folder, tmp_path / "other")
    change(other)
    loaded = [Tokenizer.load(describe(each), tokenizers) for each in (folder, other)]
    assert loaded[0].library is not loaded[1].library


def test_models_of_equal_vocabularies_share_one(folder: Path, tmp_path: Path) -> None:
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text(
        "".join(f"{piece}\n" for piece in sorted(vocabulary, key=vocabulary.get))
    )
    other = shutil.copytree(folder, tmp_path / "other")
    edit_json(other / "special_tokens_map.json", mask_token="ships")
    tokenizers, copy = SharedTokenizers(), shutil.copytree(folder, tmp_path / "copy")
    loaded = [Tokenizer.load(describe(each), tokenizers).library for each in (folder, copy, other)]
    assert loaded[0] is loaded[1]
    assert loaded[2] is not loaded[0]


OTHER_FIELDS: dict[str, Any] = {
    "name": "vocab.txt",
    "contents": {"tokenizer.json": b"{}"},
    "class_name": "RobertaTokenizer",
    "config": {"do_lower_case": False},
    "limits": FileLimits(1_000, 1_000),
    "has_class": False,
    "rows": 7,
    "lowercase": True,
    "markers": ("[Q] ",),
}


def test_a_tokenizer_is_built_of_nothing_but_what_its_digest_covers(folder: Path) -> None:
    """So no later rule of a class can read a file that the digest leaves out."""
    files = TokenizerFiles.of(describe(folder))
    elsewhere = replace(files, folder=Path("/nowhere"))
    assert elsewhere.digest() == files.digest()
    assert build_tokenizer(elsewhere).to_str() == build_tokenizer(files).to_str()
    assert {"folder", *OTHER_FIELDS} == {field.name for field in fields(files)}
    changed = [replace(files, **{name: value}).digest() for name, value in OTHER_FIELDS.items()]
    assert len({files.digest(), *changed}) == len(changed) + 1


def test_the_end_that_is_cut_off_is_that_of_each_model(folder: Path, tmp_path: Path) -> None:
    """The file of the tokenizer may name it, and the first model takes the truncation out of the library."""
    import tokenizers

    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    library.enable_truncation(8, direction="left")
    library.save(str(folder / "tokenizer.json"))
    found = SharedTokenizers()
    plain = describe(folder)
    right = replace(plain, tokenizer_config={**plain.tokenizer_config, "truncation_side": "right"})
    loaded = [Tokenizer.load(each, found) for each in (plain, plain, right)]
    assert [one.truncates_left for one in loaded] == [True, True, False]


def test_a_tokenizer_that_no_model_uses_is_released(folder: Path) -> None:
    tokenizers = SharedTokenizers()
    loaded = Tokenizer.load(describe(folder), tokenizers)
    assert len(tokenizers) == 1
    del loaded
    gc.collect()
    assert len(tokenizers) == 0


def test_a_broken_tokenizer_fails_each_time(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    tokenizers = SharedTokenizers()
    for _ in range(2):
        with pytest.raises(CorruptModel, match="is not a tokenizer"):
            Tokenizer.load(describe(folder), tokenizers)


def test_many_threads_read_a_tokenizer_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = LoadedTokenizer.build

    def note(files: TokenizerFiles) -> LoadedTokenizer:
        read.append(files.name)
        return real(files)

    monkeypatch.setattr(LoadedTokenizer, "build", note)
    tokenizers, description, together = SharedTokenizers(), describe(folder), threading.Barrier(4)

    def load(_: int) -> Tokenizer:
        together.wait()
        return Tokenizer.load(description, tokenizers)

    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(load, range(4)))
    assert len(read) == 1
    assert len({id(one.library) for one in loaded}) == 1
