"""The set of Lee, Pincombe and Welsh (2005): 50 news texts, and how similar people find each pair.

It is in the test data of gensim (LGPL-2.1).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from labelled_sets.archives import fetch_wheel
from vecmill.values.aliases import FloatArray
from vecmill.vectors import normalize_embeddings

_FOLDER = "gensim/test/test_data/"


@dataclass(frozen=True, slots=True)
class SimilarTexts:
    """Texts, and the similarity (texts, texts) from 0 to 1 that people see."""

    texts: tuple[str, ...]
    similarities: npt.NDArray[np.float64]

    def correlate(self, vectors: FloatArray) -> float:
        """Return Pearson's correlation of the cosines of all pairs with what people see."""
        unit = normalize_embeddings(vectors)
        pairs = np.triu_indices(len(self.texts), 1)
        return float(np.corrcoef((unit @ unit.T)[pairs], self.similarities[pairs])[0, 1])


def read_similar_texts() -> SimilarTexts:
    """Read the texts and the similarities."""
    with fetch_wheel("gensim") as wheel:
        texts = wheel.read(f"{_FOLDER}lee.cor").decode("utf-8", "replace").strip().splitlines()
        rows = wheel.read(f"{_FOLDER}similarities0-1.txt").decode().strip().splitlines()
    half = np.array([[float(value) for value in row.split()] for row in rows])
    full = np.triu(half) + np.triu(half, 1).T
    return SimilarTexts(tuple(texts), full)
