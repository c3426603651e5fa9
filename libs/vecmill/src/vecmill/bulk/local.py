"""The embedder in this process: a mill without queue limits, since the pipeline bounds the waiting texts."""

import math
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from vecmill.bulk.chunk_table import table_of
from vecmill.bulk.embed_model import EmbedModel
from vecmill.bulk.embedder import (
    EmbeddedTexts,
    EmbeddingForm,
    EmbedParameters,
    describe_space,
)
from vecmill.bulk.picture_inputs import EmbedInput, PictureRoom
from vecmill.config import MillConfig, QueueConfig
from vecmill.directory_layouts import describe_model
from vecmill.errors import EngineError, InvalidConfig, ModelNotFound, RequestError, fields_renamed
from vecmill.mill import Mill
from vecmill.models import ModelDescription, ModelLocation, fingerprint_model, locate_model
from vecmill.models.heads import Similarity
from vecmill.operations.sides import find_route
from vecmill.requests import (
    Embed,
    EmbedPictures,
    EmbedSparse,
    EmbedTokens,
    Picture,
    Purpose,
    Request,
    TextOptions,
)
from vecmill.results import EmbedResult, EmbedSparseResult, EmbedTokensResult
from vecmill.values.aliases import JsonValue
from vecmill.values.download_log import show_downloads
from vecmill.values.engine_plan import Precision
from vecmill.values.preparation_log import show_preparation
from vecmill.vectors import quantize

_NO_LIMIT = sys.maxsize

# On a slow machine a call of a large model over a long text takes minutes.
HANG_S = 600.0


class LocalEmbedder:
    """A mill as an `Embedder`. Use `open_local` to load the model."""

    def __init__(self, mill: Mill, parameters: EmbedParameters) -> None:
        # The texts of a call are tokenised together, while the lanes compute other calls.
        self.call_texts = parameters.choose_call(64)
        self._room = PictureRoom()
        self._mill = mill
        self._parameters = parameters
        self._options = TextOptions(
            parameters.prompt_name, purpose=parameters.purpose, truncation=parameters.truncation
        )
        description, info = mill.description, mill.info
        is_dense = parameters.form is EmbeddingForm.DENSE
        self.dtype = parameters.kind.dtype if is_dense else np.dtype(object)
        # Weights over the vocabulary are compared by their dot product.
        is_sparse = parameters.form is EmbeddingForm.SPARSE
        self.similarity: str | None = Similarity.DOT if is_sparse else description.similarity
        numbers = parameters.dimensions or description.dim
        self.dim = numbers // 8 if parameters.kind.needs_bytes else numbers
        self.dim = description.vocab_size if is_sparse else self.dim
        space = mill.find_space(self._request([parameters.probe]))
        assert space is not None  # of a request for vectors
        self.identity: Mapping[str, JsonValue] = {
            "name": description.name,
            "fingerprint": fingerprint_model(_side_of(description, self._options)),
            "engine": info.name,
            "precision": Precision.FP32 if parameters.has_pictures else info.precision,
            **describe_space(space.space, space.exact, space.prompt_name),
        }

    async def embed(self, inputs: Sequence[EmbedInput]) -> EmbeddedTexts:
        """Embed some inputs; see `Embedder.embed`."""
        has_pictures = self._parameters.has_pictures
        with fields_renamed(input="picture" if has_pictures else "text"):
            async with self._room.read(inputs) as read:
                # The pixels of pictures have a limit.
                result = await self._mill.run(self._request(read), wait_for_room=has_pictures)
        if not isinstance(result, EmbedResult):
            return self._join(result)
        embeddings = quantize(result.embeddings, self._parameters.kind, result.ranges)
        dropped = [0] * len(embeddings)
        for each in result.truncated:  # none if each chunk has a vector
            dropped[each.index] = each.token_count
        return EmbeddedTexts(
            embeddings, result.token_count, truncated_tokens=dropped, chunks=table_of(result.chunks)
        )

    def _join(self, result: EmbedSparseResult | EmbedTokensResult) -> EmbeddedTexts:
        found = np.empty(len(result.embeddings), object)
        for place, embedding in enumerate(result.embeddings):
            found[place] = embedding
        if isinstance(result, EmbedTokensResult):
            self.dim = result.embeddings[0].shape[1]
        return EmbeddedTexts(found, result.token_count)

    def _request(self, inputs: Sequence[str | Picture]) -> Request[Any]:
        parameters = self._parameters
        if parameters.has_pictures:
            return EmbedPictures(tuple(inputs), parameters.dimensions, dtypes=(parameters.kind,))
        texts = tuple(one for one in inputs if isinstance(one, str))
        if parameters.form is EmbeddingForm.SPARSE:
            return EmbedSparse(texts, options=self._options)
        if parameters.form is EmbeddingForm.TOKENS:
            return EmbedTokens(texts, options=self._options)
        return Embed(
            texts,
            parameters.dimensions,
            dtypes=(parameters.kind,),
            chunking=parameters.chunking,
            options=self._options,
        )


def _side_of(description: ModelDescription, options: TextOptions) -> ModelDescription:
    """Return the description of the queries if they are embedded in another way than `description` says.

    Raises `InvalidRequest` for a purpose that the model does not have.
    """
    is_query = find_route(description, options) is Purpose.QUERY
    return description if description.router is None or not is_query else description.router.query


@asynccontextmanager
async def open_local(choice: EmbedModel, parameters: EmbedParameters) -> AsyncIterator[LocalEmbedder]:
    """Load a model, and test it with `parameters`. Raises `SetupError`."""
    description = describe_model(_locate(choice.model, trusts_code=choice.trusts_code), choice.task)
    async with AsyncExitStack() as stack:
        with show_preparation():
            mill = await stack.enter_async_context(Mill(description, without_limits(choice.config)))
        numbers = parameters.dimensions or description.dim
        if parameters.kind.needs_bytes and numbers % 8:
            raise InvalidConfig(
                f"Binary embeddings need a multiple of 8 dimensions, not {numbers}. Change --dtype or "
                "--dimensions."
            )
        try:
            with fields_renamed(input_type="purpose"):
                embedder = LocalEmbedder(mill, parameters)
                await embedder.embed([parameters.probe])
        except (RequestError, EngineError) as error:
            raise InvalidConfig(error.message) from error
        yield embedder


def _locate(model: str | None, *, trusts_code: bool) -> ModelLocation:
    """Find the model, and show the progress of a download. Raises `SetupError`."""
    try:
        with show_downloads():
            return locate_model(model, trusts_code=trusts_code)
    except ModelNotFound as error:
        if model is not None:
            raise
        raise ModelNotFound(f"{error.message} The option --model names a model.") from error


def without_limits(config: MillConfig) -> MillConfig:
    """Return `config` without limits on the queue, the waiting time and the inputs."""
    return replace(
        config,
        hang_s=HANG_S,
        queue=QueueConfig(_NO_LIMIT, _NO_LIMIT, target_wait_s=math.inf, timeout_s=math.inf),
        inputs=replace(
            config.inputs,
            max_inputs=_NO_LIMIT,
            max_pictures=_NO_LIMIT,
            max_text_characters=_NO_LIMIT,
            max_request_characters=_NO_LIMIT,
            max_request_tokens=_NO_LIMIT,
            max_counted_characters=_NO_LIMIT,
        ),
    )
