"""What embeds the texts of an evaluation: a mill, a server, or a function."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from vecmill.bulk.embedder import PROBE, EmbedParameters
from vecmill.bulk.local import without_limits
from vecmill.bulk.pipeline import gather_all
from vecmill.bulk.remote import RemoteEmbedder, open_remote
from vecmill.config import MillConfig
from vecmill.directory_layouts import describe_model
from vecmill.errors import InvalidConfig
from vecmill.models import ModelDescription, locate_model
from vecmill.models.heads import Similarity
from vecmill.requests import Embed, EmbedOutputs, EmbedSparse, EmbedTokens, Purpose, TextOptions
from vecmill.sync import SyncMill
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import SparseEmbedding
from vecmill.values.engine_plan import Precision
from vecmill.values.output_kinds import OutputDtype
from vecmill.values.task import Task

T = TypeVar("T")

# Takes texts and the name of a `Purpose`, query or document, and returns (texts, dim).
EmbedFunction = Callable[[Sequence[str], str], Any]

# A directory or a name on a hub, the address of a server, a mill, or a function.
EvaluatedModel = str | Path | SyncMill | EmbedFunction


class SearchKind(StrEnum):
    """The embeddings that are compared; hybrid is the weighted mean of the three scores of BGE-M3."""

    DENSE = "dense"
    SPARSE = "sparse"
    MULTI_VECTOR = "multi-vector"
    HYBRID = "hybrid"

    @property
    def parts(self) -> tuple["SearchKind", ...]:
        """The kinds of embeddings that it needs."""
        if self is SearchKind.HYBRID:
            return SearchKind.DENSE, SearchKind.SPARSE, SearchKind.MULTI_VECTOR
        return (self,)


@dataclass(frozen=True, slots=True)
class TextVectors:
    """The embeddings of some texts; kinds that were not asked for are `None`."""

    dense: FloatArray | None = None
    sparse: Sequence[SparseEmbedding] | None = None
    tokens: Sequence[FloatArray] | None = None


@dataclass(frozen=True, slots=True)
class PromptPair:
    """The preparation of queries and documents, by the `label` that it has in reports."""

    label: str
    query: TextOptions
    document: TextOptions

    @classmethod
    def parse(cls, text: str) -> "PromptPair":
        """Read `purpose`, `none`, or the names of two prompts with a colon between; each may be empty.

        Raises `InvalidConfig`.
        """
        if text == "purpose":
            return cls(text, *(TextOptions(purpose=side) for side in (Purpose.QUERY, Purpose.DOCUMENT)))
        names = ["", ""] if text == "none" else text.split(":")
        if len(names) != 2:
            raise InvalidConfig(
                f"The prompts are {text!r}; they must be purpose, none, or QUERY:DOCUMENT, the names of the "
                "prompts of queries and of documents."
            )
        # The purpose chooses the encoder of a model that has two.
        sides = [
            TextOptions(name, purpose=side) if name else TextOptions(prompt="", purpose=side)
            for name, side in zip(names, (Purpose.QUERY, Purpose.DOCUMENT), strict=True)
        ]
        return cls(text, *sides)

    def options(self, side: Purpose) -> TextOptions:
        """Return the options of one side."""
        return self.query if side is Purpose.QUERY else self.document


@dataclass(frozen=True, slots=True)
class EncoderTraits:
    """What an evaluation needs to know of a model. `dim` is `None` until a function has embedded a text.

    `searches` are the kinds of search that the model can do, the usual one first. `space` is that of its
    vectors, if it is known. It may be called `calls_at_once` times at the same time.
    """

    model: str
    plan: str
    searches: tuple[SearchKind, ...]
    dim: int | None
    similarity: Similarity = Similarity.COSINE
    is_normalized: bool = True
    space: str | None = None
    calls_at_once: int = 2


class EvaluationEncoder(Protocol):
    """A model as a function of texts."""

    @property
    def traits(self) -> EncoderTraits: ...

    def encode(
        self, texts: Sequence[str], side: Purpose, prompts: PromptPair, kinds: Sequence[SearchKind]
    ) -> TextVectors:
        """Embed texts as queries or documents. `kinds` has no hybrid, but its parts."""
        ...

    def find_ranges(self, dimensions: int | None) -> FloatArray | None:
        """Return the model's own ranges for 8-bit integers, (2, dim), `None` if they are not known."""
        ...


