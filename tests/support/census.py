"""The census of published models: their settings, where these come from, and what becomes of each model.

`tests/census/models/` has a file for each model. A file holds no weights and no vocabulary, so a model of the
census is laid out with a small vocabulary of its tokenizer's class, and with weights of which nothing is
known but the shapes of Dense modules, which the settings state.

`python -m support.census` records the outcomes anew, after a change of what vecmill supports.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from support.source_tree import ROOT
from support.tokenizers_of_class import save_tokenizer_of_class
from support.tokenizers_of_kind import save_tokenizer
from vecmill.config import MillConfig
from vecmill.models.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from vecmill.models.location import ModelLocation
from vecmill.models.outline import ModelOutline
from vecmill.serving_plan.outcome import ForeseenOutcome, foresee_outcome
from vecmill.values.sample_texts import prose_words

MODELS = ROOT / "tests/census/models"
LISTS = ROOT / "tests/census/lists.json"
WEIGHTS = "model.safetensors"
BASES = ("copy", "resaved", "composed", "memory")
KINDS = ("byte_fallback", "byte_level", "unigram", "word_piece")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class CensusModel:
    """A model of the census.

    `basis` says what the settings are: a `copy` of the publisher's files, files that somebody saved after
    loading the model (`resaved`), or `composed` of several sources; settings that no source states are from
    `memory`. `sources` name a place for each of the facts. `lists` are those of `lists.json` that have the
    model. `files` are JSON files by name. `tokenizer` is a class of transformers or one of `KINDS`.
    `parameters` is their number without a head, if a list states it. `outcome` and `reason` are those of
    `foresee_outcome`. `note` is what the page adds.
    """

    name: str
    basis: str
    lists: tuple[str, ...]
    sources: tuple[Mapping[str, str], ...]
    files: Mapping[str, Any]
    tokenizer: str
    outcome: str
    reason: str | None = None
    parameters: int | None = None
    note: str | None = None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of the census."""
        document = json.loads(path.read_text("utf-8"))
        for name in ("lists", "sources"):
            document[name] = tuple(document[name])
        return cls(**document)

    @property
    def path(self) -> Path:
        """The file of the census."""
        return MODELS / f"{self.name.replace('/', '--')}.json"

    @property
    def is_counted(self) -> bool:
        """Whether a list names the model, and sources state its settings."""
        return bool(self.lists) and self.basis != "memory"

    def to_text(self) -> str:
        """Return the file of the census: a line for each settings file, and for each other value."""
        lines = [f" {json.dumps(name)}: {_to_json(value)}" for name, value in self._fields()]
        files = [f"  {json.dumps(name)}: {_to_json(value)}" for name, value in sorted(self.files.items())]
        return ",\n".join(["{\n" + lines[0], *lines[1:], ' "files": {\n' + ",\n".join(files) + "\n }\n}\n"])

    def _fields(self) -> Iterator[tuple[str, Any]]:
        for name in (
            "name",
            "basis",
            "lists",
            "sources",
            "tokenizer",
            "parameters",
            "note",
            "outcome",
            "reason",
        ):
            value = getattr(self, name)
            if value is not None:
                yield name, value


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@cache
def read_census() -> tuple[CensusModel, ...]:
    """Return all models, by name."""
    models = [CensusModel.read(path) for path in MODELS.glob("*.json")]
    return tuple(sorted(models, key=lambda model: model.name.lower()))


@cache
def read_lists() -> Mapping[str, str]:
    """Return the lists that name models, with the version of each."""
    versions: dict[str, str] = json.loads(LISTS.read_text("utf-8"))
    return versions


def foresee(
    folder: Path, model: CensusModel, shapes: Mapping[str, list[int]] | None = None
) -> ForeseenOutcome:
    """Say what becomes of a model whose settings are laid out in `folder`.

    `shapes` are the tensors of its weights, if they are known. The directory is called like the last part of
    the name, because some models are known by it.
    """
    directory = folder / model.name.rpartition("/")[2]
    lay_out(directory, model)
    _write_header(directory / WEIGHTS, shapes or {})
    location = ModelLocation(model.name, directory)
    unread = frozenset() if shapes else frozenset({directory / WEIGHTS})
    return foresee_outcome(ModelOutline(location, Path(model.name), {}, unread=unread), MillConfig())


def lay_out(directory: Path, model: CensusModel) -> None:
    """Write the settings, a small vocabulary, and the headers of the weights of modules and adapters."""
    directory.mkdir(parents=True)
    for name, text in make_vocabulary(model.tokenizer).items():
        (directory / name).write_text(text, "utf-8")
    for name, document in model.files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document), "utf-8")
        shapes = _shapes_of_dense(document)
        if shapes:
            _write_header(path.with_name(WEIGHTS), shapes)
        if path.name == ADAPTER_CONFIG:
            _write_header(path.with_name(ADAPTER_WEIGHTS[0]), {})


@cache
def make_vocabulary(tokenizer: str) -> dict[str, str]:
    """Return the files of a small tokenizer of a class of transformers, or of one of `KINDS`."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        if tokenizer in KINDS:
            save_tokenizer(folder, tokenizer, [" ".join(prose_words()[:3_000])], longest=512)
        else:
            save_tokenizer_of_class(folder, tokenizer)
        _add_answers(folder / "tokenizer.json")
        return {file: (folder / file).read_text("utf-8") for file in TOKENIZER_FILES}


def _add_answers(path: Path) -> None:
    """Add the words with which rerankers answer to a vocabulary of pairs."""
    document = json.loads(path.read_text("utf-8"))
    vocabulary = document["model"]["vocab"]
    if document["model"]["type"] != "BPE":
        return
    first = max([*vocabulary.values(), *(token["id"] for token in document["added_tokens"])]) + 1
    for place, word in enumerate(word for word in ("yes", "no") if word not in vocabulary):
        vocabulary[word] = first + place
    path.write_text(json.dumps(document), "utf-8")


def _shapes_of_dense(document: object) -> dict[str, list[int]]:
    """Return the shapes of the tensors of a Dense module, if these are its settings."""
    if not isinstance(document, dict) or "out_features" not in document:
        return {}
    outputs, inputs = document["out_features"], document["in_features"]
    bias = {"linear.bias": [outputs]} if document.get("bias", True) else {}
    return {"linear.weight": [outputs, inputs], **bias}


def _write_header(path: Path, shapes: Mapping[str, list[int]]) -> None:
    """Write a safetensors file in fp32 with these tensors, which are a hole in the file."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    begin = json.dumps(header).encode()
    begin += b" " * (-len(begin) % 8)
    with path.open("wb") as file:
        file.write(len(begin).to_bytes(8, "little") + begin)
        os.truncate(file.fileno(), file.tell() + end)


def main() -> None:
    """Record the outcomes of all models in their files."""
    with TemporaryDirectory() as folder:
        for number, model in enumerate(read_census()):
            found = foresee(Path(folder) / str(number), model)
            text = replace(model, outcome=found.kind.value, reason=found.reason).to_text()
            model.path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
