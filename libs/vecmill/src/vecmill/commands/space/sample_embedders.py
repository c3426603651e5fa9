"""The embedders of a sample: a model in this process, or a server, with any of its prompts."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vecmill.bulk.embedder import EmbedParameters, Vectors
from vecmill.bulk.local import without_limits
from vecmill.bulk.remote import open_remote
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.errors import InvalidConfig, RequestError
from vecmill.mill import Mill
from vecmill.models import ModelDescription, ModelLocation
from vecmill.requests import Embed, Purpose, TextOptions
from vecmill.values.embeddings import OutputDtype
from vecmill.values.task import Task
from vecmill.vectors import quantize


@dataclass(frozen=True, slots=True)
class TriedPrompt:
    """A prompt, by the `label` that it has in reports."""

    label: str
    options: TextOptions

    @classmethod
    def named(cls, name: str) -> "TriedPrompt":
        """Return the prompt of this name."""
        return cls(name, TextOptions(name))

    @classmethod
    def for_purpose(cls, purpose: Purpose) -> "TriedPrompt":
        """Return the prompt for a purpose, on the side of the model that the purpose has."""
        return cls(f"purpose {purpose}", TextOptions(purpose=purpose))


DEFAULT = TriedPrompt("default", TextOptions())
BARE = TriedPrompt("none", TextOptions(prompt=""))


@dataclass(frozen=True, slots=True)
class VectorForm:
    """The form of the vectors to make: their dimensions, `None` for all, and their type."""

    dimensions: int | None = None
    kind: OutputDtype = OutputDtype.FLOAT


@dataclass(frozen=True, slots=True)
class NewVectors:
    """Vectors that were embedded again, and the space that they are in, if the server tells."""

    vectors: Vectors
    space: str | None
    exact: str | None


class SampleEmbedder(Protocol):
    """A model that embeds a sample. `about` describes it in words; its vectors have `dim` dimensions.

    `prompts` are those that are worth trying, and `bare` is the one for texts without a prompt.
    """

    @property
    def about(self) -> str: ...

    @property
    def dim(self) -> int: ...

    @property
    def prompts(self) -> Sequence[TriedPrompt]: ...

    @property
    def bare(self) -> TriedPrompt: ...

    async def embed(self, texts: Sequence[str], prompt: TriedPrompt, form: VectorForm) -> NewVectors:
        """Embed the texts. Raises `InvalidConfig` for a prompt that the model does not have."""
        ...


class LocalSampleEmbedder:
    """A mill as a `SampleEmbedder`."""

    def __init__(self, mill: Mill) -> None:
        description, info = mill.description, mill.info
        self._mill = mill
        self.about = f"{description.name}, {info.name} {info.precision}"
        self.dim = description.dim
        self.prompts = list_prompts(description)
        # The sides of an asymmetric model have no prompt in common.
        self.bare = BARE if description.router is None else DEFAULT

    async def embed(self, texts: Sequence[str], prompt: TriedPrompt, form: VectorForm) -> NewVectors:
        """Embed the texts; see `SampleEmbedder.embed`."""
        request = Embed(tuple(texts), form.dimensions, dtypes=(form.kind,), options=prompt.options)
        try:
            result = await self._mill.run(request)
        except RequestError as error:
            raise InvalidConfig(error.message) from error
        vectors = quantize(result.embeddings, form.kind, result.ranges)
        found = self._mill.find_space(request)
        return NewVectors(vectors, *((None, None) if found is None else (found.space, found.exact)))


class RemoteSampleEmbedder:
    """A server as a `SampleEmbedder`. It lists no prompts, so those of queries and documents are tried."""

    prompts = (DEFAULT, *map(TriedPrompt.for_purpose, (Purpose.QUERY, Purpose.DOCUMENT)))
    bare = DEFAULT

    def __init__(self, url: str, model: str | None, key: str | None, *, about: str, dim: int) -> None:
        self._url = url
        self._model = model
        self._key = key
        self.about = about
        self.dim = dim

    async def embed(self, texts: Sequence[str], prompt: TriedPrompt, form: VectorForm) -> NewVectors:
        """Embed the texts; see `SampleEmbedder.embed`. Raises `ServerFailed` too."""
        options = prompt.options
        parameters = EmbedParameters(options.prompt_name, options.purpose, form.dimensions, form.kind)
        async with open_remote(self._url, self._model, parameters, key=self._key) as embedder:
            step = embedder.call_texts
            parts = [await embedder.embed(texts[at : at + step]) for at in range(0, len(texts), step)]
            space, exact = (embedder.identity.get(name) for name in ("space", "exact"))
        vectors = np.concatenate([part.embeddings for part in parts])
        return NewVectors(vectors, *(value if isinstance(value, str) else None for value in (space, exact)))


def list_prompts(description: ModelDescription) -> list[TriedPrompt]:
    """Return the prompts of a model that differ: its default, those of its table, and none."""
    if description.router is not None:
        return [TriedPrompt.for_purpose(purpose) for purpose in (Purpose.DOCUMENT, Purpose.QUERY)]
    tried = [DEFAULT, *(TriedPrompt.named(name) for name in description.prompts), BARE]
    if description.encoder.adapters:
        return tried
    texts = [description.default_prompt, *description.prompts.values(), ""]
    return [prompt for at, prompt in enumerate(tried) if texts[at] not in texts[:at]]


@asynccontextmanager
async def open_local_sample(
    location: ModelLocation, config: MillConfig, task: Task | None = None
) -> AsyncIterator[LocalSampleEmbedder]:
    """Load a model. Raises `SetupError`."""
    description = describe_model(location, task)
    if description.task is not Task.EMBED:
        raise InvalidConfig(f"{description.name} has the task {description.task}, and no vectors of texts.")
    async with Mill(description, without_limits(config)) as mill:
        yield LocalSampleEmbedder(mill)


@asynccontextmanager
async def open_remote_sample(
    url: str, model: str | None, key: str | None
) -> AsyncIterator[RemoteSampleEmbedder]:
    """Connect to a server, and test it. Raises `SetupError`."""
    async with open_remote(url, model, EmbedParameters(), key=key) as embedder:
        known = [embedder.identity.get(name) for name in ("name", "engine", "precision")]
        about = " ".join(str(value) for value in known if value is not None)
        dim = embedder.dim
    yield RemoteSampleEmbedder(url, model, key, about=f"{about} at {url}", dim=dim)