_SEARCHES: Mapping[Task, tuple[SearchKind, ...]] = {
    Task.EMBED: (SearchKind.DENSE,),
    Task.SPARSE: (SearchKind.SPARSE,),
    Task.MULTI_VECTOR: (SearchKind.MULTI_VECTOR,),
}


class MillEncoder:
    """A mill as a `EvaluationEncoder`."""

    def __init__(self, mill: SyncMill) -> None:
        description, info = mill.description, mill.info
        searches = _SEARCHES.get(description.task)
        if searches is None:
            raise InvalidConfig(
                f"{description.name} has the task {description.task}, and no vectors of texts. A reranker "
                "goes on top of a model that has some."
            )
        if description.token_heads is not None and not info.is_finished:
            searches = tuple(SearchKind)
        self._mill = mill
        self._ranges: dict[int | None, FloatArray | None] = {}
        self.traits = EncoderTraits(
            description.name,
            f"{info.name} {info.precision}",
            searches,
            description.dim,
            description.similarity,
            description.normalize,
            mill.identity.space,
        )

    def encode(
        self, texts: Sequence[str], side: Purpose, prompts: PromptPair, kinds: Sequence[SearchKind]
    ) -> TextVectors:
        """Embed texts; see `EvaluationEncoder.encode`. Raises the same errors as `SyncMill.run`."""
        given, options = tuple(texts), prompts.options(side)
        if len(kinds) > 1:
            wanted = (kind in kinds for kind in SearchKind.HYBRID.parts)
            found = self._mill.run(EmbedOutputs(given, *wanted, options=options))
            return TextVectors(found.dense, found.sparse, found.vectors)
        if kinds[0] is SearchKind.SPARSE:
            return TextVectors(sparse=self._mill.run(EmbedSparse(given, options=options)).embeddings)
        if kinds[0] is SearchKind.MULTI_VECTOR:
            return TextVectors(tokens=self._mill.run(EmbedTokens(given, options=options)).embeddings)
        return TextVectors(self._mill.run(Embed(given, options=options)).embeddings)

    def find_ranges(self, dimensions: int | None) -> FloatArray | None:
        """Return the ranges of the model, which are measured once on sample texts."""
        if dimensions not in self._ranges:
            request = Embed((PROBE,), dimensions, dtypes=(OutputDtype.INT8,))
            self._ranges[dimensions] = self._mill.run(request).ranges
        return self._ranges[dimensions]


class FunctionEncoder:
    """A function as a `EvaluationEncoder` of dense vectors, which are compared by their cosine."""

    def __init__(self, function: EmbedFunction) -> None:
        self._function = function
        name = getattr(function, "__qualname__", type(function).__qualname__)
        self.traits = EncoderTraits(
            name, "function", (SearchKind.DENSE,), None, is_normalized=False, calls_at_once=1
        )

    def encode(
        self, texts: Sequence[str], side: Purpose, prompts: PromptPair, kinds: Sequence[SearchKind]
    ) -> TextVectors:
        """Embed texts; the function makes its own prompts. Raises `InvalidConfig` for other arrays."""
        rows = np.asarray(self._function(list(texts), side.value), np.float32)
        if rows.ndim != 2 or len(rows) != len(texts) or not np.isfinite(rows).all():
            raise InvalidConfig(
                f"{self.traits.model} returned an array {rows.shape} for {len(texts)} texts; it must be "
                "(texts, dimensions), of finite numbers."
            )
        return TextVectors(rows)

    def find_ranges(self, dimensions: int | None) -> FloatArray | None:
        """Return `None`: the function says nothing about it."""
        return None


