"""The space of the vectors in an answer, and the name of the prompt that was applied.

Vectors of the model's own form are in the model's space, whatever prompt went before the texts, and on both
sides of an asymmetric model. Others are in spaces of their own, whose digests are derived from it: those of
fewer dimensions, of another normalisation or type, late chunks, hidden states, and the sparse embeddings and
token vectors of BGE-M3. If an answer has several kinds of vectors, it has the model's space.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from vecmill.models import ModelDescription, Task
from vecmill.models.space import ModelIdentity, derive_digest
from vecmill.requests import (
    ChunkingMode,
    Embed,
    EmbedOutputs,
    EmbedPictures,
    EmbedSparse,
    EmbedTokens,
    Purpose,
    Request,
)
from vecmill.tokenization.prompts import find_prompt_name
from vecmill.values.embeddings import OutputDtype

_WITHOUT_VECTORS = (Task.RERANK, Task.CLASSIFY, Task.CLASSIFY_TOKENS)
_FLOAT = (OutputDtype.FLOAT,)
SPARSE, VECTORS = "sparse", "vectors"


@dataclass(frozen=True, slots=True)
class AnswerSpace:
    """The space of an answer. `prompt_name` is `None` without a prompt, and for a prompt without a name."""

    space: str
    exact: str
    prompt_name: str | None


class AnswerSpaces:
    """The spaces of the answers of one model.

    Those of embeddings are kept for requests that say only what the model names: there are few of these.
    """

    def __init__(self, description: ModelDescription, identity: ModelIdentity) -> None:
        self._description = description
        self.identity = identity
        self._named = frozenset((None, *description.prompts))
        self.kept: dict[Any, AnswerSpace | None] = {}

    def find(self, request: Request[Any]) -> AnswerSpace | None:
        """Return the space of the answer to a request, `None` if the answer has no vectors."""
        options = request.options
        if (
            not isinstance(request, Embed)
            or request.dimensions is not None
            or request.chunking is not None
            or request.late_chunking
            or len(request.dtypes) != 1
            or options.prompt is not None
            or options.prompt_name not in self._named
            or not request.inputs
            or not isinstance(request.inputs[0], str)
        ):
            return _find_space(self._description, self.identity, request)
        key = (options.prompt_name, options.purpose, request.normalize, request.dtypes)
        if key not in self.kept:
            self.kept[key] = _find_space(self._description, self.identity, request)
        return self.kept[key]


def _find_space(
    description: ModelDescription, identity: ModelIdentity, request: Request[Any]
) -> AnswerSpace | None:
    if description.task in _WITHOUT_VECTORS:
        return None
    if isinstance(request, Embed | EmbedPictures):
        kind = ", ".join(_list_differences(description, request))
        has_texts = any(isinstance(item, str) for item in request.inputs)
    elif isinstance(request, EmbedSparse | EmbedTokens | EmbedOutputs):
        kind = _name_output(description, request)
        has_texts = any(isinstance(item, str) for item in request.texts)
    else:
        return None
    prompt_name = _name_prompt(description, request) if has_texts else None
    space, exact = identity.space, identity.exact
    if kind:
        heads = tuple((head.name, head.digest) for head in identity.model_space.heads)
        space, exact = _derive(space, kind, heads), _derive(exact, kind, heads)
    return AnswerSpace(space, exact, prompt_name)


def list_output_spaces(identity: ModelIdentity) -> dict[str, str]:
    """Return the spaces of the outputs that a model gives beside its own, by their names."""
    heads = tuple((head.name, head.digest) for head in identity.model_space.heads)
    return {name: _derive(identity.space, name, heads) for name, _ in heads}


@lru_cache(maxsize=256)
def _derive(digest: str, kind: str, heads: tuple[tuple[str, str], ...]) -> str:
    return derive_digest(digest, dict(heads).get(kind, kind))


def _list_differences(description: ModelDescription, request: Embed | EmbedPictures) -> Iterator[str]:
    """Yield what tells the vectors of a request from those of the model's own form."""
    if isinstance(request, Embed):
        chunking = request.chunking
        if request.late_chunking or (chunking is not None and chunking.mode is ChunkingMode.LATE):
            yield "late chunks"
    if request.dimensions not in (None, description.dim):
        yield f"{request.dimensions} dimensions"
    if request.normalize not in (None, description.normalize):
        yield "normalised" if request.normalize else "not normalised"
    if request.dtypes != _FLOAT and len(request.dtypes) == 1:
        yield request.dtypes[0].value


def _name_prompt(description: ModelDescription, request: Request[Any]) -> str | None:
    options, default = request.options, description.default_prompt_name
    if description.task is Task.MULTI_VECTOR:  # its texts are documents, and it has no default prompt
        options, default = replace(options, purpose=options.purpose or Purpose.DOCUMENT), None
    return find_prompt_name(description.prompts, default, options, description.encoder.adapters)


def _name_output(description: ModelDescription, request: Request[Any]) -> str:
    """Return the name of the only kind of vectors in an answer, empty for the model's own or several."""
    if isinstance(request, EmbedOutputs):
        asked = {"": request.dense, SPARSE: request.sparse, VECTORS: request.vectors}
        names = [name for name, is_asked in asked.items() if is_asked]
        return names[0] if len(names) == 1 and description.token_heads is not None else ""
    if description.task is not Task.EMBED:
        return ""
    if isinstance(request, EmbedTokens):
        return "hidden states" if description.token_heads is None else VECTORS
    return SPARSE
