"""The `Tokenize` and `Detokenize` requests, which need no engine."""

from vecmill.errors import fields_renamed
from vecmill.operations.admission import Admission
from vecmill.requests import Detokenize, Tokenize
from vecmill.results import DetokenizeResult, TokenizeResult
from vecmill.tokenization.pieces import Slices


async def tokenize(admission: Admission, request: Tokenize) -> TokenizeResult:
    """Return the tokens of each text. Raises `InvalidRequest`, `RequestTooLarge` or `UnavailableError`."""
    sizes = request.sizes
    admission.check_sizes(sizes)
    work = admission.tokenizer.split_in_slices(
        request.texts, special=request.special, max_tokens=admission.most_tokens
    )
    tokens = await admission.tokenize(work, request, sizes)
    return TokenizeResult(tokens, admission.description.max_tokens)


async def detokenize(admission: Admission, request: Detokenize) -> DetokenizeResult:
    """Return the text of each list of token ids. Raises the same errors as `tokenize`."""
    sizes = request.sizes
    with fields_renamed(input="tokens"):
        admission.check_sizes(sizes)
        admission.check_tokens(sum(sizes))
        texts = await admission.tokenize(_join(admission, request), request, sizes)
    return DetokenizeResult(texts, sum(sizes))


def _join(admission: Admission, request: Detokenize) -> Slices[tuple[str, ...]]:
    texts = []
    for index, token_ids in enumerate(request.ids):
        yield len(token_ids)
        with fields_renamed(input="input" if len(request.ids) == 1 else f"input[{index}]"):
            texts.append(admission.tokenizer.join(token_ids, skip_special=request.skip_special))
    return tuple(texts)