@dataclass
class ServerEncoder:
    """A server with `/v1/embeddings` as a `EvaluationEncoder` of dense vectors.

    Its own event loop runs in a thread, so that it works where another one runs, as in a notebook.
    """

    url: str
    model: str | None
    key: str | None
    _embedders: dict[tuple[str, Purpose], RemoteEmbedder] = field(default_factory=dict)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vecmill-calls", daemon=True)
        self._thread.start()
        self._lock = asyncio.Lock()
        self.traits = EncoderTraits(self.url, "server", (SearchKind.DENSE,), None)

    def connect(self, prompts: PromptPair) -> None:
        """Test the server, and find out which model it has. Raises `SetupError`."""
        embedder = self._run(self._open(prompts, Purpose.DOCUMENT))
        known = embedder.identity
        plan = " ".join(str(known[name]) for name in ("engine", "precision") if name in known)
        self.traits = EncoderTraits(
            f"{known['name']} at {self.url}",
            plan or "server",
            (SearchKind.DENSE,),
            embedder.dim,
            is_normalized=False,  # which only this server knows
            space=known.get("space"),
        )

    def encode(
        self, texts: Sequence[str], side: Purpose, prompts: PromptPair, kinds: Sequence[SearchKind]
    ) -> TextVectors:
        """Embed texts by concurrent calls; see `EvaluationEncoder.encode`. Raises `ServerFailed` too."""
        return TextVectors(self._run(self._encode(texts, side, prompts)))

    def find_ranges(self, dimensions: int | None) -> FloatArray | None:
        """Return `None`: servers do not tell."""
        return None

    def close(self) -> None:
        """Close the connections."""
        self._run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _encode(self, texts: Sequence[str], side: Purpose, prompts: PromptPair) -> FloatArray:
        embedder = await self._open(prompts, side)
        size = embedder.call_texts
        found = await gather_all([embedder.embed(texts[at : at + size]) for at in range(0, len(texts), size)])
        return np.concatenate([each.embeddings for each in found]).astype(np.float32, copy=False)

    async def _open(self, prompts: PromptPair, side: Purpose) -> RemoteEmbedder:
        async with self._lock:
            key = prompts.label, side
            if key not in self._embedders:
                options = prompts.options(side)
                # A server has no name for "no prompt": without options it adds its default.
                purpose = options.purpose if options.prompt is None else None
                parameters = EmbedParameters(options.prompt_name, purpose)
                self._embedders[key] = await self._stack.enter_async_context(
                    open_remote(self.url, self.model, parameters, key=self.key)
                )
            return self._embedders[key]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        call = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return call.result()
        except BaseException:
            call.cancel()
            raise


def is_server(source: EvaluatedModel) -> bool:
    """Return whether a model is the address of a server."""
    return isinstance(source, str) and source.startswith(("http://", "https://"))


@contextmanager
def open_encoder(
    source: EvaluatedModel,
    plan: str | None,
    prompts: PromptPair,
    *,
    api_key: str | None = None,
    cache_dir: Path | None = None,
) -> Iterator[EvaluationEncoder]:
    """Open what embeds, and close it again if it was opened here. Raises `SetupError`.

    `plan` is an engine, and perhaps a precision and a device, such as `openvino:int8` or `onnx:fp32@cuda`;
    `None` for what would serve the model. The address of a server may end in `#` and the name of one of its
    models.
    """
    if isinstance(source, str | Path) and not is_server(source):
        with open_mill(source, plan, cache_dir) as mill:
            yield MillEncoder(mill)
        return
    if plan is not None:
        raise InvalidConfig("Plans are for models that are loaded here; leave out --plan for others.")
    if isinstance(source, SyncMill):
        yield MillEncoder(source)
    elif isinstance(source, str):
        url, _, name = source.partition("#")
        server = ServerEncoder(url, name or None, api_key)
        try:
            server.connect(prompts)
            yield server
        finally:
            server.close()
    else:
        assert not isinstance(source, Path)
        yield FunctionEncoder(source)


@contextmanager
def open_mill(model: str | Path, plan: str | None, cache_dir: Path | None = None) -> Iterator[SyncMill]:
    """Load a model with the engine, precision and device of `plan`. Raises `SetupError`."""
    chosen, _, device = (plan or "").partition("@")
    engine, _, precision = chosen.partition(":")
    if precision and precision not in list(Precision):
        raise InvalidConfig(
            f"The plan is {plan!r}; after the engine and a colon must come one of {', '.join(Precision)}."
        )
    config = MillConfig(
        engine=engine or None,
        precision=Precision(precision) if precision else None,
        device=device or None,
        cache_dir=cache_dir,
    )
    description: ModelDescription = describe_model(locate_model(model))
    with SyncMill(description, without_limits(config)) as mill:
        yield mill
