"""The public names of version 0.1.0 that have changed. They still work in version 0.2, with a warning.

`vecmill` finds the old classes here, and `Mill` inherits its old methods.
"""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from vecmill.requests import (
    DEFAULT_TEXT_OPTIONS,
    DEFAULT_TRUNCATION,
    ClassifyTokens,
    Detokenize,
    Embed,
    EmbedSparse,
    EmbedTokens,
    Priority,
    Request,
    TextOptions,
    TextOrIds,
    Tokenize,
    Truncation,
)
from vecmill.results import (
    ClassifyTokensResult,
    EmbedResult,
    EmbedSparseResult,
    EmbedTokensResult,
    TokenizeResult,
)
from vecmill.values.aliases import FloatArray
from vecmill.values.embeddings import OutputDtype, SparseEmbedding

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def embed_request(
    inputs: tuple[TextOrIds, ...],
    reading: TextOptions = DEFAULT_TEXT_OPTIONS,
    dimensions: int | None = None,
    normalize: bool | None = None,
    timeout_s: float | None = None,
    field: str = "input",
    **others: bool,
) -> Embed:
    """Make an `Embed` from the arguments of `EmbedRequest`, in the same order.

    `field` has no effect: errors always name the inputs `input`. See `RequestError.rename_fields`.
    """
    priority = Priority.BACKGROUND if others.pop("is_bulk", False) else None
    options: Any = {"options": reading, "priority": priority, "timeout_s": timeout_s, **others}
    return Embed(inputs, dimensions, normalize, **options)


# The old name, the new one, and what the old one gives.
_CLASSES: Mapping[str, tuple[str, Any]] = MappingProxyType(
    {
        "EmbedRequest": ("Embed", embed_request),
        "MultiVectorResult": ("EmbedTokensResult", EmbedTokensResult),
        "Reading": ("TextOptions", TextOptions),
        "SparseResult": ("EmbedSparseResult", EmbedSparseResult),
        "SparseRow": ("SparseEmbedding", SparseEmbedding),
    }
)


def find_old_class(name: str) -> Any:
    """Return the class with the old name `vecmill.<name>`, with a warning. Raises `AttributeError`."""
    if name not in _CLASSES:
        raise AttributeError(f"module 'vecmill' has no attribute {name!r}")
    new, found = _CLASSES[name]
    _warn(f"vecmill.{name}", f"vecmill.{new}")
    return found


def renamed_parameter(old: str, new: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that lets a function accept its keyword argument `new` under the name `old` too."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if old in kwargs:
                _warn(f"the argument {old}", new)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate


class OldMethods:
    """The old methods of `Mill`. Each method makes a request of `vecmill.requests`."""

    async def run(self, request: Request[R]) -> R:
        """See `Mill.run`."""
        raise NotImplementedError

    async def submit(self, request: Embed) -> EmbedResult:
        """See `Mill.run`."""
        _warn("submit", "run")
        return await self.run(request)

    async def embed_sparse(
        self,
        texts: Sequence[str],
        *,
        reading: TextOptions = DEFAULT_TEXT_OPTIONS,
        timeout_s: float | None = None,
    ) -> EmbedSparseResult:
        """See `EmbedSparse`."""
        _warn("embed_sparse", "run(EmbedSparse(...))")
        return await self.run(EmbedSparse(tuple(texts), options=reading, timeout_s=timeout_s))

    async def embed_all(
        self,
        texts: Sequence[str],
        *,
        reading: TextOptions = DEFAULT_TEXT_OPTIONS,
        timeout_s: float | None = None,
    ) -> EmbedTokensResult:
        """See `EmbedTokens`."""
        _warn("embed_all", "run(EmbedTokens(...))")
        return await self.run(EmbedTokens(tuple(texts), options=reading, timeout_s=timeout_s))

    async def classify_tokens(
        self,
        texts: Sequence[str],
        *,
        aggregate: bool = True,
        truncation: Truncation = DEFAULT_TRUNCATION,
        timeout_s: float | None = None,
    ) -> ClassifyTokensResult:
        """See `ClassifyTokens`."""
        _warn("classify_tokens", "run(ClassifyTokens(...))")
        options = TextOptions(truncation=truncation)
        return await self.run(ClassifyTokens(tuple(texts), aggregate, options=options, timeout_s=timeout_s))

    async def tokenize(self, texts: Sequence[str], *, special: bool = True) -> TokenizeResult:
        """See `Tokenize`."""
        _warn("tokenize", "run(Tokenize(...))")
        return await self.run(Tokenize(tuple(texts), special))

    async def detokenize(self, ids: Sequence[Sequence[int]], *, skip_special: bool = True) -> tuple[str, ...]:
        """See `Detokenize`."""
        _warn("detokenize", "run(Detokenize(...))")
        return (await self.run(Detokenize(tuple(map(tuple, ids)), skip_special))).texts

    async def ranges(self, dimensions: int | None = None, *, normalize: bool | None = None) -> FloatArray:
        """See `EmbedResult.ranges`."""
        _warn("ranges", "the `ranges` of an EmbedResult")
        result = await self.run(Embed(("vecmill",), dimensions, normalize, (OutputDtype.INT8,)))
        assert result.ranges is not None
        return result.ranges


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=3)
