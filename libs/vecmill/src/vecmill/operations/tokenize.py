"""The `Tokenize` and `Detokenize` requests, which need no engine."""

from collections.abc import Sequence
from typing import TypeVar

from vecmill.errors import fields_renamed
from vecmill.operations.computation import time_limit_s
from vecmill.operations.loaded_model import LoadedModel
from vecmill.operations.tokenizer_threads import Load
from vecmill.requests import Caller, Detokenize, Tokenize
from vecmill.results import DetokenizeResult, TokenizeResult
from vecmill.tokenization.pieces import Slices
from vecmill.tokenization.split_texts import split_in_slices

T = TypeVar("T")


async def tokenize(loaded: LoadedModel, request: Tokenize, caller: Caller) -> TokenizeResult:
    """Return the tokens of each text. Raises `InvalidRequest`, `RequestTooLarge` or `UnavailableError`."""
    sizes, limits = request.sizes, loaded.limits
    limits.check_sizes(sizes)
    work = split_in_slices(
        loaded.tokenizer, request.texts, special=request.special, max_tokens=limits.most_tokens
    )
    tokens = await _take_turns(loaded, work, sizes, caller)
    return TokenizeResult(tokens, loaded.description.max_tokens)


async def detokenize(loaded: LoadedModel, request: Detokenize, caller: Caller) -> DetokenizeResult:
    """Return the text of each list of token ids. Raises the same errors as `tokenize`."""
    sizes = request.sizes
    with fields_renamed(input="tokens"):
        loaded.limits.check_sizes(sizes)
        loaded.limits.check_tokens(sum(sizes))
        texts = await _take_turns(loaded, _join(loaded, request), sizes, caller)
    return DetokenizeResult(texts, sum(sizes))


async def _take_turns(loaded: LoadedModel, work: Slices[T], sizes: Sequence[int], caller: Caller) -> T:
    """Do work on texts or token ids of these sizes, and return its result. See `TokenizerThreads.run`."""
    deadline = loaded.clock() + time_limit_s(loaded, caller)
    return await loaded.texts.run(work, Load.of(sizes, None, caller.client), deadline)


def _join(loaded: LoadedModel, request: Detokenize) -> Slices[tuple[str, ...]]:
    texts = []
    for index, token_ids in enumerate(request.ids):
        yield len(token_ids)
        with fields_renamed(input="input" if len(request.ids) == 1 else f"input[{index}]"):
            texts.append(loaded.tokenizer.join(token_ids, skip_special=request.skip_special))
    return tuple(texts)
