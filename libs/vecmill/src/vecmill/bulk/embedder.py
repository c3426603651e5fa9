"""The interface between the pipeline and its embedders: a mill in this process, or a server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vecmill.bulk.picture_inputs import PROBE_PICTURE, EmbedInput
from vecmill.config import OnLongInput
from vecmill.errors import InvalidConfig
from vecmill.requests import Chunking, ChunkingMode, Purpose, Truncation
from vecmill.values.aliases import IntArray, JsonValue
from vecmill.values.embeddings import OutputDtype
from vecmill.values.picture import Picture

PROBE = "vecmill"

# The texts of a call if they may be of any length.
CHUNKED_TEXTS = 4

# The pictures of a call, which are decoded one by one while others are computed.
CALL_PICTURES = 16

Vectors = npt.NDArray[np.generic]


class EmbeddingForm(StrEnum):
    """What a text is embedded into."""

    DENSE = "dense"  # one embedding
    SPARSE = "sparse"  # weights over the vocabulary
    TOKENS = "tokens"  # an embedding of each token


@dataclass(frozen=True, slots=True)
class EmbedParameters:
    """The settings of the embeddings, as in `Embed`, and the type of the written vectors.

    With `has_pictures` the inputs are pictures, for which only `dimensions` and `kind` count.
    """

    prompt_name: str | None = None
    purpose: Purpose | None = None
    dimensions: int | None = None
    kind: OutputDtype = OutputDtype.FLOAT
    on_long_input: OnLongInput | None = None
    chunking: Chunking | None = None
    form: EmbeddingForm = EmbeddingForm.DENSE
    has_pictures: bool = False

    @property
    def probe(self) -> str | Picture:
        """An input that every model embeds which embeds such inputs."""
        return PROBE_PICTURE if self.has_pictures else PROBE

    def choose_call(self, texts: int) -> int:
        """Return the inputs of a call of `texts` texts of the length that a model reads."""
        if self.has_pictures:
            return CALL_PICTURES
        return texts if self.chunking is None else CHUNKED_TEXTS

    @property
    def truncation(self) -> Truncation:
        """Whether texts that are too long are cut; by default the model or the server decides."""
        on_long_input = self.on_long_input
        return Truncation(None if on_long_input is None else on_long_input is OnLongInput.CUT)

    def for_pictures(self) -> "EmbedParameters":
        """Return the settings for an input of pictures. Raises `InvalidConfig` for settings of texts."""
        for_texts = {
            "--prompt-name": self.prompt_name,
            "--purpose": self.purpose,
            "--on-long-input": self.on_long_input,
            "--chunking": self.chunking,
            "--vectors": None if self.form is EmbeddingForm.DENSE else self.form,
        }
        for name, value in for_texts.items():
            if value is not None:
                raise InvalidConfig(f"{name} is for texts, and this input has pictures. Remove it.")
        return replace(self, has_pictures=True)

    @property
    def gives_chunks(self) -> bool:
        """Whether each chunk of a text has an embedding."""
        return self.chunking is not None and self.chunking.mode is not ChunkingMode.POOLED


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    """Vectors, (texts, dim) of the requested type, in the order of the texts, and the number of tokens.

    Other forms than dense are objects, (texts,): a `SparseEmbedding`, or (tokens, dim) float32.

    The texts with the indices `left_out` cannot be embedded and have no vector. `truncated_tokens` has for
    each vector the number of tokens that were cut off its text, at least, or `None` if that is not known. It
    is empty if it is known for none. If each chunk has a vector, `chunks` is their table (`chunk_table`). Of
    the texts, `reused` were embedded in an earlier run.
    """

    embeddings: Vectors
    token_count: int
    left_out: Sequence[int] = ()
    truncated_tokens: Sequence[int | None] = ()
    chunks: IntArray | None = None
    reused: int = 0

    @property
    def dropped(self) -> Sequence[int | None]:
        """The number of tokens that were cut off each text with a vector, `None` if it is not known."""
        return self.truncated_tokens or [None] * len(self.embeddings)


def describe_space(space: str | None, exact: str | None, prompt_name: str | None) -> dict[str, JsonValue]:
    """Return the part of an identity about the space of the vectors; empty if that is not known."""
    found = {"space": space, "exact": exact, "prompt_name": prompt_name}
    return {} if space is None else found


class Embedder(Protocol):
    """An embedder with fixed settings, for any number of concurrent calls.

    `identity` describes the model and the settings that the vectors depend on. `dim` is the number of values
    of a vector, each of type `dtype`; the values of binary vectors are bytes. Vectors of other forms than
    dense are objects; `dim` is then the size of the vocabulary, or that of the vector of a token.
    `call_texts` is the best number of texts for a call. `similarity` is the measure that compares vectors,
    `None` if it is not known.
    """

    @property
    def identity(self) -> Mapping[str, JsonValue]: ...

    @property
    def dim(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[np.generic]: ...

    @property
    def call_texts(self) -> int: ...

    @property
    def similarity(self) -> str | None: ...

    async def embed(self, inputs: Sequence[EmbedInput]) -> EmbeddedTexts:
        """Embed some texts or pictures, whose files are read now; `left_out` of the result is empty.

        Raises `InvalidCorpus` if a file has changed. Raises `RequestError` or `EngineError` if one of the
        inputs may be the cause; the caller can find it by embedding the inputs one by one. Raises other
        `VecmillError`s if all further calls would fail.
        """
        ...
