"""The `Rerank` request: scores of documents for queries, by any model that can compare them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from vecmill.errors import InvalidRequest, fields_renamed
from vecmill.models import Task
from vecmill.operations.capabilities import require_heads, require_task, require_unfinished
from vecmill.operations.computation import Work, compute
from vecmill.operations.loaded_model import LoadedModel
from vecmill.operations.rerank_methods import METHODS, RerankMethod, choose_method, document_prompt, for_each
from vecmill.requests import Caller, Purpose, Rerank, TextOptions
from vecmill.results import RerankResult
from vecmill.tokenization.pieces import Slices
from vecmill.tokenization.prompts import Prompt
from vecmill.tokenization.split_texts import cut_texts_in_slices
from vecmill.tokenization.tokenizer import Tokenizer
from vecmill.values.batch import TokenSequence
from vecmill.values.cuts import TextCut

T = TypeVar("T")


async def rerank(loaded: LoadedModel, request: Rerank, caller: Caller) -> RerankResult:
    """Return a score for each document, either for one common query or for a query of its own.

    Raises the same errors as `Mill.run`.
    """
    task, queries, documents = loaded.description.task, request.queries, request.documents
    require_task(loaded.description, *METHODS, asked="rank documents")
    _check_counts(queries, documents)
    _check_weights(request, loaded)
    options = replace(request.options, truncation=loaded.truncation(request.options))
    if task is not Task.RERANK:
        options = replace(options, purpose=Purpose.QUERY)
    prompt = choose_prompt(loaded, options, request.instruction)
    request = replace(request, options=options)
    method = choose_method(loaded)
    with fields_renamed(input="documents"):
        work = Work(
            loaded.documents,
            # The queries go last, so that `documents[3]` in an error is the fourth document.
            [
                *_document_sizes(loaded, request, prompt),
                *(len(query) + len(prompt.text) for query in queries),
            ],
            lambda: _encode(loaded, request, prompt, method),
            options.truncation,
            uncounted=len(queries),
            shared_size=_shared_size(loaded, request, prompt),
        )
        done = await compute(loaded, work, caller)
    numbers = method.numbers(loaded, request, done)
    scores = await loaded.results.run_if_large(lambda: method.score(loaded, request, done), numbers)
    return RerankResult(scores, done.token_count, done.timings, done.truncated)


def _encode(
    loaded: LoadedModel, request: Rerank, prompt: Prompt, method: RerankMethod
) -> Slices[list[TokenSequence]]:
    cut = yield from _truncate_texts(loaded, request)
    sequences = yield from method.encode(loaded, cut.request, prompt)
    return _add_cuts(sequences, cut)


def _document_sizes(loaded: LoadedModel, request: Rerank, prompt: Prompt) -> list[int]:
    """Return the number of characters of each document, with its prompt.

    A template puts the query and its prompt into the text of each document.
    """
    documents, description = request.documents, loaded.description
    if description.task is Task.RERANK:
        if description.pair_template is None and description.chat_template is None:
            return list(map(len, documents))
        queries = for_each(request.queries, len(documents))
        extra = len(prompt.text)
        return [
            len(query) + len(document) + extra for query, document in zip(queries, documents, strict=True)
        ]
    extra = len(document_prompt(loaded).text)
    return [len(document) + extra for document in documents]


def _shared_size(loaded: LoadedModel, request: Rerank, prompt: Prompt) -> int:
    """Return the number of characters of the instruction and the common query, before each document."""
    if loaded.description.task is not Task.RERANK:
        return 0
    queries = request.queries if len(request.queries) == 1 else ()
    return len(prompt.text) + sum(map(len, queries))


def choose_prompt(loaded: LoadedModel, options: TextOptions, instruction: str | None) -> Prompt:
    """Return the prompt of the query: the requested prompt, or the instruction.

    Raises the same errors as `find_prompt`, and `InvalidRequest` for an instruction that the model would
    ignore.
    """
    description = loaded.description
    if instruction is None:
        return loaded.prompt(options)
    if options.prompt_name is not None:
        raise InvalidRequest("Send `instruction` or `prompt_name`, not both.", field="instruction")
    template = description.pair_template or description.list_template
    takes_instruction = template is not None and template.takes_instruction
    if not takes_instruction and description.chat_template is None:
        raise InvalidRequest(
            "This model takes no instruction: it reads a query and a document alone. Leave it out.",
            field="instruction",
        )
    return Prompt(instruction)


def _check_counts(queries: Sequence[str], documents: Sequence[str]) -> None:
    if not documents:
        raise InvalidRequest("`documents` is empty; give at least one.", field="documents")
    if len(queries) not in (1, len(documents)):
        raise InvalidRequest(
            f"There are {len(queries)} queries for {len(documents)} documents; give one query for all of "
            "them, or one for each.",
            field="documents",
        )


def _check_weights(request: Rerank, loaded: LoadedModel) -> None:
    if request.weights is None:
        return
    asked = "weight several scores"
    require_heads(loaded.description, asked=asked)
    require_unfinished(loaded.description, loaded.dispatcher.info, asked=asked, field="weights")
    total = sum(request.weights)
    if min(request.weights) < 0 or not 0 < total < math.inf:
        raise InvalidRequest(
            "`weights` must be three numbers that are not negative, of which one is above 0.", field="weights"
        )


@dataclass(frozen=True, slots=True)
class _CutRequest:
    """A request whose texts are cut to the numbers of tokens that it allows, and the cuts of each text."""

    request: Rerank
    queries: Sequence[tuple[TextCut, ...]]
    documents: Sequence[tuple[TextCut, ...]]


def _truncate_texts(loaded: LoadedModel, request: Rerank) -> Slices[_CutRequest]:
    """Truncate queries and documents to the numbers of tokens that the request allows."""
    options = request.options
    with fields_renamed(input="query"):
        tokenizer = loaded.side_of(Purpose.QUERY).tokenizer
        queries, of_queries = yield from _truncate(tokenizer, request.queries, options.query_tokens)
    documents, of_documents = yield from _truncate(
        loaded.tokenizer, request.documents, options.document_tokens
    )
    return _CutRequest(replace(request, queries=queries, documents=documents), of_queries, of_documents)


def _truncate(
    tokenizer: Tokenizer, texts: tuple[str, ...], most: int | None
) -> Slices[tuple[tuple[str, ...], Sequence[tuple[TextCut, ...]]]]:
    if most is None:
        return texts, [()] * len(texts)
    found = yield from cut_texts_in_slices(tokenizer, texts, most)
    return tuple(text for text, _ in found), [cuts for _, cuts in found]


def _add_cuts(sequences: list[TokenSequence], cut: _CutRequest) -> list[TokenSequence]:
    """Return the sequences, also with the cuts that `_truncate_texts` has made."""
    documents = cut.documents
    texts = [*documents, *cut.queries]
    if not any(texts):
        return sequences
    if len(sequences) < len(documents):  # lists, of which the first may have any cuts
        numbered = [replace(each, index=index) for index, cuts in enumerate(texts) for each in cuts]
        return [replace(sequences[0], cuts=(*sequences[0].cuts, *numbered)), *sequences[1:]]
    if len(sequences) == len(documents):  # pairs
        of_pairs = zip(documents, for_each(cut.queries, len(documents)), strict=True)
        texts = [(*document, *query) for document, query in of_pairs]
    return [
        replace(sequence, cuts=(*sequence.cuts, *cuts))
        for sequence, cuts in zip(sequences, texts, strict=True)
    ]


# How each kind of model encodes a request, and scores what the engine computed: for pairs one sequence each,
# else the documents and then the queries.


# How many numbers the scoring reads or makes, as far as that decides where to compute it.
